"""Reading of safetensors files, memory-mapped: single files, and the weights of a folder."""

import mmap
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxformer.config.checks import suggestion
from jaxformer.errors import CheckpointError
from jaxformer.interop.safetensors.header import Header, TensorEntry, read_header
from jaxformer.interop.safetensors.other_formats import download_command, no_safetensors
from jaxformer.storage import open_regular, parse_object, read_regular, shown, some

__all__ = ["INDEX", "SINGLE", "TensorFiles", "open_tensors"]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_MAX_INDEX = 100_000_000  # bytes, as for a header
_PLAIN_NAME = re.compile(r"[\w.+=@ -]+\.safetensors")  # no subfolder, no line break


class TensorFiles:
    """Tensors of safetensors files; headers are checked on opening, data is read on request.

    Open files may be replaced, but not truncated or overwritten: reading past the end of a mapped
    file kills the process. On a CPU, JAX uses the mapped bytes without a copy if it can.

    Raises:
        CheckpointError: a file cannot be read or is damaged, or two files have the same tensor; and
            from every method, if there is no such tensor.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self._places: dict[str, tuple[pathlib.Path, TensorEntry, mmap.mmap]] = {}
        metadata: list[dict[str, str]] = []
        for path in map(pathlib.Path, paths):
            header, data = _map(path)
            for name, entry in header.entries.items():
                if name in self._places:
                    raise CheckpointError(
                        f"a tensor must be in one file, got {shown(name)} in {path} and in "
                        f"{self._places[name][0]}; download the files again"
                    )
                self._places[name] = path, entry, data
            metadata.append(header.metadata)
        self._metadata = {
            key: text
            for key, text in (metadata[0] if metadata else {}).items()
            if all(other.get(key) == text for other in metadata)
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tensors, file by file, in the order of their data."""
        return tuple(self._places)

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata that all files share, such as {"format": "pt"}."""
        return dict(self._metadata)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def path(self, name: str) -> pathlib.Path:
        """Path of a tensor's file."""
        return self._place(name)[0]

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self._place(name)[1].shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """Dtype of a tensor."""
        return self._place(name)[1].dtype

    def read(self, name: str) -> np.ndarray:
        """A tensor as a read-only view of its file, which loads only the pages that are used.

        The file stays mapped as long as the array exists. If its header was not padded, the view
        is not aligned; NumPy and JAX support that. A boolean that is neither 0 nor 1 is an error.
        """
        path, entry, data = self._place(name)
        array: np.ndarray = np.ndarray(entry.shape, entry.dtype, data, entry.begin)
        # Operations disagree on whether other bytes are true.
        if entry.dtype == np.bool_ and (array.view(np.uint8) > 1).any():
            raise CheckpointError(
                f"{path} is damaged: tensor {shown(name)} of BOOL must have bytes 0 and 1 only; "
                "download the file again"
            )
        return array

    def release(self, name: str) -> None:
        """Frees the mapped pages of a tensor, which count as process memory; they can be reread."""
        _, entry, data = self._place(name)
        page = mmap.PAGESIZE
        start, stop = -(-entry.begin // page) * page, entry.end // page * page
        if start < stop and hasattr(mmap, "MADV_DONTNEED"):
            data.madvise(mmap.MADV_DONTNEED, start, stop - start)

    def _place(self, name: str) -> tuple[pathlib.Path, TensorEntry, mmap.mmap]:
        if name not in self._places:
            files = {str(path) for path, _, _ in self._places.values()}
            raise CheckpointError(
                f"{some(sorted(files))} must have tensor {shown(name)}, but does not"
                f"{suggestion(name, self._places)}"
            )
        return self._places[name]


def _map(path: pathlib.Path) -> tuple[Header, mmap.mmap]:
    """Header and bytes of a file, from one open file: the path may change meanwhile."""
    try:
        with open_regular(path) as file:
            header = read_header(path, file)
            return header, mmap.mmap(file.fileno(), header.size, access=mmap.ACCESS_READ)
    except CheckpointError:
        raise
    except (OSError, ValueError) as error:  # ValueError: it became shorter
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{path} cannot be read: {reason}; fix that, and try again") from None


def open_tensors(
    folder: str | os.PathLike[str], *, auto_class: str = "AutoModelForCausalLM"
) -> TensorFiles:
    """Opens the weights of a Hugging Face model folder, without reading any data.

    They are in `model.safetensors`, or in the files that `model.safetensors.index.json` names.
    These are in the same folder, or links in it, as in the cache of `huggingface_hub`. For weights
    in another format, the error shows a command that converts them, with `auto_class`.

    Raises:
        CheckpointError: the folder or a file is missing or damaged, the index does not match the
            files, or the weights have another format.
    """
    folder = pathlib.Path(folder)
    try:
        entries = set(os.listdir(folder))
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder} must be the folder of a model, but does not exist; check the path, or "
            f"download a model: {download_command(folder)}"
        ) from None
    except NotADirectoryError:
        raise CheckpointError(
            f"{folder} must be the folder of a model, got a file; pass the folder that contains it"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {error.strerror}; fix that") from None
    if INDEX not in entries:
        if SINGLE not in entries:
            raise CheckpointError(no_safetensors(folder, entries, auto_class))
        return TensorFiles([folder / SINGLE])
    weight_map = _read_index(folder / INDEX)
    files = sorted(set(weight_map.values()))
    # Some programs write an index even for a single file.
    if SINGLE in entries and SINGLE not in files:
        raise CheckpointError(
            f"{folder} must have one set of weights, got {SINGLE} and {INDEX}, which "
            "does not name it; remove one of the two"
        )
    missing = [name for name in files if not os.path.exists(folder / name)]
    if missing:
        raise CheckpointError(
            f"{folder} must have the {len(files):,} files that {INDEX} names, but "
            f"{some(missing)} {'is' if len(missing) == 1 else 'are'} missing; download them, too"
        )
    tensors = TensorFiles([folder / name for name in files])
    _check_index(folder / INDEX, weight_map, tensors)
    return tensors


def _read_index(path: pathlib.Path) -> dict[str, str]:
    """File names by tensor name."""
    try:
        weight_map = parse_object(read_regular(path, limit=_MAX_INDEX)).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ValueError(f"weight_map must contain file names, got {shown(weight_map)}")
        for name, file_name in weight_map.items():
            if not isinstance(file_name, str) or not _PLAIN_NAME.fullmatch(file_name):
                raise ValueError(
                    f"weight_map must name .safetensors files in the same folder, got "
                    f"{shown(file_name)} for tensor {shown(name)}"
                )
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}; fix that") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}; download it again") from None
    return weight_map


def _check_index(path: pathlib.Path, weight_map: dict[str, str], tensors: TensorFiles) -> None:
    """Checks that an index names every tensor and its file."""
    for name, file_name in weight_map.items():
        if name not in tensors:
            reason = f"{file_name} must have tensor {shown(name)}, but no file has it"
        elif tensors.path(name).name != file_name:
            reason = f"{file_name} must have tensor {shown(name)}; {tensors.path(name).name} has it"
        else:
            continue
        raise CheckpointError(
            f"{path} does not match its files: {reason}; download all of them again"
        )
    for name in tensors.names:
        if name not in weight_map:
            raise CheckpointError(
                f"{path} does not match its files: it must name tensor {shown(name)} of "
                f"{tensors.path(name).name}; download all of them again"
            )
