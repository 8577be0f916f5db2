"""Opening and writing folders of safetensors weights: one file, or shards with an index."""

import contextlib
import json
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxformer.errors import CheckpointError, ConfigError, ShapeError, StorageError
from jaxformer.interop.safetensors.header import little_endian, make_header
from jaxformer.interop.safetensors.other_weights import download_command, no_safetensors
from jaxformer.interop.safetensors.tensor_files import TensorFiles
from jaxformer.storage import (
    make_folder,
    parse_object,
    read_regular,
    shown,
    some,
    storage_error,
    write_whole,
)

__all__ = [
    "LazyTensor",
    "TensorFiles",
    "open_tensors",
    "require_no_weights",
    "write_tensor_file",
    "write_tensors",
]

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json")
_MAX_INDEX = 100_000_000  # bytes, as for a header
_PLAIN_NAME = re.compile(r"[\w.+=@ -]+\.safetensors")  # no subfolder, no line break
_PART = 2**24  # bytes written at a time


class LazyTensor(NamedTuple):
    """A tensor that is computed when it is written.

    Args:
        shape: shape of the tensor.
        dtype: dtype of the tensor.
        produce: returns the tensor, of that shape and dtype; called once.
    """

    shape: tuple[int, ...]
    dtype: npt.DTypeLike
    produce: Callable[[], npt.ArrayLike]

    @classmethod
    def of(cls, array: npt.ArrayLike) -> "LazyTensor":
        """Wraps an existing array."""
        found = np.asarray(array)
        return cls(found.shape, found.dtype, lambda: found)


def open_tensors(
    folder: str | os.PathLike[str], *, auto_class: str = "AutoModelForCausalLM"
) -> TensorFiles:
    """Opens the weights of a Hugging Face model folder, without reading any data.

    They are in `model.safetensors`, or in the files that `model.safetensors.index.json` names.
    These are in the same folder, or links in it, as in the cache of `huggingface_hub`.

    Args:
        folder: folder of the model.
        auto_class: class of transformers that loads such a model. If the weights have another
            format, the error shows a command that converts them with it.

    Raises:
        CheckpointError: the folder or a file is missing or damaged, the index does not match the
            files, or the weights have another format.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> tensors = {"a": LazyTensor.of(np.zeros(3)), "b": LazyTensor.of(np.ones(2))}
        >>> [path.name for path in write_tensors(folder, tensors, max_shard_bytes=30)]
        ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
        >>> open_tensors(folder).read("b")
        array([1., 1.])
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
    if _INDEX not in entries:
        if _SINGLE not in entries:
            raise CheckpointError(no_safetensors(folder, entries, auto_class))
        return TensorFiles([folder / _SINGLE])
    weight_map = _read_index(folder / _INDEX)
    files = sorted(set(weight_map.values()))
    # Some programs write an index even for a single file.
    if _SINGLE in entries and _SINGLE not in files:
        raise CheckpointError(
            f"{folder} must have one set of weights, got {_SINGLE} and {_INDEX}, which "
            "does not name it; remove one of the two"
        )
    missing = [name for name in files if not os.path.exists(folder / name)]
    if missing:
        raise CheckpointError(
            f"{folder} must have the {len(files):,} files that {_INDEX} names, but "
            f"{some(missing)} {'is' if len(missing) == 1 else 'are'} missing; download them, too"
        )
    tensors = TensorFiles([folder / name for name in files])
    _check_index(folder / _INDEX, weight_map, tensors)
    return tensors


def write_tensors(
    folder: str | os.PathLike[str],
    tensors: Mapping[str, LazyTensor],
    *,
    metadata: Mapping[str, str] | None = None,
    max_shard_bytes: int = 5_000_000_000,
) -> list[pathlib.Path]:
    """Writes tensors into a folder, as `model.safetensors`, or as shards with an index.

    Memory holds one tensor at a time, and a copy of it if it is not contiguous. Each file is
    written completely or not at all, and the index last. If a file cannot be written, the previous
    ones are removed.

    Args:
        folder: folder to write to, without weights; created if missing.
        tensors: tensors by name. Shards are filled in this order; in a file, wide dtypes come
            first.
        metadata: texts for the header of every file. transformers needs {"format": "pt"}.
        max_shard_bytes: maximum size of a file's tensors in bytes; a larger tensor gets its own
            file.

    Returns:
        Paths of the safetensors files.

    Raises:
        CheckpointError: a name or the metadata cannot be written.
        ConfigError: `max_shard_bytes` is not a positive integer.
        ShapeError: the format does not support a dtype, or a produced tensor does not have the
            declared shape and dtype.
        StorageError: the folder already has weights, or a file cannot be written.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> tensors = {"scale": LazyTensor((3,), np.float32, lambda: np.ones(3, np.float32))}
        >>> [path.name for path in write_tensors(folder, tensors, metadata={"format": "pt"})]
        ['model.safetensors']
    """
    folder = pathlib.Path(folder)
    if type(max_shard_bytes) is not int or max_shard_bytes < 1:
        raise ConfigError(f"max_shard_bytes must be a positive integer, got {max_shard_bytes!r}")
    shards = _shards(tensors, max_shard_bytes)
    names = [_SINGLE]
    if len(shards) > 1:
        count = len(shards)
        names = [f"model-{at:05d}-of-{count:05d}.safetensors" for at in range(1, count + 1)]
    headers = [_header(shard, tensors, metadata) for shard in shards]
    make_folder(folder)
    require_no_weights(folder)
    paths = [folder / name for name in names]
    try:
        for path, (start, order) in zip(paths, headers, strict=True):
            write_whole(path, _parts(start, order, tensors))
        if len(shards) > 1:
            weight_map = {
                name: file for file, shard in zip(names, shards, strict=True) for name in shard
            }
            size = sum(_size(name, tensors[name]) for name in tensors)
            index = {"metadata": {"total_size": size}, "weight_map": weight_map}
            write_whole(
                folder / _INDEX,
                json.dumps(index, indent=2, sort_keys=True, ensure_ascii=False) + "\n",
            )
    except BaseException:
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise
    return paths


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


def write_tensor_file(
    path: pathlib.Path,
    tensors: Mapping[str, LazyTensor],
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes tensors into one file, completely or not at all; replaces an existing file.

    Other arguments and errors are those of `write_tensors`.
    """
    write_whole(path, _parts(*_header(list(tensors), tensors, metadata), tensors))


