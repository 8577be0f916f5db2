"""Checks at public entry of arrays, sizes and options; messages name the argument."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from jaxformer.errors import ConfigError, ShapeError

Array = jax.Array | np.ndarray

_LARGEST = 2**31 - 1  # positions are int32
_FEW = 16  # most values that a message prints
_DTYPE_KINDS: dict[str, Any] = {"floating": jnp.floating, "integer": jnp.integer, "bool": jnp.bool_}


def describe(axes: str, sizes: Mapping[str, int]) -> str:
    """Formats axes with their known sizes, such as `[..., S, K, H=64]`."""
    words = [f"{axis}={sizes[axis]}" if axis in sizes else axis for axis in axes.split()]
    return f"[{', '.join(words)}]"


def _message(argument: str, rule: str, got: str, remedy: str) -> str:
    return f"{argument} {rule}, got {got}" + (f"; {remedy}" if remedy else "")


def check_axes(
    argument: str, array: Array, axes: str, sizes: Mapping[str, int] | None = None,
    *, remedy: str = "",
) -> dict[str, int]:  # fmt: skip
    """Checks rank and known sizes against axes like "... T D"; returns all sizes by letter."""
    known = dict(sizes or {})
    if not hasattr(array, "shape"):
        raise ShapeError(
            f"{argument} must be an array {describe(axes, known)}, got {type(array).__name__}; "
            "make it one with jnp.asarray"
        )
    letters = axes.split()
    named = [letter for letter in letters if letter != "..."]  # which comes first, if at all
    trailing = array.shape[max(0, array.ndim - len(named)) :]
    fits = array.ndim == len(named) or ("..." in letters and array.ndim > len(named))
    if not fits or any(known.get(a, n) != n for a, n in zip(named, trailing, strict=True)):
        rule = f"must be {describe(axes, known)}"
        raise ShapeError(_message(argument, rule, f"shape {array.shape}", remedy))
    return known | dict(zip(named, trailing, strict=True))


def check_leading(
    argument: str, array: Array, trailing: int, leading: tuple[int, ...], *, of: str = "the query"
) -> None:
    """Checks that the axes before the last `trailing` ones are exactly `leading`."""
    got = array.shape[: array.ndim - trailing]
    if got != leading:
        raise ShapeError(
            f"{argument} must have {of}'s leading axes {leading}, got {got} of shape "
            f"{array.shape}; broadcast it with jnp.broadcast_to"
        )


def check_broadcast(
    argument: str, array: Array, target: tuple[int, ...], axes: str, *, remedy: str = ""
) -> None:
    """Checks that an array has the rank of `target`, with `axes`, and broadcasts to it."""
    fits = array.ndim == len(target) and all(
        size in (1, target_size) for size, target_size in zip(array.shape, target, strict=True)
    )
    if not fits:
        rule = f"must broadcast to [{', '.join(axes.split())}] = {target}, each axis that size or 1"
        raise ShapeError(_message(argument, rule, f"shape {array.shape}", remedy))


def check_dtype(
    argument: str, array: Array, kind: str, *, remedy: str = "cast it with .astype"
) -> None:
    """Checks that an array is "floating" of 16 bits or more, "integer" or "bool"."""
    dtype = array.dtype
    # 8-bit floats are refused, because JAX does not promote them implicitly.
    if not jnp.issubdtype(dtype, _DTYPE_KINDS[kind]) or (kind == "floating" and dtype.itemsize < 2):
        narrow = kind == "floating" and jnp.issubdtype(dtype, jnp.floating)
        rule = f"must be {kind}, of 16 bits or more" if narrow else f"must be {kind}"
        raise ShapeError(_message(argument, rule, f"dtype {dtype}", remedy))


def check_array(
    argument: str, array: Array, kind: str, axes: str, sizes: Mapping[str, int] | None = None,
    *, remedy: str = "",
) -> dict[str, int]:  # fmt: skip
    """Checks an array as `check_axes` and `check_dtype` do; the remedy is for its axes."""
    known = check_axes(argument, array, axes, sizes, remedy=remedy)
    check_dtype(argument, array, kind)
    return known


def check_float_dtype(argument: str, dtype: Any) -> jnp.dtype:
    """Checks the dtype of an array that only stores numbers, where 8-bit floats are allowed."""
    try:
        known = jnp.dtype(dtype)
    except (TypeError, ValueError):
        known = jnp.dtype(bool)
    if dtype is None or not jnp.issubdtype(known, jnp.floating):
        raise ShapeError(f"{argument} must be a floating dtype, such as jnp.float32, got {dtype!r}")
    return known


def check_fields(argument: str, value: Any, kind: type) -> None:
    """Checks that a value is a named tuple of a class, such as the parameters of a layer."""
    if not isinstance(value, kind):
        fields = ", ".join(getattr(kind, "_fields", ()))
        raise ShapeError(
            f"{argument} must be a {kind.__name__}, got {type(value).__name__}; make one with "
            f"{kind.__name__}({fields})"
        )


def as_array(argument: str, value: Any) -> jax.Array:
    """Converts an array, nested list, number or symbolic size to a JAX array without loss."""
    if isinstance(value, jax.Array):
        return value
    if is_symbolic(value):
        return jnp.asarray(value)
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


def as_arrays(**values: Any) -> list[jax.Array]:
    """Converts several arguments as `as_array` does, by name."""
    return [as_array(argument, value) for argument, value in values.items()]


def check_rng(argument: str, rng: Any) -> None:
    """Raises ShapeError unless a value is one PRNG key, new-style or raw."""
    dtype, shape = getattr(rng, "dtype", None), getattr(rng, "shape", None)
    is_key = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if not (is_key and shape == ()) and not (dtype == jnp.uint32 and shape in ((2,), (4,))):
        raise ShapeError(
            f"{argument} must be one PRNG key, such as jax.random.key(0), got "
            + (repr(rng) if dtype is None else f"dtype {dtype} and shape {shape}")
        )


def typed_key(rng: Any) -> Any:
    """A raw PRNG key, uint32 `[..., 2]`, as a new-style key; any other value as it is."""
    dtype, shape = getattr(rng, "dtype", None), getattr(rng, "shape", ())
    is_raw = dtype == jnp.uint32 and shape[-1:] in ((2,), (4,))
    return jax.random.wrap_key_data(rng) if is_raw else rng


def is_symbolic(*sizes: Any) -> bool:
    """Whether a size is symbolic, as under `jax.export`: Python cannot compare it with a number."""
    return any(export.is_symbolic_dim(size) for size in sizes)


def is_int(value: Any, least: int | None = None, most: int | None = None) -> TypeGuard[int]:
    """Whether a value is a Python or NumPy int, not a bool, within an inclusive range."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        return False
    return (least is None or bool(value >= least)) and (most is None or bool(value <= most))


