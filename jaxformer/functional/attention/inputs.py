"""The arguments of attention: checked, completed, and turned into masks block by block."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional import masks
from jaxformer.functional.attention.block import Options
from jaxformer.functional.shapes import (
    Array,
    check_axes,
    check_broadcast,
    check_dtype,
    check_leading,
    describe,
)

__all__ = [
    "AttentionInputs",
    "Lengths",
    "Span",
    "Structure",
    "WindowSize",
    "allowed_in",
    "block_of",
    "cut",
    "prepare_attention",
    "zero_unseen",
]

Lengths = int | Array
Span = tuple[int | jax.Array, int]
WindowSize = int | tuple[int | None, int | None]


class Structure(NamedTuple):
    """Which keys a query may see by position, length and segment: never a `[T, S]` array.

    Args:
        window: keys that a query sees before and after its position, None = unbounded; causal
            attention has 0 after.
        offset: position of the first query: int, or integer `[...]` with one per row.
        query_lengths: int, or integer `[...]`: queries at or beyond are not real; None = all are.
        key_lengths: likewise for keys.
        query_ids: integer `[..., T]`, the segment of each query; None = one segment.
        key_ids: integer `[..., S]`.
    """

    window: tuple[int | None, int | None]
    offset: int | jax.Array
    query_lengths: int | jax.Array | None
    key_lengths: int | jax.Array | None
    query_ids: jax.Array | None
    key_ids: jax.Array | None


class AttentionInputs(NamedTuple):
    """What every implementation of attention starts from.

    Args:
        query: float `[..., T, N, H]`, 0 beyond its length.
        key: float `[..., S, K, H]`.
        value: float `[..., S, K, Hv]`; None for weights alone.
        bias: float of the rank of the weights, `[..., N, T, S]` or 1 where it does not vary.
        mask: bool, likewise; None = attend.
        structure: what else limits a query's sight.
        options: scale, cap and dropout rate.
    """

    query: jax.Array
    key: jax.Array
    value: jax.Array | None
    bias: jax.Array | None
    mask: jax.Array | None
    structure: Structure
    options: Options


def prepare_attention(
    query: Array,
    key: Array,
    value: Array | None,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_offset: Lengths | None = None,
    query_seq_lengths: Lengths | None = None,
    key_value_seq_lengths: Lengths | None = None,
    local_window_size: WindowSize | None = None,
    query_segment_ids: Array | None = None,
    key_value_segment_ids: Array | None = None,
    softcap: float | None = None,
    dropout_rate: float = 0.0,
) -> AttentionInputs:
    """Checks the arguments of `dot_product_attention`, which documents them.

    Returns:
        The inputs, with defaults filled in.

    Raises:
        ShapeError: an argument does not fit.
        ConfigError: an option is impossible.
    """
    query, key = jnp.asarray(query), jnp.asarray(key)
    value = None if value is None else jnp.asarray(value)
    sizes = _check_arrays(query, key, value)
    leading = query.shape[:-3]
    weights_shape = (*leading, sizes["N"], sizes["T"], sizes["S"])
    if softcap is not None and not 0 < softcap < math.inf:
        raise ConfigError(f"softcap must be positive and finite, got {softcap}; None = no cap")
    if scale is not None and not math.isfinite(scale):
        raise ConfigError(f"scale must be finite, got {scale}; None means 1 / sqrt(H)")

    bias = _align("bias", bias, "floating", weights_shape)
    mask = _align("mask", mask, "bool", weights_shape)
    structure = _structure(
        sizes, leading, is_causal, query_offset, query_seq_lengths, key_value_seq_lengths,
        local_window_size, query_segment_ids, key_value_segment_ids,
    )  # fmt: skip
    scale = 1 / math.sqrt(sizes["H"]) if scale is None else float(scale)
    return AttentionInputs(
        query=query, key=key, value=value, bias=bias, mask=mask, structure=structure,
        options=Options(scale, softcap, dropout_rate),
    )  # fmt: skip


def _check_arrays(query: jax.Array, key: jax.Array, value: jax.Array | None) -> dict[str, int]:
    """Checks query, key and value against each other, and returns T, N, H, S, K (and V)."""
    sizes = check_axes("query", query, "... T N H")
    remedy = f"query is {describe('... T N H', sizes)}"
    sizes |= check_axes("key", key, "... S K H", {"H": sizes["H"]}, remedy=remedy)
    check_leading("key", key, 3, query.shape[:-3])
    arrays = {"query": query, "key": key}
    if value is not None:
        known = {"S": sizes["S"], "K": sizes["K"]}
        remedy = f"key is {describe('... S K H', sizes)}"
        sizes |= check_axes("value", value, "... S K Hv", known, remedy=remedy)
        check_leading("value", value, 3, query.shape[:-3])
        arrays["value"] = value
    for name, array in arrays.items():
        check_dtype(name, array, "floating", remedy="cast it with .astype")
        if array.dtype != query.dtype:
            raise ShapeError(
                f"{name} must have the query's dtype {query.dtype}, got {array.dtype}; cast one "
                "with .astype"
            )
    if sizes["K"] == 0 or sizes["N"] % sizes["K"]:
        raise ShapeError(
            f"query heads N must be a multiple of key heads K, got N={sizes['N']} of query "
            f"{query.shape} and K={sizes['K']} of key {key.shape}"
        )
    return sizes


def _align(
    name: str, array: Array | None, kind: str, weights_shape: tuple[int, ...]
) -> jax.Array | None:
    """Checks a mask or bias and gives it the rank of the weights."""
    if array is None:
        return None
    array = jnp.asarray(array)
    remedy = "True = attend; an additive one is the argument bias" if kind == "bool" else ""
    check_dtype(name, array, kind, remedy=remedy)
    rank = len(weights_shape)
    if array.ndim == 2 and rank > 2:
        array = jnp.expand_dims(array, tuple(range(rank - 2)))
    remedy = "or pass a plain [T, S]"
    if array.ndim == rank - 1:
        remedy = f"add the head axis with {name}[..., None, :, :] ({name}[:, None] for [B, T, S])"
    letters = " ".join("..." if i < rank - 3 else "NTS"[i - rank + 3] for i in range(rank))
    check_broadcast(name, array, weights_shape, letters, remedy=remedy)
    return array


def _structure(
    sizes: dict[str, int],
    leading: tuple[int, ...],
    is_causal: bool,
    query_offset: Lengths | None,
    query_seq_lengths: Lengths | None,
    key_value_seq_lengths: Lengths | None,
    local_window_size: WindowSize | None,
    query_segment_ids: Array | None,
    key_value_segment_ids: Array | None,
) -> Structure:
    """Checks what limits a query's sight, and fills in the defaults."""
    num_queries, num_keys = sizes["T"], sizes["S"]
    left, right = masks.window_sides("local_window_size", local_window_size)
    offset: int | jax.Array = 0
    if is_causal or local_window_size is not None:
        if query_offset is not None:
            offset = _per_row("query_offset", query_offset, leading, None)
        elif num_queries != num_keys:
            raise ShapeError(
                "is_causal and local_window_size need query_offset when T and S differ, got "
                f"T={num_queries} and S={num_keys}; 0 aligns the first query with the first "
                f"key, S - T = {num_keys - num_queries} the last with the last"
            )
    elif query_offset is not None:
        raise ShapeError(
            f"query_offset is for is_causal and local_window_size, got {query_offset} and neither; "
            "leave it out, or set one of them"
        )
    lengths = {
        name: None if given is None else _per_row(name, given, leading, largest)
        for name, given, largest in (
            ("query_seq_lengths", query_seq_lengths, num_queries),
            ("key_value_seq_lengths", key_value_seq_lengths, num_keys),
        )
    }
    if (query_segment_ids is None) != (key_value_segment_ids is None):
        given = "query" if key_value_segment_ids is None else "key_value"
        raise ShapeError(
            "query_segment_ids and key_value_segment_ids go together, got only "
            f"{given}_segment_ids; for self-attention pass the same array twice"
        )
    return Structure(
        window=(left, 0 if is_causal else right),
        offset=offset,
        query_lengths=lengths["query_seq_lengths"],
        key_lengths=lengths["key_value_seq_lengths"],
        query_ids=_segment_ids("query_segment_ids", query_segment_ids, "T", num_queries, leading),
        key_ids=_segment_ids(
            "key_value_segment_ids", key_value_segment_ids, "S", num_keys, leading
        ),
    )


