"""Checks of sizes, lengths and offsets whose values are known at trace time."""

from typing import Any, TypeGuard

import jax
import numpy as np
from jax import export

from jaxformer.errors import ShapeError

__all__ = ["check_range", "check_size", "is_int", "is_symbolic", "known_values"]


def is_symbolic(*sizes: Any) -> bool:
    """Whether a size is symbolic, as shapes under `jax.export` can be.

    Python cannot compare a symbolic size with a number, so test for one before comparing.

    Args:
        *sizes: sizes of axes, or anything else.

    Returns:
        Whether any of them is symbolic.

    Example:
        >>> batch, length = jax.export.symbolic_shape("b, 3")
        >>> is_symbolic(batch), is_symbolic(length)
        (True, False)
    """
    return any(export.is_symbolic_dim(size) for size in sizes)


def is_int(value: Any, least: int | None = None, most: int | None = None) -> TypeGuard[int]:
    """Whether a value is a Python or NumPy int, not a bool, within a range.

    Args:
        value: anything.
        least: lower bound; None = none.
        most: upper bound; None = none.

    Returns:
        Whether it is.

    Example:
        >>> [is_int(value) for value in (3, np.int64(3), True, 3.0)]
        [True, True, False, False]
        >>> is_int(3, 1), is_int(3, 1, 2)
        (True, False)
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        return False
    return (least is None or bool(value >= least)) and (most is None or bool(value <= most))


_LARGEST = 2**31 - 1  # positions are int32
_FEW = 16  # most values that a message prints


def check_size(argument: str, value: Any, *, least: int = 1) -> int:
    """Checks a count, such as the number of heads, or the size of an axis.

    Even whole floats are refused: einops treats 2.0 as 2, caches the result, and then breaks
    later calls.

    Args:
        argument: name in the public signature.
        value: Python or NumPy int, or a symbolic size.
        least: 0 or 1.

    Returns:
        A Python int, or the symbolic size.

    Raises:
        ShapeError: it is not an int, is smaller, or does not fit an int32.

    Example:
        >>> check_size("num_heads", np.int64(8))
        8
    """
    if is_symbolic(value):
        return value
    if not is_int(value, least):
        rule = "a positive int" if least else "an int of zero or more"
        raise ShapeError(f"{argument} must be {rule}, got {value!r}")
    if value > _LARGEST:
        raise ShapeError(f"{argument} must be at most 2**31 - 1, got {value!r}")
    return int(value)


def check_range(argument: str, value: Any, *, least: int, most: int, bound: str = "") -> None:
    """Checks the range of integers known at trace time, such as lengths or an offset.

    JAX arrays are not checked, because reading one waits for the device. If that does not matter,
    pass the result of `known_values`. Symbolic sizes are not checked either.

    Args:
        argument: name in the public signature.
        value: int, nested list of ints, or integer array.
        least: lower bound.
        most: upper bound; if symbolic, the largest int32.
        bound: name of `most` for the message, such as the letter of an axis.

    Raises:
        ShapeError: a known integer is outside the range.

    Example:
        >>> check_range("lengths", np.array([2, 5]), least=0, most=5, bound="S")
    """
    if isinstance(value, jax.Array) or is_symbolic(value):
        return
    known = np.asarray(value)
    if known.size == 0:
        return
    highest = _LARGEST if is_symbolic(most) else most
    low, high = known.min(), known.max()
    if not least <= low <= high <= highest:
        limit = f"{bound}={most}" if bound else most
        got = value if known.size <= _FEW else f"{low} .. {high}"
        raise ShapeError(f"{argument} must be in {least} .. {limit}, got {got}")


def known_values(array: Any) -> np.ndarray | None:
    """Values of an array as NumPy, if this process knows them.

    Args:
        array: array.

    Returns:
        The values; None if the array is traced or lies partly on other hosts.

    Example:
        >>> known_values(jax.numpy.arange(3)).tolist()
        [0, 1, 2]
    """
    if isinstance(array, jax.core.Tracer):
        return None
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return None
    return np.asarray(array)
