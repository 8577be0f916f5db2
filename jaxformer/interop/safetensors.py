"""Safetensors files and folders of them: tensors are read when they are needed."""

import json
import math
import os
import pathlib
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from jaxformer.errors import CheckpointError, ConfigError, StorageError
from jaxformer.storage import (
    damaged_download,
    on_disk,
    read_object,
    replacing,
    shown,
    some,
    write_whole,
)

_LFS_POINTER = b"version https://git-lfs"
# Those that the package reads as arrays of NumPy.
_DTYPES = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "I16": np.int16, "U16": np.uint16,
    "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I32": np.int32, "U32": np.uint32,
    "F32": np.float32, "C64": np.complex64, "F64": np.float64, "I64": np.int64, "U64": np.uint64,
}  # fmt: skip
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PLAIN_NAME = re.compile(r"[\w.+=@ -]+\.safetensors")  # no subfolder, no line break
_WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json")
_PICKLES = re.compile(r".*\.(bin|pt|pth|ckpt|pkl|pickle)", re.DOTALL | re.IGNORECASE)
_UNSAFE = "a pickle can run arbitrary code, so it is not loaded; if you trust it, "


class Tensor(NamedTuple):
    """A tensor of an open file."""

    path: pathlib.Path
    file: Any
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def read(self) -> np.ndarray:
        """A copy of its data."""
        array: np.ndarray = self.file.get_tensor(self.name)
        return array


def read_tensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Tensors of a file by name, none of them read; CheckpointError if it is damaged."""
    path = on_disk(path)
    try:
        with open(path, "rb") as start:
            if start.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise CheckpointError(
                    f"{path} is a Git LFS pointer, not the file itself; run git lfs pull"
                )
        file = safe_open(path, "numpy")
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"{path} cannot be read: {reason}; fix that, and try again") from None
    except SafetensorError as error:
        raise damaged_download(path, error) from error
    tensors = {}
    for name in file.keys():
        entry = file.get_slice(name)
        code, shape = entry.get_dtype(), tuple(entry.get_shape())
        if code not in _DTYPES:
            raise CheckpointError(
                f"{path}: the dtype of tensor {shown(name)} must be one of {', '.join(_DTYPES)}, "
                f"got {code}; convert the tensor, or use another version of the model"
            )
        tensors[name] = Tensor(path, file, name, np.dtype(_DTYPES[code]), shape)
    return tensors


class LazyTensor(NamedTuple):
    """A tensor that is computed when its file is written: `produce` returns it."""

    shape: tuple[int, ...]
    dtype: npt.DTypeLike
    produce: Callable[[], npt.ArrayLike]

    @property
    def nbytes(self) -> int:
        """Size of the tensor in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def write_tensor_file(
    path: pathlib.Path, tensors: Mapping[str, LazyTensor], metadata: Mapping[str, str]
) -> None:
    """Writes a file whole or not at all; its tensors are in memory together."""
    # The package writes the memory of an array as it lies, in whatever order.
    arrays = {name: np.asarray(tensor.produce(), order="C") for name, tensor in tensors.items()}
    with replacing(path) as draft:
        try:
            save_file(arrays, draft, dict(metadata))
        except SafetensorError as error:
            raise StorageError(f"{path} cannot be written: {error}") from error


def open_tensors(
    folder: str | os.PathLike[str], *, auto_class: str = "AutoModelForCausalLM"
) -> dict[str, Tensor]:
    """Opens the weights of a Hugging Face model folder, without reading any data."""
    folder = pathlib.Path(folder)
    # Files are in the folder, or links in it, as in the cache of `huggingface_hub`.
    entries = {path.name for path in folder.iterdir()}
    if _INDEX not in entries:
        if _SINGLE not in entries:
            raise CheckpointError(no_safetensors(folder, entries, auto_class))
        return read_tensors(folder / _SINGLE)
    weight_map = _read_index(folder / _INDEX)
    files = set(weight_map.values())
    # Some programs write an index even for a single file.
    if _SINGLE in entries - files:
        raise CheckpointError(
            f"{folder} must have one set of weights, got {_SINGLE} and {_INDEX}, which "
            "does not name it; remove one of the two"
        )
    if missing := sorted(files - entries):
        raise CheckpointError(
            f"{folder} must have the {len(files):,} files that {_INDEX} names, but "
            f"{some(missing)} {'is' if len(missing) == 1 else 'are'} missing; download them, too"
        )
    shards = {file: read_tensors(folder / file) for file in sorted(files)}
    for name, file in weight_map.items():
        if name not in shards[file]:
            raise damaged_download(
                folder / _INDEX, f"{file} must have tensor {shown(name)}, which it names"
            )
    return {name: shards[file][name] for name, file in weight_map.items()}


