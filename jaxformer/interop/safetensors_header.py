"""Headers of safetensors files: read with every check that the format allows, and made.

The files are read without the `safetensors` package. A header of a stranger is checked as a whole
before anything is allocated for it, which the package does not do for equal keys, of which it takes
the last; and a file is written tensor by tensor, so that memory never holds all of it twice.

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
from jaxformer.interop.strict_json import parse_object, shown
from jaxformer.storage import open_regular

__all__ = ["Header", "TensorEntry", "little_endian", "make_header", "read_header"]

_MAX_HEADER = 100_000_000  # bytes, as in the reference implementation
_MAX_AXES = 64  # of a NumPy array
_METADATA = "__metadata__"
_LFS_POINTER = b"version https://git-lfs"

# In the order in which the reference implementation writes them, from the last to the first. Those
# of 4 and 6 bits are missing: NumPy has no arrays of parts of bytes.
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
    """What a header says of one tensor.

    Args:
        dtype: of its numbers, little-endian.
        shape: of the tensor.
        begin: byte of the file where its data begins.
        end: byte of the file behind its data.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(NamedTuple):
    """Header of a file.

    Args:
        entries: of each tensor, by name, in the order of their data.
        metadata: texts by name, such as {"format": "pt"}.
        size: bytes of the file.
    """

    entries: dict[str, TensorEntry]
    metadata: dict[str, str]
    size: int


def read_header(path: str | os.PathLike[str], file: BinaryIO | None = None) -> Header:
    """Reads and checks the header of a safetensors file.

    The tensors must fill the file without a gap, without an overlap and up to its end.

    Args:
        path: of the file; links are followed.
        file: the same, opened to read from its start; opened and closed here without it.

    Returns:
        The header. No number in it leads out of the file, or to an array that NumPy cannot have.

    Raises:
        CheckpointError: the file cannot be read, is damaged, or has a dtype that NumPy has not.

    Example:
        >>> import tempfile
        >>> start, _ = make_header({"scale": (np.float32, (2,))}, {"format": "pt"})
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
        >>> path.write_bytes(start + np.array([1, 2], "<f4").tobytes())
        112
        >>> header = read_header(path)
        >>> header.entries
        {'scale': TensorEntry(dtype=dtype('float32'), shape=(2,), begin=104, end=112)}
        >>> header.metadata
        {'format': 'pt'}
    """
    path = pathlib.Path(path)
    try:
        if file is not None:
            return _read(path, file)
        with open_regular(path) as opened:
            return _read(path, opened)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(
            f"{path} cannot be read: {reason}; mend that, and try again"
        ) from None


def make_header(
    tensors: Mapping[str, tuple[npt.DTypeLike, Sequence[int]]],
    metadata: Mapping[str, str] | None = None,
) -> tuple[bytes, list[str]]:
    """Makes what a safetensors file begins with.

    Tensors are ordered as by the reference implementation, by dtype, wide ones first, and then by
    name, and the header is padded with spaces, so that each begins at a multiple of the size of its
    numbers.

    Args:
        tensors: dtype and shape by name.
        metadata: texts by name.

    Returns:
        The bytes before the data, and the names in the order in which their data follows.

    Raises:
        CheckpointError: a name or the metadata cannot be written.
        ShapeError: the format has no such dtype.

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
                f"the name of a tensor must be a text that is not empty or {_METADATA!r}, got "
                f"{shown(name)}; give it another"
            )
    dtypes = {name: little_endian(name, dtype) for name, (dtype, _) in tensors.items()}
    names = sorted(tensors, key=lambda name: (-_RANKS[dtypes[name]], name))
    values: dict[str, Any] = {}
    if metadata is not None:
        if not _is_texts(metadata):
            raise CheckpointError(f"metadata must be texts by name, got {shown(dict(metadata))}")
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
            f"names of tensors and metadata must be UTF-8 ({error}); change them"
        ) from None
    text += b" " * (-len(text) % 8)
    if len(text) > _MAX_HEADER:
        raise CheckpointError(
            f"the header of a file must have at most {_MAX_HEADER:,} bytes, got {len(text):,} for "
            f"{len(names):,} tensors; write them to several files"
        )
    return len(text).to_bytes(8, "little") + text, names


def little_endian(name: str, dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype that a tensor has in a file; ShapeError where the format has none."""
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
                f"{path} stands for a file of Git LFS; fetch it with git lfs pull"
            )
        raise _damaged(
            path,
            f"its header must have 2 to {_MAX_HEADER:,} bytes and lie in the file, got {length:,} "
            f"bytes in a file of {size:,}",
        )
    data = file.read(length)
    if len(data) < length:
        raise _damaged(path, "it has become shorter while it was read")
    try:
        values = parse_object(data)
    except ValueError as error:
        raise _damaged(path, f"its header is no JSON that is allowed: {error}") from None
    metadata = values.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not _is_texts(metadata):
        raise _damaged(path, f"{_METADATA} must be texts by name, got {shown(metadata)}")
    entries = [(name, _entry(path, name, value, 8 + length)) for name, value in values.items()]
    entries.sort(key=lambda item: (item[1].begin, item[1].end))
    _check_layout(path, entries, 8 + length, size)
    return Header(dict(entries), metadata, size)


def _entry(path: pathlib.Path, name: str, value: Any, start: int) -> TensorEntry:
    """Entry of a tensor, whose numbers are possible; whether they fit the file is checked later."""

    def wrong(rule: str, got: object) -> CheckpointError:
        return _damaged(path, f"{rule} of tensor {shown(name)}, got {shown(got)}")

    if not name:
        raise _damaged(path, "it has a tensor without a name")
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise wrong("there must be dtype, shape and data_offsets, and no more,", value)
    code, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(code, str) or code not in _DTYPES:
        raise CheckpointError(
            f"{path}: the dtype of tensor {shown(name)} must be one of {', '.join(_DTYPES)}, got "
            f"{shown(code)}; convert the tensor, or download the file again"
        )
    dtype = _DTYPES[code]
    if not isinstance(shape, list) or not all(map(_is_size, shape)) or len(shape) > _MAX_AXES:
        raise wrong(f"the shape must be at most {_MAX_AXES} sizes of 63 bits", shape)
    # What NumPy checks: an array without numbers may not have other axes of any size.
    if math.prod(size for size in shape if size) * dtype.itemsize >= 2**63:
        raise wrong("the bytes must be fewer than 2**63 for the shape", shape)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise wrong("data_offsets must be 2 sizes of 63 bits", offsets)
    begin, end = offsets
    if end - begin != math.prod(shape) * dtype.itemsize:
        rule = f"data_offsets must be as far apart as {code} and shape {shown(shape)} say, those"
        raise wrong(rule, offsets)
    return TensorEntry(dtype, tuple(shape), start + begin, start + end)


def _check_layout(
    path: pathlib.Path, entries: list[tuple[str, TensorEntry]], start: int, size: int
) -> None:
    """Checks that tensors, sorted, fill the file from a byte on."""
    end, last = start, "the header"
    for name, entry in entries:
        if entry.begin != end:
            what = "overlap" if entry.begin < end else "have a gap between them"
            raise _damaged(path, f"{last} and tensor {shown(name)} {what}, at byte {entry.begin:,}")
        end, last = entry.end, f"tensor {shown(name)}"
    if end != size:
        raise _damaged(path, f"its tensors must end where it does, got {end:,} of {size:,} bytes")


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63  # not bool, which is an int


def _is_texts(values: Mapping[Any, Any]) -> bool:
    return all(isinstance(text, str) for item in values.items() for text in item)


def _damaged(path: pathlib.Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {reason}; download the file again")
