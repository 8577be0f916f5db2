"""Boolean attention masks (True = attend) and their combination.

A mask is `[T, S]`, or has the rank of the attention weights, `[..., N, T, S]`, with size 1 where
it does not vary. Pass either to `dot_product_attention`. Under `jax.export`, T and S may be
symbolic.
"""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_dtype,
    check_range,
    check_size,
    is_int,
    is_symbolic,
)
from jaxformer.functional.dtypes import as_int32, at_least

Offset = int | Array


def relative_positions(num_queries: int, num_keys: int, query_offset: Offset) -> jax.Array:
    """Position of each key relative to each query: int32 `[T, S]` or `[..., 1, T, S]`."""
    num_queries = check_size("num_queries", num_queries, least=0)
    num_keys = check_size("num_keys", num_keys, least=0)
    query = jnp.arange(num_queries, dtype=jnp.int32)[:, None]
    key = jnp.arange(num_keys, dtype=jnp.int32)[None, :]
    known = sum(size for size in (num_queries, num_keys) if not is_symbolic(size))
    offset = read_offset("query_offset", query_offset, 2**31 - 1 - known)
    # Added before the axes meet: XLA would compute `key - query` `[T, S]` ahead of a loop over
    # offsets, and hold it.
    if isinstance(offset, int) or is_symbolic(query_offset):
        return key - (query + offset)
    rank = offset.ndim + 3
    return to_rank(key, rank) - (to_rank(query, rank) + offset[..., None, None, None])


def to_rank(array: jax.Array, rank: int) -> jax.Array:
    """The array with axes of size 1 in front, so that it has a rank."""
    return jnp.expand_dims(array, tuple(range(rank - array.ndim)))


def read_offset(name: str, value: Any, largest: int) -> int | jax.Array:
    """Checked query offset: an int stays an int, to skip blocks by; an array becomes int32."""
    array = as_array(name, value)
    check_dtype(name, array, "integer")
    # Beyond +-`largest`, int32 positions could wrap.
    check_range(name, value, least=-largest, most=largest)
    return int(value) if isinstance(value, int | np.integer) else as_int32(array)


def causal(num_queries: int, num_keys: int, query_offset: Offset = 0) -> jax.Array:
    """Causal mask: query i, at position `query_offset + i`, attends to keys at or before it.

    Args:
        num_queries: T.
        num_keys: S.
        query_offset: int, or integer array `[...]` with one offset per row. 0 aligns the first
            query with the first key, `S - T` the last with the last.

    Returns:
        bool `[T, S]`, or `[..., 1, T, S]` for an array offset.

    Example:
        >>> causal(2, 3).astype(int).tolist()
        [[1, 0, 0], [1, 1, 0]]
    """
    return relative_positions(num_queries, num_keys, query_offset) <= 0


