"""Counts, symbolic sizes, and values of arrays, as far as they are known at trace time."""

from typing import Any, TypeGuard

import jax
import numpy as np
from jax import export

from jaxformer.errors import ShapeError

__all__ = ["check_size", "is_int", "is_symbolic", "known_values"]


def is_symbolic(*sizes: Any) -> bool:
    """Whether a size is symbolic, as the shapes of `jax.export` may be.

    Python cannot compare such a size with a number, so what depends on it is decided without it.

    Args:
        *sizes: sizes of axes, or anything else.

    Returns:
        Whether one of them is symbolic.

    Example:
        >>> batch, length = jax.export.symbolic_shape("b, 3")
        >>> is_symbolic(batch), is_symbolic(length)
        (True, False)
    """
    return any(export.is_symbolic_dim(size) for size in sizes)


def is_int(value: Any) -> TypeGuard[int]:
    """Whether a value is an int, of Python or NumPy, and no bool.

    Example:
        >>> [is_int(value) for value in (3, np.int64(3), True, 3.0)]
        [True, True, False, False]
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


_LARGEST = 2**31 - 1  # what positions can count, which are int32


def check_size(argument: str, value: Any, *, least: int = 1) -> int:
    """Checks a number of things, such as heads, or the size of an axis.

    A float is refused even where it is whole: einops takes 2.0 for 2, remembers what it made of
    it, and breaks later calls.

    Args:
        argument: name in the public signature.
        value: int, of Python or NumPy, or a symbolic size.
        least: 0 or 1.

    Returns:
        A Python int, or the symbolic size.

    Raises:
        ShapeError: it is something else, smaller, or more than an int32 holds.

    Example:
        >>> check_size("num_heads", np.int64(8))
        8
    """
    if is_symbolic(value):
        return value
    if not is_int(value) or value < least:
        rule = "a positive int" if least else "an int of zero or more"
        raise ShapeError(f"{argument} must be {rule}, got {value!r}")
    if value > _LARGEST:
        raise ShapeError(f"{argument} must be at most 2**31 - 1, got {value!r}")
    return int(value)


def known_values(array: Any) -> np.ndarray | None:
    """Values of an array, where a check of them can raise.

    Args:
        array: array.

    Returns:
        The values; None of an array that is traced, or lies partly on other hosts.

    Example:
        >>> known_values(jax.numpy.arange(3)).tolist()
        [0, 1, 2]
    """
    if isinstance(array, jax.core.Tracer):
        return None
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return None
    return np.asarray(array)