def _segment_ids(
    name: str, ids: Array | None, axis: str, size: int, leading: tuple[int, ...]
) -> jax.Array | None:
    if ids is None:
        return None
    ids = jnp.asarray(ids)
    check_dtype(name, ids, "integer")
    check_axes(name, ids, f"... {axis}", {axis: size})
    check_leading(name, ids, 1, leading)
    return ids


def _per_row(
    name: str, values: Lengths, leading: tuple[int, ...], largest: int | None
) -> int | jax.Array:
    """Broadcasts integer arrays to the leading axes; checks the range where it is known.

    An int stays one, so that blocks can be skipped by it.
    """
    if largest is not None and isinstance(values, int | np.ndarray | np.integer):
        known = np.asarray(values)
        if known.size and (known.min() < 0 or known.max() > largest):
            raise ShapeError(f"{name} must be in 0 .. {largest}, got {values}")
    if isinstance(values, int | np.integer) and not isinstance(values, bool):
        return int(values)
    array = jnp.asarray(values)
    check_dtype(name, array, "integer")
    if array.ndim > len(leading):
        raise ShapeError(
            f"{name} must broadcast to the leading axes {leading}, got shape {array.shape}"
        )
    array = jnp.expand_dims(array, tuple(range(len(leading) - array.ndim)))
    check_broadcast(name, array, leading, "...", remedy="one value per row, or a single one")
    return jnp.broadcast_to(array, leading)


