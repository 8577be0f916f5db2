"""Headers of safetensors files: strict reading, and writing.

Does not use the `safetensors` package, for two reasons: an untrusted header is checked completely
before memory is allocated for it (of duplicate keys, the package takes the last), and files can be
written tensor by tensor, so that memory never holds the whole file twice.

References:
    Hugging Face, "Safetensors: format",
    https://huggingface.co/docs/safetensors/index#format
"""

import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from jaxformer.errors import CheckpointError, ShapeError
from jaxformer.storage import open_regular, parse_object, shown

__all__ = ["Header", "TensorEntry", "little_endian", "make_header", "read_header"]

_MAX_HEADER = 100_000_000  # bytes, as in the reference implementation
_MAX_AXES = 64  # of a NumPy array
_METADATA = "__metadata__"
_LFS_POINTER = b"version https://git-lfs"

# In reverse of the order in which the reference implementation writes them. Dtypes of 4 and 6 bits
# are missing: NumPy has no arrays of fractions of bytes.
_DTYPES: dict[str, np.dtype[Any]] = {
    code: np.dtype(dtype)
    for code, dtype in {
        "BOOL": np.bool_,
        "U8": np.uint8,
        "I8": np.int8,
        "F8_E5M2": ml_dtypes.float8_e5m2,
        "F8_E4M3": ml_dtypes.float8_e4m3fn,
        "F8_E8M0": ml_dtypes.float8_e8m0fnu,
        "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
        "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
        "I16": "<i2",
        "U16": "<u2",
        "F16": "<f2",
        "BF16": ml_dtypes.bfloat16,
        "I32": "<i4",
        "U32": "<u4",
        "F32": "<f4",
        "C64": "<c8",
        "F64": "<f8",
        "I64": "<i8",
        "U64": "<u8",
    }.items()
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_RANKS = {dtype: rank for rank, dtype in enumerate(_CODES)}


class TensorEntry(NamedTuple):
    """Dtype (little-endian) and shape of a tensor, and the range of its bytes in the file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(NamedTuple):
    """Entries by tensor name, in the order of the data; texts by name; size of the file."""

    entries: dict[str, TensorEntry]
    metadata: dict[str, str]
    size: int


def read_header(path: str | os.PathLike[str], file: BinaryIO | None = None) -> Header:
    """Reads and checks the header of a safetensors file; without `file`, it is opened here.

    The tensors must fill the file up to its end, without gaps or overlaps. NumPy supports the
    shapes of the result.

    Raises:
        CheckpointError: the file cannot be read, is damaged, or has a dtype that NumPy lacks.
    """
    path = pathlib.Path(path)
    try:
        if file is not None:
            return _read(path, file)
        with open_regular(path) as opened:
            return _read(path, opened)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(f"{path} cannot be read: {reason}; fix that, and try again") from None


def make_header(
    tensors: Mapping[str, tuple[npt.DTypeLike, Sequence[int]]],
    metadata: Mapping[str, str] | None = None,
) -> tuple[bytes, list[str]]:
    """Makes the start of a safetensors file, and the order of its tensors' data.

    Like the reference implementation, it orders tensors by dtype, widest first, then by name, and
    pads the header with spaces, so that all tensors are aligned.

    Args:
        tensors: dtype and shape by name.
        metadata: texts by name.

    Raises:
        CheckpointError: a name or the metadata cannot be written.
        ShapeError: the format does not support a dtype.

    Example:
        >>> start, names = make_header({"a": (np.int8, ()), "b": (np.float32, (2, 3))})
        >>> names, len(start) % 8
        (['b', 'a'], 0)
        >>> start[8:60]
        b'{"b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,'
    """
    for name in tensors:
        if not isinstance(name, str) or name in ("", _METADATA):
            raise CheckpointError(
                f"the name of a tensor must be a string, neither empty nor {_METADATA!r}, got "
                f"{shown(name)}; rename it"
            )
    dtypes = {name: little_endian(name, dtype) for name, (dtype, _) in tensors.items()}
    names = sorted(tensors, key=lambda name: (-_RANKS[dtypes[name]], name))
    values: dict[str, Any] = {}
    if metadata is not None:
        if not _is_texts(metadata):
            raise CheckpointError(f"metadata must map names to texts, got {shown(dict(metadata))}")
        values[_METADATA] = dict(metadata)
    end = 0
    for name in names:
        shape = [int(size) for size in tensors[name][1]]
        begin, end = end, end + math.prod(shape) * dtypes[name].itemsize
        values[name] = {
            "dtype": _CODES[dtypes[name]], "shape": shape, "data_offsets": [begin, end]
        }  # fmt: skip
    try:
        text = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(
            f"tensor names and metadata must be UTF-8 ({error}); change them"
        ) from None
    text += b" " * (-len(text) % 8)
    if len(text) > _MAX_HEADER:
        raise CheckpointError(
            f"the header of a file must have at most {_MAX_HEADER:,} bytes, got {len(text):,} for "
            f"{len(names):,} tensors; write several files"
        )
    return len(text).to_bytes(8, "little") + text, names


def little_endian(name: str, dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Dtype of a tensor in a file; ShapeError if the format does not support it."""
    found = np.dtype(dtype).newbyteorder("<")
    if found not in _CODES:
        raise ShapeError(
            f"the dtype of tensor {shown(name)} must be one of {', '.join(map(str, _CODES))}, got "
            f"{np.dtype(dtype)}; convert it"
        )
    return found


def _read(path: pathlib.Path, file: BinaryIO) -> Header:
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    if len(start) < 8:
        raise _damaged(path, f"a file must have at least 8 bytes, got {len(start)}")
    length = int.from_bytes(start, "little")
    if not 2 <= length <= min(_MAX_HEADER, size - 8):
        if (start + file.read(len(_LFS_POINTER) - 8)) == _LFS_POINTER:
            raise CheckpointError(
                f"{path} is a Git LFS pointer, not the file itself; run git lfs pull"
            )
        raise _damaged(
            path,
            f"its header must have 2 to {_MAX_HEADER:,} bytes and fit in the file, got {length:,} "
            f"bytes in a file of {size:,}",
        )
    data = file.read(length)
    if len(data) < length:
        raise _damaged(path, "it became shorter while it was read")
    try:
        values = parse_object(data)
    except ValueError as error:
        raise _damaged(path, f"its header is not valid JSON: {error}") from None
    metadata = values.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not _is_texts(metadata):
        raise _damaged(path, f"{_METADATA} must map names to texts, got {shown(metadata)}")
    entries = [(name, _entry(path, name, value, 8 + length)) for name, value in values.items()]
    entries.sort(key=lambda item: (item[1].begin, item[1].end))
    _check_layout(path, entries, 8 + length, size)
    return Header(dict(entries), metadata, size)


def _entry(path: pathlib.Path, name: str, value: Any, start: int) -> TensorEntry:
    """Checked entry of a tensor; `_check_layout` compares it with the file."""

    def wrong(rule: str, got: object) -> CheckpointError:
        return _damaged(path, f"{rule} of tensor {shown(name)}, got {shown(got)}")

    if not name:
        raise _damaged(path, "it has a tensor without a name")
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise wrong("dtype, shape and data_offsets must be the only keys", value)
    code, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(code, str) or code not in _DTYPES:
        raise CheckpointError(
            f"{path}: the dtype of tensor {shown(name)} must be one of {', '.join(_DTYPES)}, got "
            f"{shown(code)}; convert the tensor, or download the file again"
        )
    dtype = _DTYPES[code]
    if not isinstance(shape, list) or not all(map(_is_size, shape)) or len(shape) > _MAX_AXES:
        raise wrong(f"the shape must be at most {_MAX_AXES} sizes of 63 bits", shape)
    # NumPy checks this even for empty arrays: the other axes may not be arbitrarily large.
    if math.prod(size for size in shape if size) * dtype.itemsize >= 2**63:
        raise wrong("fewer than 2**63 bytes must be needed for the shape", shape)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise wrong("data_offsets must be 2 sizes of 63 bits", offsets)
    begin, end = offsets
    if end - begin != math.prod(shape) * dtype.itemsize:
        rule = f"data_offsets must match dtype {code} and shape {shown(shape)}"
        raise wrong(rule, offsets)
    return TensorEntry(dtype, tuple(shape), start + begin, start + end)


def _check_layout(
    path: pathlib.Path, entries: list[tuple[str, TensorEntry]], start: int, size: int
) -> None:
    """Checks that the sorted tensors fill the file from byte `start` on."""
    end, last = start, "the header"
    for name, entry in entries:
        if entry.begin != end:
            what = "overlap" if entry.begin < end else "have a gap between them"
            raise _damaged(path, f"{last} and tensor {shown(name)} {what}, at byte {entry.begin:,}")
        end, last = entry.end, f"tensor {shown(name)}"
    if end != size:
        raise _damaged(path, f"its tensors must fill it, got {end:,} of {size:,} bytes")


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63  # not bool, which is an int


def _is_texts(values: Mapping[Any, Any]) -> bool:
    return all(isinstance(text, str) for item in values.items() for text in item)


def _damaged(path: pathlib.Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {reason}; download the file again")
