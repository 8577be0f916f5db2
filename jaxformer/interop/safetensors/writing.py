"""Writing of safetensors files: one file, or shards with an index."""

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

from jaxformer.errors import ConfigError, ShapeError, StorageError
from jaxformer.interop.safetensors.header import little_endian, make_header
from jaxformer.interop.safetensors.reading import INDEX, SINGLE
from jaxformer.storage import make_folder, shown, storage_error, write_whole

__all__ = ["LazyTensor", "require_no_weights", "write_tensor_file", "write_tensors"]

_WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json")
_PART = 2**24  # bytes written at a time


class LazyTensor(NamedTuple):
    """A tensor that is computed when it is written: `produce` returns it, and is called once."""

    shape: tuple[int, ...]
    dtype: npt.DTypeLike
    produce: Callable[[], npt.ArrayLike]

    @classmethod
    def of(cls, array: npt.ArrayLike) -> "LazyTensor":
        """Wraps an existing array."""
        found = np.asarray(array)
        return cls(found.shape, found.dtype, lambda: found)


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
        >>> from jaxformer.interop.safetensors.reading import open_tensors
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> tensors = {"a": LazyTensor.of(np.zeros(3)), "b": LazyTensor.of(np.ones(2))}
        >>> [path.name for path in write_tensors(folder, tensors, max_shard_bytes=30)]
        ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
        >>> open_tensors(folder).read("b")
        array([1., 1.])
    """
    folder = pathlib.Path(folder)
    if type(max_shard_bytes) is not int or max_shard_bytes < 1:
        raise ConfigError(f"max_shard_bytes must be a positive integer, got {max_shard_bytes!r}")
    shards = _shards(tensors, max_shard_bytes)
    names = [SINGLE]
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
                folder / INDEX,
                json.dumps(index, indent=2, sort_keys=True, ensure_ascii=False) + "\n",
            )
    except BaseException:
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise
    return paths


def write_tensor_file(
    path: pathlib.Path,
    tensors: Mapping[str, LazyTensor],
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes tensors into one file, which may exist; else as `write_tensors`."""
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