def _shards(tensors: Mapping[str, LazyTensor], max_bytes: int) -> list[list[str]]:
    """Tensor names of each file; without tensors, one empty file."""
    shards: list[list[str]] = [[]]
    used = 0
    for name, tensor in tensors.items():
        size = _size(name, tensor)
        if shards[-1] and used + size > max_bytes:
            shards.append([])
            used = 0
        shards[-1].append(name)
        used += size
    return shards


def _size(name: str, tensor: LazyTensor) -> int:
    return math.prod(tensor.shape) * little_endian(name, tensor.dtype).itemsize


def _header(
    names: Sequence[str], tensors: Mapping[str, LazyTensor], metadata: Mapping[str, str] | None
) -> tuple[bytes, list[str]]:
    return make_header(
        {name: (tensors[name].dtype, tensors[name].shape) for name in names}, metadata
    )


def require_no_weights(folder: pathlib.Path) -> None:
    """Raises StorageError if a folder already has weights."""
    try:
        found = sorted(name for name in os.listdir(folder) if _WEIGHTS.fullmatch(name))
    except OSError as error:
        raise storage_error(folder, error) from None
    if found:
        raise StorageError(
            f"{folder} must not contain weights, got {found[0]}; remove them, or write to another "
            "folder"
        )


def _parts(
    start: bytes, names: Sequence[str], tensors: Mapping[str, LazyTensor]
) -> Iterator[bytes]:
    """Content of a file, part by part."""
    yield start
    for name in names:
        # A separate generator frees the tensor before the next one is produced.
        yield from _data(name, tensors[name])


def _data(name: str, tensor: LazyTensor) -> Iterator[bytes]:
    array = np.asarray(tensor.produce())
    dtype = little_endian(name, tensor.dtype)
    if array.shape != tuple(tensor.shape) or array.dtype.newbyteorder("<") != dtype:
        raise ShapeError(
            f"tensor {shown(name)} must have the shape {tuple(tensor.shape)} and dtype {dtype} of "
            f"its `LazyTensor`, got {array.shape} and {array.dtype}; declare these"
        )
    flat: np.ndarray = np.ascontiguousarray(array).reshape(-1)
    step = _PART // dtype.itemsize
    for begin in range(0, flat.size, step):
        yield flat[begin : begin + step].astype(dtype, copy=False).tobytes()
