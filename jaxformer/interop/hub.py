"""Models at the Hugging Face Hub: download and upload."""

import functools
import os
import pathlib
import re
import sys

import huggingface_hub

from jaxformer.errors import CheckpointError, first_line
from jaxformer.storage import as_path, lexists

_ID = re.compile(r"[\w.-]+/[\w.-]+")
# Usual names of folders in a project; nobody who types one means an owner at the Hub.
_LOCAL = frozenset({"checkpoints", "configs", "data", "downloads", "models", "outputs", "runs"})
# The files that a model needs; no code, and no weights in other formats.
FILES = ("*.json", "*.safetensors", "*.model", "*.spm", "*.txt", "*.jinja")


def is_model_id(path: str | os.PathLike[str]) -> bool:
    """Whether a path that does not exist can be a model id, such as openai-community/gpt2."""
    folder = as_path(path)
    if not _ID.fullmatch(str(folder)):
        return False
    # Not if its first part is an existing folder or the usual name of one, such as runs.
    return not folder.parent.is_dir() and folder.parent.name not in _LOCAL


def local_folder(path: str | os.PathLike[str]) -> pathlib.Path:
    """Folder of a model: the path itself, or the download of the model OWNER/MODEL."""
    folder, name = as_path(path), str(path)
    if lexists(folder):
        return folder
    if not is_model_id(name):
        raise CheckpointError(
            f"{name} must be the folder of a model, or an id such as openai-community/gpt2; there "
            "is no such folder"
        )
    return _download(name)


@functools.cache  # a command announces a model once, and reads one version of it
def _download(name: str) -> pathlib.Path:
    print(f"downloading {name} from the Hugging Face Hub", file=sys.stderr, flush=True)
    try:
        return pathlib.Path(huggingface_hub.snapshot_download(name, allow_patterns=list(FILES)))
    except Exception as error:  # the network, the Hub or the disk may fail in any way
        raise CheckpointError(
            f"there is no folder {name}, and the model with that id cannot be downloaded: "
            f"{first_line(error)}; check the name and the network connection"
        ) from error


def upload(folder: pathlib.Path, name: str) -> str:
    """Uploads a folder as the model OWNER/MODEL, which is made if it is missing; returns the URL.

    Raises CheckpointError, with the reason and a command that tries again, if that fails.
    """
    api = huggingface_hub.HfApi()
    try:
        api.create_repo(name, exist_ok=True)
        return str(api.upload_folder(repo_id=name, folder_path=folder))
    except Exception as error:  # the network, the Hub or the login may fail in any way
        raise CheckpointError(
            f"{folder} was written, but cannot be uploaded to {name}: {first_line(error)}; log in "
            f"with: hf auth login, and try again with: hf upload {name} {folder}"
        ) from error