def window(
    num_queries: int, num_keys: int, size: int | tuple[int | None, int | None],
    query_offset: Offset = 0,
) -> jax.Array:  # fmt: skip
    """Sliding-window mask: keys up to `left` before and `right` after the query's position.

    Args:
        num_queries: T.
        num_keys: S.
        size: (left, right), None = unbounded on that side; an int means both.
        query_offset: as in `causal`.

    Returns:
        bool `[T, S]`, or `[..., 1, T, S]` for an array offset.

    Raises:
        ShapeError: size is not an int or a pair, or is negative.

    Example:
        >>> window(3, 3, (1, 0)).astype(int).tolist()
        [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    left, right = window_sides("size", size)
    distance = relative_positions(num_queries, num_keys, query_offset)
    mask = jnp.ones(distance.shape, bool)
    if left is not None:
        mask &= distance >= -left
    if right is not None:
        mask &= distance <= right
    return mask


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


def padding(lengths: Offset, num_keys: int) -> jax.Array:
    """Padding mask: hides the keys at or beyond each row's length.

    Args:
        lengths: int, or integer array `[...]` with the number of real keys per row.
        num_keys: S.

    Returns:
        bool `[..., 1, 1, S]`.

    Raises:
        ShapeError: lengths are not integers, or a known one (an int, a list or NumPy) is not in 0
            .. S.

    Example:
        >>> padding(jnp.array([1, 3]), 3).astype(int)[:, 0, 0].tolist()
        [[1, 0, 0], [1, 1, 1]]
    """
    array = as_array("lengths", lengths)
    check_dtype("lengths", array, "integer")
    num_keys = check_size("num_keys", num_keys, least=0)
    check_range("lengths", lengths, least=0, most=num_keys, bound="num_keys")
    return first_keys(array, num_keys)


def first_keys(lengths: Offset, num_keys: int) -> jax.Array:
    """Padding mask `[..., 1, 1, S]` for lengths from the start of a block, maybe negative."""
    lengths = as_int32(as_array("lengths", lengths))
    slots = jnp.arange(num_keys, dtype=lengths.dtype)
    return to_rank(slots, lengths.ndim + 3) < lengths[..., None, None, None]


def segments(query_ids: Array, key_value_ids: Array) -> jax.Array:
    """Segment mask: a query attends to keys of its own segment, such as a packed document.

    Args:
        query_ids: integer `[..., T]`.
        key_value_ids: integer `[..., S]`, with the same leading axes.

    Returns:
        bool `[..., 1, T, S]`.

    Raises:
        ShapeError: the leading axes differ, an array is not integer, or no integer dtype holds the
            ids of both.

    Example:
        >>> ids = jnp.array([7, 7, 8])
        >>> segments(ids, ids).astype(int)[0].tolist()
        [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    query_ids = as_array("query_ids", query_ids)
    key_value_ids = as_array("key_value_ids", key_value_ids)
    for name, ids in (("query_ids", query_ids), ("key_value_ids", key_value_ids)):
        check_dtype(name, ids, "integer")
        if ids.ndim == 0:
            raise ShapeError(f"{name} must be [..., T] or [..., S], got a scalar")
    if query_ids.shape[:-1] != key_value_ids.shape[:-1]:
        raise ShapeError(
            "query_ids [..., T] and key_value_ids [..., S] must have the same leading axes, got "
            f"shapes {query_ids.shape} and {key_value_ids.shape}"
        )
    query_ids, key_value_ids = alike_ids(query_ids, key_value_ids)
    query = rearrange(query_ids, "... t -> ... 1 t 1")
    return query == rearrange(key_value_ids, "... s -> ... 1 1 s")


def alike_ids(query_ids: jax.Array, key_ids: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Segment ids of queries and keys in one dtype; ShapeError if none holds both."""
    dtype = at_least(query_ids.dtype, key_ids.dtype)  # of uint32 and int32 without x64: int32
    for ids in (query_ids, key_ids):
        if not jnp.can_cast(ids.dtype, dtype) or not jnp.issubdtype(dtype, jnp.integer):
            raise ShapeError(
                "segment ids of queries and keys must fit in one integer dtype, got "
                f"{query_ids.dtype} and {key_ids.dtype}; cast one with .astype"
            )
    return query_ids.astype(dtype), key_ids.astype(dtype)


def combine(*masks: Array | None) -> jax.Array | None:
    """Logical and of attention masks.

    Args:
        *masks: bool `[T, S]` or `[..., N, T, S]`, size 1 where a mask does not vary; None is
            skipped.

    Returns:
        bool, of the shape that all masks broadcast to; None if there is no mask.

    Raises:
        ShapeError: a mask is not bool, or the shapes do not broadcast.

    Example:
        >>> combine(causal(2, 2), padding(jnp.array([1, 2]), 2)).shape
        (2, 1, 2, 2)
    """
    arrays = [as_array("mask", mask) for mask in masks if mask is not None]
    rank = max((mask.ndim for mask in arrays), default=0)
    for mask in arrays:
        check_dtype("mask", mask, "bool", remedy="True = attend; compare with != 0")
        if mask.ndim not in (2, rank) or mask.ndim < 2:
            raise ShapeError(
                f"masks must be [T, S] or all of one rank [..., N, T, S], got shapes "
                f"{[m.shape for m in arrays]}; insert the missing head axis with mask[:, None]"
            )
    # A plain [T, S] mask is the same for all batches and heads.
    aligned = [to_rank(mask, rank) for mask in arrays]
    names = ("...", "N", "T", "S")[-min(rank, 4) :]
    for axis in range(-rank, 0):
        sizes = sorted({mask.shape[axis] for mask in aligned} - {1})
        if len(sizes) > 1:
            name = names[max(axis, -len(names))]
            raise ShapeError(
                f"masks must broadcast over [..., N, T, S], got sizes {sizes} of axis {name} in "
                f"shapes {[m.shape for m in arrays]}; an axis that does not vary has size 1"
            )
    return functools.reduce(operator.and_, aligned) if aligned else None
