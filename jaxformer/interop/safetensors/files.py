"""One safetensors file: its header is checked strictly, its data is read or written by tensor.

Unlike the `safetensors` package, this checks an untrusted header completely before it allocates
memory for it (of duplicate keys, the package takes the last), and writes files tensor by tensor.

Reference: Hugging Face, "Safetensors: format", https://huggingface.co/docs/safetensors/index#format
"""

import json
import math
import mmap
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from jaxformer.errors import CheckpointError, ShapeError
from jaxformer.storage import (
    damaged_download,
    on_disk,
    open_regular,
    parse_object,
    shown,
    write_whole,
)

_MAX_HEADER = 100_000_000  # bytes, as in the reference implementation
_MAX_AXES = 64  # of a NumPy array
_METADATA = "__metadata__"
_LFS_POINTER = b"version https://git-lfs"
_PART = 2**24  # bytes written at a time

# In reverse of the order in which the reference implementation writes them. Dtypes of 4 and 6 bits
# are missing: NumPy has no arrays of fractions of bytes.
_DTYPES: dict[str, np.dtype[Any]] = {
    code: np.dtype(dtype)
    for code, dtype in {
        "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "F8_E5M2": ml_dtypes.float8_e5m2,
        "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E8M0": ml_dtypes.float8_e8m0fnu,
        "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
        "I16": "<i2", "U16": "<u2", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "I32": "<i4",
        "U32": "<u4", "F32": "<f4", "C64": "<c8", "F64": "<f8", "I64": "<i8", "U64": "<u8",
    }.items()
}  # fmt: skip
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class Tensor(NamedTuple):
    """A tensor of a memory-mapped file; `begin` and `end` are offsets of its bytes.

    Open files may be replaced, but not truncated or overwritten: reading past the end of a mapped
    file kills the process. On a CPU, JAX uses the mapped bytes without a copy if it can.
    """

    path: pathlib.Path
    data: mmap.mmap
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self) -> np.ndarray:
        """Read-only view of the file, which loads only the pages that are used.

        The file stays mapped as long as the array exists. If its header was not padded, the view
        is not aligned; NumPy and JAX support that. A boolean that is neither 0 nor 1 is an error.
        """
        array: np.ndarray = np.ndarray(self.shape, self.dtype, self.data, self.begin)
        # Operations disagree on whether other bytes are true.
        if self.dtype == np.bool_ and (array.view(np.uint8) > 1).any():
            raise damaged_download(self.path, "tensors of BOOL must have bytes 0 and 1 only")
        return array

    def release(self) -> None:
        """Frees the mapped pages, which count as process memory; they can be read again."""
        page = mmap.PAGESIZE
        start, stop = -(-self.begin // page) * page, self.end // page * page
        if start < stop:
            self.data.madvise(mmap.MADV_DONTNEED, start, stop - start)


def read_tensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Tensors of a file by name, in the order of their data; CheckpointError if it is damaged."""
    path = on_disk(path)
    try:
        with open_regular(path) as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"{path} cannot be read: {reason}; fix that, and try again") from None
    except ValueError:
        raise damaged_download(path, "it is empty") from None
    if data[: len(_LFS_POINTER)] == _LFS_POINTER:
        raise CheckpointError(f"{path} is a Git LFS pointer, not the file itself; run git lfs pull")
    length = int.from_bytes(data[:8], "little")
    if not 2 <= length <= min(_MAX_HEADER, len(data) - 8):
        rule = f"its header must have 2 to {_MAX_HEADER:,} bytes and fit in the file"
        raise damaged_download(path, f"{rule}, got {length:,} bytes in a file of {len(data):,}")
    start = 8 + length
    try:
        values = parse_object(data[8:start])
    except ValueError as error:
        raise damaged_download(path, f"its header is not valid JSON: {error}") from None
    metadata = values.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(t, str) for t in metadata.values()):
        raise damaged_download(path, f"{_METADATA} must map names to texts, got {shown(metadata)}")
    entries = {name: _entry(path, name, value) for name, value in values.items()}
    tensors, end = {}, start
    for name, (dtype, shape, offsets) in sorted(entries.items(), key=lambda item: item[1][2]):
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        if offsets != (expected := [begin - start, end - start]):
            rule = (
                f"data_offsets of tensor {shown(name)} must be {expected}, without gap or overlap"
            )
            raise damaged_download(path, f"{rule}, got {offsets}")
        tensors[name] = Tensor(path, data, dtype, shape, begin, end)
    if end != len(data):
        raise damaged_download(
            path, f"its tensors must fill it, got {end:,} of {len(data):,} bytes"
        )
    return tensors


def _entry(
    path: pathlib.Path, name: str, value: Any
) -> tuple[np.dtype[Any], tuple[int, ...], list[int]]:
    """Dtype, shape and offsets of a tensor, each checked on its own."""

    def require(holds: bool, rule: str, got: object) -> None:
        if not holds:
            raise damaged_download(path, f"{rule} of tensor {shown(name)}, got {shown(got)}")

    if not name:
        raise damaged_download(path, "it has a tensor without a name")
    is_complete = isinstance(value, dict) and value.keys() == {"dtype", "shape", "data_offsets"}
    require(is_complete, "dtype, shape and data_offsets must be the only keys", value)
    code, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(code, str) or code not in _DTYPES:
        raise CheckpointError(
            f"{path}: the dtype of tensor {shown(name)} must be one of {', '.join(_DTYPES)}, got "
            f"{shown(code)}; convert the tensor, or download it again"
        )
    dtype = _DTYPES[code]
    is_shape = isinstance(shape, list) and len(shape) <= _MAX_AXES
    is_shape = is_shape and all(type(size) is int and size >= 0 for size in shape)
    require(is_shape, f"the shape must be at most {_MAX_AXES} sizes", shape)
    # NumPy checks this even for empty arrays: the other axes may not be arbitrarily large.
    is_small = math.prod(size for size in shape if size) * dtype.itemsize < 2**63
    require(is_small, "fewer than 2**63 bytes must be needed for the shape", shape)
    is_range = isinstance(offsets, list) and [type(offset) for offset in offsets] == [int, int]
    require(is_range, "data_offsets must be 2 integers", offsets)
    return dtype, tuple(shape), offsets


class LazyTensor(NamedTuple):
    """A tensor that is computed when it is written: `produce` returns it, and is called once."""

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
    """Writes a file atomically, with one tensor at a time in memory; replaces an existing file."""
    start, names = make_header(tensors, metadata)

    def content() -> Iterator[bytes]:
        yield start
        for name in names:
            # A separate generator frees the tensor before the next one is produced.
            yield from _parts(name, tensors[name])

    write_whole(path, content())


def make_header(
    tensors: Mapping[str, LazyTensor | np.ndarray], metadata: Mapping[str, str] | None = None
) -> tuple[bytes, list[str]]:
    """Start of a file, and the names of its tensors in the order of their data."""
    dtypes = {name: _little_endian(tensor.dtype) for name, tensor in tensors.items()}
    for name, dtype in dtypes.items():
        if not isinstance(name, str) or name in ("", _METADATA):
            raise CheckpointError(
                f"the name of a tensor must be a string, neither empty nor {_METADATA!r}, got "
                f"{shown(name)}; rename it"
            )
        if dtype not in _CODES:
            raise ShapeError(
                f"the dtype of tensor {shown(name)} must be one of {', '.join(map(str, _CODES))}, "
                f"got {dtype}; convert it"
            )
    order = list(_CODES)
    # Like the reference implementation: widest dtypes first, and the header padded with spaces, so
    # that all tensors are aligned.
    names = sorted(tensors, key=lambda name: (-order.index(dtypes[name]), name))
    values: dict[str, Any] = {} if metadata is None else {_METADATA: dict(metadata)}
    end = 0
    for name in names:
        begin, end = end, end + tensors[name].nbytes
        code, shape = _CODES[dtypes[name]], tensors[name].shape
        values[name] = {"dtype": code, "shape": shape, "data_offsets": [begin, end]}
    try:
        text = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(f"names of tensors must be UTF-8 ({error}); rename them") from None
    text += b" " * (-len(text) % 8)
    if len(text) > _MAX_HEADER:
        raise CheckpointError(
            f"the header of a file must have at most {_MAX_HEADER:,} bytes, got {len(text):,} for "
            f"{len(names):,} tensors; write several files"
        )
    return len(text).to_bytes(8, "little") + text, names


def _little_endian(dtype: npt.DTypeLike) -> np.dtype[Any]:
    return np.dtype(dtype).newbyteorder("<")


def _parts(name: str, tensor: LazyTensor) -> Iterator[bytes]:
    """Bytes of a tensor, little-endian and in C order."""
    array = np.asarray(tensor.produce())
    dtype = _little_endian(tensor.dtype)
    if array.shape != tuple(tensor.shape) or _little_endian(array.dtype) != dtype:
        raise ShapeError(
            f"tensor {shown(name)} must have the shape {tuple(tensor.shape)} and dtype {dtype} of "
            f"its `LazyTensor`, got {array.shape} and {array.dtype}; declare these"
        )
    flat: np.ndarray = np.ascontiguousarray(array).reshape(-1)
    step = _PART // dtype.itemsize
    for begin in range(0, flat.size, step):
        yield flat[begin : begin + step].astype(dtype, copy=False).tobytes()
