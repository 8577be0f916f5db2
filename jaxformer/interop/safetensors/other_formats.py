"""Error messages about weights in other formats, with commands that convert them."""

import json
import pathlib
import re
import shlex
from collections.abc import Collection

from jaxformer.storage import some

__all__ = ["download_command", "no_safetensors"]

_TORCH = ("pytorch_model.bin", "pytorch_model.bin.index.json")
# By file name: the library that reads it, and the option of `from_pretrained`.
_OTHERS = {
    "flax_model.msgpack": ("flax", "from_flax=True"),
    "tf_model.h5": ("tensorflow", "from_tf=True"),
}
_PICKLES = re.compile(r".*\.(bin|pt|pth|ckpt|pkl|pickle)", re.DOTALL | re.IGNORECASE)


def no_safetensors(folder: pathlib.Path, entries: Collection[str], auto_class: str) -> str:
    """Explains why a folder without safetensors weights is refused, and what to do.

    Args:
        folder: the folder.
        entries: names of the files in it.
        auto_class: class of transformers that loads the model.
    """
    start = f"{folder} must have safetensors files, got"
    for name in _TORCH:
        if name in entries:
            return (
                f"{start} {name}; a pickle can run arbitrary code, so it is not loaded; if you "
                f"trust it, convert it: {_command(folder, auto_class)}"
            )
    for name, (library, option) in _OTHERS.items():
        if name in entries:
            return (
                f"{start} {name}; convert it with transformers 4 and {library}: "
                f"{_command(folder, auto_class, option)}"
            )
    pickles = sorted(name for name in entries if _PICKLES.fullmatch(name))
    if pickles:
        return (
            f"{start} {some(pickles)}; a pickle can run arbitrary code, so it is not loaded; if "
            "you trust it, load the weights with the program that wrote it, and save them as "
            "model.safetensors with safetensors.torch.save_file"
        )
    start = f"{folder} must have model.safetensors or model.safetensors.index.json, got"
    others = sorted(name for name in entries if name.endswith(".safetensors"))
    if others:
        return f"{start} {some(others)}; rename the file of the whole model to model.safetensors"
    return f"{start} no weights; download the model into it: {download_command(folder)}"


def download_command(folder: pathlib.Path) -> str:
    """Shell command that downloads a model into a folder."""
    return f"hf download OWNER/MODEL --local-dir {shlex.quote(str(folder))}"


def _command(folder: pathlib.Path, auto_class: str, *options: str) -> str:
    # JSON strings are also Python strings. Their double quotes fit inside the shell's single ones.
    source, target = (json.dumps(f"{folder}{end}") for end in ("", "-safetensors"))
    return "python -c " + shlex.quote(
        f"from transformers import {auto_class} as M; "
        f"M.from_pretrained({', '.join([source, *options])}).save_pretrained({target})"
    )