def check_size(argument: str, value: Any, *, least: int = 1) -> int:
    """Checks a count or the size of an axis, at least 0 or 1; symbolic sizes pass."""
    if is_symbolic(value):
        return value
    # Whole floats, too: einops treats 2.0 as 2, caches the result, and then breaks later calls.
    if not is_int(value, least):
        rule = "a positive int" if least else "an int of zero or more"
        raise ShapeError(f"{argument} must be {rule}, got {value!r}")
    if value > _LARGEST:
        raise ShapeError(f"{argument} must be at most 2**31 - 1, got {value!r}")
    return int(value)


def check_range(argument: str, value: Any, *, least: int, most: int, bound: str = "") -> None:
    """Checks the inclusive range of integers known when traced; messages name `most` `bound`."""
    # Reading a JAX array waits for the device. If that does not matter, pass `known_values` of it.
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


def check_int(argument: str, value: Any, least: int, most: int | None = None) -> int:
    """Checks an int in a range, known when traced, and returns a Python int."""
    if not is_int(value, least, most):
        rule = f"at least {least}" if most is None else f"in {least} .. {most}"
        raise ConfigError(f"{argument} must be an int {rule}, got {value!r}")
    return int(value)


def check_row_counts(
    argument: str, counts: jax.Array, batch_size: int, *, most: int, bound: str = ""
) -> None:
    """Checks numbers of tokens per row, integer `[B]`, each in 0 .. most if it is known."""
    check_array(argument, counts, "integer", "B", {"B": batch_size})
    known = known_values(counts)
    if known is not None:
        check_range(argument, known.tolist(), least=0, most=most, bound=bound)


def known_values(array: Any) -> np.ndarray | None:
    """Values of an array; None if it is traced or lies partly on other hosts."""
    if isinstance(array, jax.core.Tracer):
        return None
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return None
    return np.asarray(array)


def check_choice(argument: str, value: Any, choices: Iterable[str]) -> None:
    """Raises ConfigError unless a value is one of the allowed strings."""
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        names = ", ".join(map(repr, choices[:-1]))
        raise ConfigError(f"{argument} must be {names} or {choices[-1]!r}, got {value!r}")


def static_number(argument: str, value: Any, *, positive: bool = False, remedy: str = "") -> float:
    """Checks a number, or array of size 1, that is known at trace time; ConfigError for others."""
    has_number = jnp.issubdtype(getattr(value, "dtype", bool), np.number)  # a PRNG key has none
    if has_number and getattr(value, "size", 0) == 1 and (known := known_values(value)) is not None:
        value = known.item()
    is_number = isinstance(value, int | float | np.integer | np.floating)
    largest = float(np.finfo(np.float32).max)
    # Compares value, not float(value): an int may be too large for a float.
    fits = is_number and not isinstance(value, bool) and -largest <= value <= largest
    if not fits or (positive and value <= 0):
        rule = "must be a number or an array of one, finite in float32"
        if positive:
            rule = "must be positive and finite in float32, known when traced"
        raise ConfigError(_message(argument, rule, repr(value), remedy))
    return float(value)


def checked_factor(argument: str, value: Any, dtype: jnp.dtype) -> float | jax.Array:
    """Checks a factor, a number or an array of one; a traced one is an array `[]` then."""
    is_real = jnp.issubdtype(getattr(value, "dtype", bool), np.number) and jnp.isrealobj(value)
    if isinstance(value, jax.core.Tracer) and is_real and value.size == 1:
        return jnp.squeeze(value).astype(dtype)  # []
    return static_number(argument, value)


def static_softcap(value: Any) -> float | None:
    """Checks c in c * tanh(scores / c), known at trace time; None = no cap."""
    if value is None:
        return None
    return static_number("softcap", value, positive=True, remedy="None = no cap")


def check_nonnegative(argument: str, value: Any) -> None:
    """Raises ConfigError unless a value is an array, which may be traced, or a number >= 0."""
    if not isinstance(value, jax.Array) and static_number(argument, value) < 0:
        raise ConfigError(f"{argument} must be at least 0, got {value}")


def static_bool(argument: str, value: Any) -> bool:
    """Checks a bool that must be known at trace time; ConfigError for others."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{argument} must be True or False, known when traced, got {value!r}")
    return bool(value)


def check_keywords(function: str, keywords: Collection[str], kind: type) -> None:
    """Raises TypeError, as Python does, for keywords that are not those of a TypedDict."""
    for name in keywords:
        if name not in kind.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
