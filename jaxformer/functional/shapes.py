"""Checks of shapes and dtypes at public entry; messages name the argument."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ShapeError
from jaxformer.functional.sizes import is_symbolic

__all__ = [
    "Array",
    "as_array",
    "check_axes",
    "check_broadcast",
    "check_dtype",
    "check_fields",
    "check_float_dtype",
    "check_leading",
    "check_rng",
    "describe",
]


Array = jax.Array | np.ndarray

_DTYPE_KINDS: dict[str, Any] = {
    "floating": jnp.floating,
    "integer": jnp.integer,
    "bool": jnp.bool_,
}


def describe(axes: str, sizes: Mapping[str, int]) -> str:
    """Formats axes with their known sizes, such as `[..., S, K, H=64]`.

    Args:
        axes: axis letters separated by spaces; "..." stands for any leading axes.
        sizes: known sizes by letter.

    Returns:
        The text.

    Example:
        >>> describe("... S K H", {"H": 64})
        '[..., S, K, H=64]'
    """
    words = [f"{axis}={sizes[axis]}" if axis in sizes else axis for axis in axes.split()]
    return f"[{', '.join(words)}]"


def check_axes(
    argument: str, array: Array, axes: str, sizes: Mapping[str, int] | None = None,
    *, remedy: str = "",
) -> dict[str, int]:  # fmt: skip
    """Checks an array's rank and known sizes, and returns all sizes known afterwards.

    Args:
        argument: name of the array in the public signature.
        array: array of any dtype.
        axes: axis letters separated by spaces; a first "..." stands for any leading axes.
        sizes: sizes already known from other arguments.
        remedy: what the caller can do; the end of the message.

    Returns:
        `sizes` with this array's letters added.

    Raises:
        ShapeError: naming argument, axes, shape and remedy.

    Example:
        >>> check_axes("x", jnp.zeros((2, 3, 5)), "... T D", {"D": 5})
        {'D': 5, 'T': 3}
    """
    import chex  # lazy: chex would take most of this package's import time

    known = dict(sizes or {})
    _refuse_masked(argument, array)
    if not hasattr(array, "shape"):
        raise ShapeError(
            f"{argument} must be an array {describe(axes, known)}, got {type(array).__name__}; "
            "make it one with jnp.asarray"
        )
    letters = axes.split()
    try:
        chex.assert_shape(array, tuple(... if a == "..." else known.get(a) for a in letters))
    except AssertionError:
        message = f"{argument} must be {describe(axes, known)}, got shape {array.shape}"
        raise ShapeError(f"{message}; {remedy}" if remedy else message) from None
    named = [letter for letter in letters if letter != "..."]
    return known | dict(zip(reversed(named), reversed(array.shape), strict=False))


def check_leading(argument: str, array: Array, trailing: int, leading: tuple[int, ...]) -> None:
    """Checks that the axes before the last `trailing` ones are exactly `leading`.

    Args:
        argument: name of the array in the public signature.
        array: array of any dtype.
        trailing: number of axes that are not leading.
        leading: expected sizes, from the query.

    Raises:
        ShapeError: naming argument, got and expected.

    Example:
        >>> check_leading("key", jnp.zeros((2, 3, 5, 7)), 3, (2,))
    """
    got = array.shape[: array.ndim - trailing]
    if got != leading:
        raise ShapeError(
            f"{argument} must have the query's leading axes {leading}, got {got} of shape "
            f"{array.shape}; broadcast it with jnp.broadcast_to"
        )


def check_broadcast(
    argument: str, array: Array, target: tuple[int, ...], axes: str, *, remedy: str = ""
) -> None:
    """Checks that an array has the target's rank and broadcasts to it.

    Args:
        argument: name of the array in the public signature.
        array: array of any dtype.
        target: shape to broadcast to.
        axes: the target's axes, for the message.
        remedy: what the caller can do; the end of the message.

    Raises:
        ShapeError: naming argument, axes, got, expected and remedy.

    Example:
        >>> check_broadcast("bias", jnp.zeros((1, 3)), (2, 3), "T S")
    """
    fits = array.ndim == len(target) and all(
        got in (1, want) for got, want in zip(array.shape, target, strict=True)
    )
    if not fits:
        message = f"{argument} must broadcast to [{', '.join(axes.split())}] = {target}, " + (
            f"each axis that size or 1, got shape {array.shape}"
        )
        raise ShapeError(f"{message}; {remedy}" if remedy else message)


def check_dtype(argument: str, array: Array, kind: str, *, remedy: str = "") -> None:
    """Checks that an array is "floating", "integer" or "bool", and not a NumPy masked array.

    Floats of 8 bits or less are refused, because JAX does not promote them implicitly.

    Args:
        argument: name of the array in the public signature.
        array: array.
        kind: the kind of dtype expected.
        remedy: what the caller can do; the end of the message.

    Raises:
        ShapeError: naming argument, got, expected and remedy.

    Example:
        >>> check_dtype("tokens", jnp.zeros(3, jnp.int32), "integer")
    """
    _refuse_masked(argument, array)
    dtype = getattr(array, "dtype", None)
    if dtype is None:
        raise ShapeError(
            f"{argument} must be an array, {kind}, got {type(array).__name__}; make it one with "
            "jnp.asarray"
        )
    if not jnp.issubdtype(dtype, _DTYPE_KINDS[kind]) or (kind == "floating" and dtype.itemsize < 2):
        narrow = kind == "floating" and jnp.issubdtype(dtype, jnp.floating)
        wanted = f"{kind}, of 16 bits or more" if narrow else kind
        message = f"{argument} must be {wanted}, got dtype {dtype}"
        raise ShapeError(f"{message}; {remedy}" if remedy else message)


def check_float_dtype(argument: str, dtype: Any) -> jnp.dtype:
    """Checks the dtype of an array to create, such as a cache.

    8-bit floats are allowed here, because such an array only stores numbers.

    Args:
        argument: name in the public signature.
        dtype: anything that NumPy accepts as a dtype.

    Returns:
        The dtype.

    Raises:
        ShapeError: it is not a dtype, or not floating.

    Example:
        >>> check_float_dtype("dtype", "bfloat16").name
        'bfloat16'
    """
    try:
        known = jnp.dtype(dtype)
    except (TypeError, ValueError):
        known = jnp.dtype(bool)
    if dtype is None or not jnp.issubdtype(known, jnp.floating):
        raise ShapeError(f"{argument} must be a floating dtype, such as jnp.float32, got {dtype!r}")
    return known


def check_fields(argument: str, value: Any, kind: type) -> None:
    """Checks that a value is a named tuple of a class, such as the parameters of a layer.

    Args:
        argument: name in the public signature.
        value: value from the caller.
        kind: the class.

    Raises:
        ShapeError: it is anything else, such as a plain tuple, whose parts have no names.

    Example:
        >>> from typing import NamedTuple
        >>> class Pair(NamedTuple):
        ...     first: int
        >>> check_fields("params", Pair(1), Pair)
    """
    if not isinstance(value, kind):
        fields = ", ".join(getattr(kind, "_fields", ()))
        raise ShapeError(
            f"{argument} must be a {kind.__name__}, got {type(value).__name__}; make one with "
            f"{kind.__name__}({fields})"
        )


def as_array(argument: str, value: Any) -> jax.Array:
    """Converts an argument to a JAX array without loss.

    Args:
        argument: name in the public signature.
        value: array, nested list, number or symbolic size.

    Returns:
        The array.

    Raises:
        ShapeError: it is not an array of numbers, is masked, or holds integers too large for JAX.

    Example:
        >>> as_array("lengths", [3, 5]).shape
        (2,)
    """
    if isinstance(value, jax.Array):
        return value
    if is_symbolic(value):
        return jnp.asarray(value)
    _refuse_masked(argument, value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind in "OUSM":
        raise ShapeError(f"{argument} must be an array of numbers, got {value!r}")
    result = jnp.asarray(array)
    if array.dtype.kind in "iu" and array.size:
        low, high = int(array.min()), int(array.max())
        limits = jnp.iinfo(result.dtype)
        if low < limits.min or high > limits.max:
            raise ShapeError(
                f"{argument} must fit in {result.dtype}, got {low} .. {high}; jax_enable_x64 "
                "gives 64-bit integers"
            )
    return result


def _refuse_masked(argument: str, value: Any) -> None:
    if isinstance(value, np.ma.MaskedArray):
        raise ShapeError(
            f"{argument} must be a plain array, got a NumPy masked array, whose mask JAX would "
            "ignore; pass .filled(...), and the mask separately"
        )


def check_rng(argument: str, rng: Any) -> None:
    """Checks that a value is one PRNG key, new-style or raw.

    Args:
        argument: name in the public signature.
        rng: value from the caller.

    Raises:
        ShapeError: it is anything else.

    Example:
        >>> check_rng("dropout_rng", jax.random.key(0))
    """
    dtype, shape = getattr(rng, "dtype", None), getattr(rng, "shape", None)
    is_key = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if not (is_key and shape == ()) and not (dtype == jnp.uint32 and shape in ((2,), (4,))):
        raise ShapeError(
            f"{argument} must be one PRNG key, such as jax.random.key(0), got "
            + (repr(rng) if dtype is None else f"dtype {dtype} and shape {shape}")
        )