def _read_index(path: pathlib.Path) -> dict[str, str]:
    """File names by tensor name."""
    weight_map = read_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        rule = "weight_map must contain file names"
        raise damaged_download(path, f"{rule}, got {shown(weight_map)}")
    for name, file in weight_map.items():
        if not isinstance(file, str) or not _PLAIN_NAME.fullmatch(file):
            rule = "weight_map must name .safetensors files in the same folder"
            raise damaged_download(path, f"{rule}, got {shown(file)} for tensor {shown(name)}")
    return weight_map


def no_safetensors(folder: pathlib.Path, entries: Collection[str], auto_class: str) -> str:
    """Message for a folder without safetensors weights: what it has, and what to do."""

    def command(*options: str) -> str:
        # JSON strings are Python strings; their double quotes fit inside the shell's single ones.
        source, target = (json.dumps(f"{folder}{end}") for end in ("", "-safetensors"))
        return "python -c " + shlex.quote(
            f"from transformers import {auto_class} as M; "
            f"M.from_pretrained({', '.join([source, *options])}).save_pretrained({target})"
        )

    start = f"{folder} must have safetensors files, got"
    options = {
        "pytorch_model.bin": (), "pytorch_model.bin.index.json": (),
        "flax_model.msgpack": ("from_flax=True",), "tf_model.h5": ("from_tf=True",),
    }  # fmt: skip
    if name := next((name for name in options if name in entries), None):
        remedy = "convert it with transformers 4:" if options[name] else f"{_UNSAFE}convert it:"
        return f"{start} {name}; {remedy} {command(*options[name])}"
    if pickles := sorted(name for name in entries if _PICKLES.fullmatch(name)):
        return (
            f"{start} {some(pickles)}; {_UNSAFE}load the weights with the program that wrote it, "
            "and save them as model.safetensors with safetensors.torch.save_file"
        )
    start = f"{folder} must have {_SINGLE} or {_INDEX}, got"
    if "adapter_model.safetensors" in entries:
        return f"{start} the weights of an adapter alone; download adapter_config.json, too"
    if renamed := sorted(name for name in entries if name.endswith(".safetensors")):
        return f"{start} {some(renamed)}; rename the file of the whole model to {_SINGLE}"
    if ggufs := sorted(name for name in entries if name.endswith(".gguf")):
        return f"{start} {some(ggufs)}, for llama.cpp; download the model's original files"
    download = f"hf download OWNER/MODEL --local-dir {shlex.quote(str(folder))}"
    return f"{start} no weights; download the model into it: {download}"


def write_tensors(
    folder: pathlib.Path,
    tensors: Mapping[str, LazyTensor],
    *,
    max_shard_bytes: int = 5_000_000_000,
) -> None:
    """Writes `model.safetensors`, or shards in the order of the tensors and then their index."""
    if type(max_shard_bytes) is not int or max_shard_bytes < 1:
        raise ConfigError(f"max_shard_bytes must be a positive integer, got {max_shard_bytes!r}")
    shards: list[dict[str, LazyTensor]] = [{}]
    used = 0
    for name, tensor in tensors.items():
        if shards[-1] and used + tensor.nbytes > max_shard_bytes:
            shards.append({})
            used = 0
        shards[-1][name] = tensor
        used += tensor.nbytes
    count = len(shards)
    names = [f"model-{at:05d}-of-{count:05d}.safetensors" for at in range(1, count + 1)]
    files = dict(zip(names if count > 1 else [_SINGLE], shards, strict=True))
    for file, shard in files.items():
        write_tensor_file(folder / file, shard, {"format": "pt"})  # as transformers requires
    if count > 1:
        weight_map = {name: file for file, shard in files.items() for name in shard}
        total = sum(tensor.nbytes for tensor in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        text = json.dumps(index, indent=2, sort_keys=True, ensure_ascii=False)
        write_whole(folder / _INDEX, text + "\n")


def require_no_weights(folder: pathlib.Path) -> None:
    """Raises StorageError if a folder already has weights."""
    paths = folder.iterdir() if folder.exists() else ()  # a bucket has no empty folders
    weights = sorted(path.name for path in paths if _WEIGHTS.fullmatch(path.name))
    if weights:
        raise StorageError(
            f"{folder} must not contain weights, got {weights[0]}; remove them, or write to "
            "another folder"
        )