def allowed_in(inputs: AttentionInputs, queries: Span, keys: Span) -> jax.Array | None:
    """Draws one block of what mask, structure and a bias above -inf together allow.

    Args:
        inputs: of the whole attention.
        queries: first query of the block, which may be traced, and their number.
        keys: first key, and their number.

    Returns:
        bool `[..., N, t, s]`, of that rank, 1 where it does not vary; None = everything.
    """
    structure, rank = inputs.structure, inputs.query.ndim
    (first_query, num_queries), (first_key, num_keys) = queries, keys
    parts: list[jax.Array] = []
    if structure.window != (None, None):
        offset = structure.offset + (first_query - first_key)
        parts.append(masks.window(num_queries, num_keys, structure.window, offset))
    if structure.key_lengths is not None:
        parts.append(masks.padding(structure.key_lengths - first_key, num_keys))
    if structure.query_lengths is not None:
        real = masks.padding(structure.query_lengths - first_query, num_queries)
        parts.append(rearrange(real, "... 1 1 t -> ... 1 t 1"))
    if structure.query_ids is not None and structure.key_ids is not None:
        query_ids = cut(structure.query_ids, queries, axis=-1)
        key_ids = cut(structure.key_ids, keys, axis=-1)
        parts.append(masks.segments(query_ids, key_ids))
    if inputs.mask is not None:
        parts.append(block_of(inputs.mask, queries, keys))
    if inputs.bias is not None:
        parts.append(block_of(inputs.bias, queries, keys) > -jnp.inf)
    return masks.combine(*(jnp.expand_dims(p, tuple(range(rank - p.ndim))) for p in parts))


def block_of(array: jax.Array, queries: Span, keys: Span) -> jax.Array:
    """Cuts a block out of a mask or bias.

    Args:
        array: `[..., T, S]`, 1 where it does not vary.
        queries: first query of the block, which may be traced, and their number.
        keys: first key, and their number.

    Returns:
        `[..., t, s]`, 1 where it does not vary.
    """
    for axis, span in ((-2, queries), (-1, keys)):
        if array.shape[axis] > 1:
            array = cut(array, span, axis=axis)
    return array


def cut(array: jax.Array, span: Span, *, axis: int) -> jax.Array:
    """Slices along one axis, from a start that may be traced.

    Args:
        array: any.
        span: start and size.
        axis: to slice.

    Returns:
        The array with that axis of the span's size.
    """
    start, size = span
    if isinstance(start, int):
        return jax.lax.slice_in_dim(array, start, start + size, axis=axis)
    return jax.lax.dynamic_slice_in_dim(array, start, size, axis=axis)


def zero_unseen(inputs: AttentionInputs, seen: jax.Array | None) -> AttentionInputs:
    """Zeroes queries beyond their length, and keys and values that no query of no head may see.

    What is in them could be NaN or Inf, and 0 * NaN would be NaN.

    Args:
        inputs: as prepared.
        seen: bool `[..., N, S]`, of that rank, 1 where it does not vary: whether a query of this
            head sees the key; None = all are seen.

    Returns:
        The inputs with zeros there.
    """

    def keep(kept: jax.Array, array: jax.Array) -> jax.Array:
        return jnp.where(jnp.broadcast_to(kept, array.shape), array, 0)

    if inputs.structure.query_lengths is not None:
        real = masks.padding(inputs.structure.query_lengths, inputs.query.shape[-3])
        real = jnp.expand_dims(real, tuple(range(inputs.query.ndim - real.ndim)))
        real = rearrange(real, "... 1 1 t -> ... t 1 1")
        inputs = inputs._replace(query=keep(real, inputs.query))
    if seen is None:
        return inputs
    if seen.shape[-2] > 1:
        seen = rearrange(seen, "... (k g) s -> ... k g s", k=inputs.key.shape[-2]).any(axis=-2)
    seen = rearrange(seen, "... k s -> ... s k 1")
    value = None if inputs.value is None else keep(seen, inputs.value)
    return inputs._replace(key=keep(seen, inputs.key), value=value)
