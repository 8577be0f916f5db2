"""Safetensors files made byte by byte, so that they can be wrong."""

import json
import random

import ml_dtypes
import numpy as np

from jaxformer.interop.safetensors import LazyTensor
from jaxformer.interop.safetensors.files import make_header

ARRAYS = {
    "scalar": np.float64(2.5).reshape(()),
    "empty": np.zeros((3, 0, 5), np.float32),
    "bfloat16": np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16),
    "float16": np.arange(7).astype(np.float16) / 2,
    "float32": np.arange(10, dtype=np.float32).reshape(2, 5),
    "float64": np.arange(3) / 3,
    "int64": np.array([-(2**62), 2**62]),
    "int8": np.array([[-128], [127]], np.int8),
    "uint8": np.arange(5, dtype=np.uint8),
    "uint64": np.array([2**64 - 1], np.uint64),
    "bool": np.array([True, False, True]),
    "complex64": np.array([1 + 2j], np.complex64),
    "float8_e4m3fn": np.arange(3).astype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.arange(3).astype(ml_dtypes.float8_e5m2),
    'ಕನ್ನಡ "and"\n😀': np.zeros((), np.int16),
}


def entry(dtype="F32", shape=(2,), offsets=(0, 8), **others):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **others}


def craft(header, data=b"", length=None):
    """Bytes of a file; the header as it is where it is bytes already."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def valid(arrays=ARRAYS, metadata=None):
    """A file of arrays, without `write_tensor_file`."""
    start, names = make_header(arrays, metadata or {"format": "pt"})
    return start + b"".join(arrays[name].tobytes() for name in names)


def lazy(arrays):
    """Arrays as they are written."""
    return {
        name: LazyTensor(array.shape, array.dtype, lambda array=array: array)
        for name, array in arrays.items()
    }


_TOKENS = [
    b"0", b"-1", b"1", b"2.0", b"1e400", b"NaN", b"true", b"null", b"[]", b"{}", b'"F4"', b'"a"',
    b"9223372036854775808", b"4611686018427387904", b"9" * 5000, b"[" * 5000, b'"\\ud800"', b"\xff",
    b'"__metadata__"', b",", b":", b"}", b'"BOOL"',
]  # fmt: skip


def mutated(good, seed):
    """A file with a few changes, most of them in its header."""
    choose = random.Random(seed)
    end = 8 + int.from_bytes(good[:8], "little")
    changed = bytearray(good)
    kind = choose.randrange(5)
    if kind == 0:
        for _ in range(choose.randint(1, 4)):
            changed[choose.randrange(end)] ^= 1 << choose.randrange(8)
    elif kind == 1:
        del changed[choose.randrange(len(good)) :]
    elif kind == 2:
        changed[: choose.randint(1, 8)] = choose.randbytes(choose.randint(1, 8))
    elif kind == 3:  # keeps the length right, so that what is checked later is reached
        start = choose.randrange(8, end)
        changed[start : start + choose.randint(0, 4)] = choose.choice(_TOKENS)
        changed[:8] = (end - 8 + len(changed) - len(good)).to_bytes(8, "little", signed=False)
    else:
        # A number of the header becomes another.
        digits = [at for at in range(8, end) if chr(good[at]).isdigit()]
        changed[choose.choice(digits)] = choose.choice(b"0123456789")
    return bytes(changed)
