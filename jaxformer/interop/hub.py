"""Models by their ids at the Hugging Face Hub, downloaded by huggingface_hub where installed."""

import functools
import os
import pathlib
import re
import sys

from jaxformer.errors import CheckpointError, ConfigError

__all__ = ["is_model_id", "local_folder"]

_ID = re.compile(r"[\w.-]+/[\w.-]+")
# Folders of a project by their usual names: nobody who names one means an owner at the Hub.
_LOCAL = frozenset({"checkpoints", "configs", "data", "downloads", "models", "outputs", "runs"})
# What a model needs; nothing that would be run, and no weights in other formats.
_FILES = ("*.json", "*.safetensors", "*.model", "*.spm", "*.txt", "*.jinja")


def is_model_id(path: str | os.PathLike[str]) -> bool:
    """Tells whether a path that is not there can be the id of a model.

    It cannot where its first part is a folder here, or a usual name of one, such as runs.

    Example:
        >>> is_model_id("openai-community/gpt2"), is_model_id("runs/quickstart/samples")
        (True, False)
    """
    folder = pathlib.Path(path)
    is_free = not folder.parent.is_dir() and folder.parent.name not in _LOCAL
    return bool(_ID.fullmatch(str(folder))) and is_free


def local_folder(path: str | os.PathLike[str]) -> pathlib.Path:
    """Folder of a model: the path itself, or where the model of that id is downloaded to.

    A download is announced on standard error before it starts.

    Args:
        path: of a folder; or an id, OWNER/MODEL, where there is no such path.

    Raises:
        CheckpointError: there is no such folder, and it is no id; or the download fails.
        ConfigError: it is an id, and huggingface_hub is not installed.

    Example:
        >>> local_folder(".")
        PosixPath('.')
    """
    folder = pathlib.Path(path)
    if os.path.lexists(folder):
        return folder
    name = os.fspath(path)
    if not is_model_id(name):
        raise CheckpointError(
            f"{name} must be the folder of a model, or an id such as openai-community/gpt2; there "
            "is no such folder"
        )
    return _download(name)


@functools.cache  # so that a command announces a model once, and reads one version of it
def _download(name: str) -> pathlib.Path:
    try:
        import huggingface_hub
    except ImportError:
        raise ConfigError(
            f"there is no folder {name}; to download the model of that id, pip install "
            f'"jaxformer[hf]", or, elsewhere, hf download {name} --local-dir FOLDER'
        ) from None
    print(f"downloading {name} from the Hugging Face Hub", file=sys.stderr, flush=True)
    try:
        return pathlib.Path(huggingface_hub.snapshot_download(name, allow_patterns=list(_FILES)))
    except Exception as error:  # of the network, the Hub, or the disk
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise CheckpointError(
            f"there is no folder {name}, and the model of that id cannot be downloaded: {reason}; "
            "see that the name is right and the network there"
        ) from None
