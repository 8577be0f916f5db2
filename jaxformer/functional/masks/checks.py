"""Checks of what masks are made of: offsets, lengths, segment ids, window sizes and arrays."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_array,
    check_broadcast,
    check_dtype,
    check_leading,
    check_range,
    is_int,
)
from jaxformer.functional.dtypes import as_int32, at_least
from jaxformer.functional.masks.tiles import to_rank

Integers = int | Array


def window_sides(name: str, size: object) -> tuple[int | None, int | None]:
    """Checks a window size, and returns (left, right), None = unbounded on that side."""
    pair = size if isinstance(size, tuple) else (size, size)
    if len(pair) == 2 and all(side is None or is_int(side, 0, 2**31 - 1) for side in pair):
        left, right = (None if side is None else int(side) for side in pair)
        return left, right
    raise ShapeError(
        f"{name} must be an int or a pair (left, right), each in 0 .. 2**31 - 1 or None for "
        f"unbounded, got {size!r}"
    )


def read_integers(name: str, values: Any, least: int, most: int) -> int | jax.Array:
    """Checked integers: an int stays an int, to skip blocks by; an array becomes int32."""
    array = as_array(name, values)
    check_dtype(name, array, "integer")
    check_range(name, values, least=least, most=most)
    # As wide as the positions it is compared with: a uint8 length would wrap.
    return int(values) if isinstance(values, int | np.integer) else as_int32(array)


def read_offset(name: str, value: Any, leading: tuple[int, ...]) -> int | jax.Array:
    """Checked query offset: int, or int32 `[...]`."""
    # Leaves half of the int32 range for the positions themselves.
    return _per_row(name, read_integers(name, value, -(2**30), 2**30), leading)


def read_lengths(
    name: str, values: Integers | None, leading: tuple[int, ...], largest: int | None
) -> int | jax.Array | None:
    """Checked lengths: int, or int32 `[...]`; None as the largest sets no bound."""
    if values is None:
        return None
    largest = 2**31 - 1 if largest is None else largest
    return _per_row(name, read_integers(name, values, 0, largest), leading)


def _per_row(name: str, array: int | jax.Array, leading: tuple[int, ...]) -> int | jax.Array:
    """Broadcasts an integer array to the leading axes."""
    if isinstance(array, int):
        return array
    array = to_rank(array, len(leading))
    check_broadcast(name, array, leading, "...", remedy="one value per row, or a single one")
    return jnp.broadcast_to(array, leading)


def read_segment_ids(
    ids: Mapping[str, Any], lengths: tuple[Any, Any], leading: tuple[int, ...]
) -> list[jax.Array]:
    """Checked segment ids of queries `[..., T]` and keys `[..., S]`, by name, in one dtype."""
    arrays = [as_array(name, array) for name, array in ids.items()]
    for name, array, axis, size in zip(ids, arrays, "TS", lengths, strict=True):
        check_array(name, array, "integer", f"... {axis}", {axis: size})
        check_leading(name, array, 1, leading)
    dtype = at_least(arrays[0].dtype, arrays[1].dtype)  # of uint32 and int32 without x64: int32
    for array in arrays:
        if not jnp.can_cast(array.dtype, dtype) or not jnp.issubdtype(dtype, jnp.integer):
            raise ShapeError(
                "segment ids of queries and keys must fit in one integer dtype, got "
                f"{arrays[0].dtype} and {arrays[1].dtype}; cast one with .astype"
            )
    return [array.astype(dtype) for array in arrays]


def aligned(name: str, array: Array, kind: str, weights_shape: tuple[int, ...]) -> jax.Array:
    """A checked mask or bias with the rank of the weights."""
    array = as_array(name, array)
    remedy = "True = attend; an additive one is the argument bias" if kind == "bool" else ""
    check_dtype(name, array, kind, remedy=remedy)
    rank = len(weights_shape)
    # [B, T, S] is not aligned: if B equals N, it would be read as one mask per head.
    if array.ndim == 2 and rank > 2:
        array = to_rank(array, rank)
    remedy = "or pass a plain [T, S]"
    if array.ndim == rank - 1:
        remedy = f"add the head axis with {name}[..., None, :, :] ({name}[:, None] for [B, T, S])"
    letters = " ".join(["..."] * (rank - 3) + ["N", "T", "S"])
    check_broadcast(name, array, weights_shape, letters, remedy=remedy)
    return array
