"""The arguments of attention: checked, completed, and turned into one mask of what is allowed."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional import masks
from jaxformer.functional.shapes import (
    Array,
    check_axes,
    check_broadcast,
    check_dtype,
    check_leading,
    describe,
)

__all__ = ["AttentionInputs", "Lengths", "WindowSize", "prepare_attention", "zero_unseen"]

Lengths = int | Array
WindowSize = int | tuple[int | None, int | None]


class AttentionInputs(NamedTuple):
    """What every implementation of attention starts from.

    Args:
        query: float `[..., T, N, H]`.
        key: float `[..., S, K, H]`.
        value: float `[..., S, K, Hv]`; None for weights alone.
        bias: float of the rank of the weights, or None.
        allowed: bool that broadcasts to `[..., N, T, S]`, of its rank; None = everything.
        real_queries: bool `[..., T, 1, 1]`, rows within their length; None = all.
        scale: factor of the scores.
        softcap: cap of the scores, or None.
        wide_dtype: of scores and softmax.
    """

    query: jax.Array
    key: jax.Array
    value: jax.Array | None
    bias: jax.Array | None
    allowed: jax.Array | None
    real_queries: jax.Array | None
    scale: float
    softcap: float | None
    wide_dtype: jnp.dtype


def prepare_attention(
    query: Array,
    key: Array,
    value: Array | None,
    bias: Array | None,
    mask: Array | None,
    *,
    scale: float | None,
    is_causal: bool,
    query_offset: Lengths | None,
    query_seq_lengths: Lengths | None,
    key_value_seq_lengths: Lengths | None,
    local_window_size: WindowSize | None,
    query_segment_ids: Array | None,
    key_value_segment_ids: Array | None,
    softcap: float | None,
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
        sizes, leading, is_causal, query_offset, local_window_size,
        query_segment_ids, key_value_segment_ids,
    )  # fmt: skip
    if key_value_seq_lengths is not None:
        lengths = _per_row("key_value_seq_lengths", key_value_seq_lengths, leading, sizes["S"])
        structure.append(masks.padding(lengths, sizes["S"]))
    real_queries = None
    if query_seq_lengths is not None:
        lengths = _per_row("query_seq_lengths", query_seq_lengths, leading, sizes["T"])
        real_queries = rearrange(masks.padding(lengths, sizes["T"]), "... 1 1 t -> ... t 1 1")
        structure.append(rearrange(real_queries, "... t 1 1 -> ... 1 t 1"))
    allowed = masks.combine(mask, *structure, None if bias is None else bias > -jnp.inf)
    if allowed is not None:
        allowed = jnp.expand_dims(allowed, tuple(range(len(weights_shape) - allowed.ndim)))
    return AttentionInputs(
        query=query, key=key, value=value, bias=bias, allowed=allowed, real_queries=real_queries,
        scale=1 / math.sqrt(sizes["H"]) if scale is None else scale, softcap=softcap,
        wide_dtype=jnp.promote_types(query.dtype, jnp.float32),
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
    local_window_size: WindowSize | None,
    query_segment_ids: Array | None,
    key_value_segment_ids: Array | None,
) -> list[jax.Array]:
    """Builds the masks that causal, window and segment ids stand for."""
    num_queries, num_keys = sizes["T"], sizes["S"]
    result: list[jax.Array] = []
    if query_offset is not None and not is_causal and local_window_size is None:
        raise ShapeError(
            f"query_offset is for is_causal and local_window_size, got {query_offset} and neither; "
            "leave it out, or set one of them"
        )
    if is_causal or local_window_size is not None:
        if query_offset is None:
            if num_queries != num_keys:
                raise ShapeError(
                    "is_causal and local_window_size need query_offset when T and S differ, got "
                    f"T={num_queries} and S={num_keys}; 0 aligns the first query with the first "
                    f"key, S - T = {num_keys - num_queries} the last with the last"
                )
            query_offset = 0
        offset: Lengths = query_offset
        if not isinstance(query_offset, int):
            offset = _per_row("query_offset", query_offset, leading, None)
        if is_causal:
            result.append(masks.causal(num_queries, num_keys, offset))
        if local_window_size is not None:
            masks.check_window("local_window_size", local_window_size)
            result.append(masks.window(num_queries, num_keys, local_window_size, offset))
    if (query_segment_ids is None) != (key_value_segment_ids is None):
        given = "query" if key_value_segment_ids is None else "key_value"
        raise ShapeError(
            "query_segment_ids and key_value_segment_ids go together, got only "
            f"{given}_segment_ids; for self-attention pass the same array twice"
        )
    if query_segment_ids is not None and key_value_segment_ids is not None:
        query_ids, key_ids = jnp.asarray(query_segment_ids), jnp.asarray(key_value_segment_ids)
        check_dtype("query_segment_ids", query_ids, "integer")
        check_dtype("key_value_segment_ids", key_ids, "integer")
        check_axes("query_segment_ids", query_ids, "... T", {"T": num_queries})
        check_leading("query_segment_ids", query_ids, 1, leading)
        check_axes("key_value_segment_ids", key_ids, "... S", {"S": num_keys})
        check_leading("key_value_segment_ids", key_ids, 1, leading)
        result.append(masks.segments(query_ids, key_ids))
    return result


def _per_row(
    name: str, values: Lengths, leading: tuple[int, ...], largest: int | None
) -> jax.Array:
    """Broadcasts ints or integer arrays to the leading axes; checks the range where it is known."""
    if largest is not None and isinstance(values, int | np.ndarray | np.integer):
        known = np.asarray(values)
        if known.size and (known.min() < 0 or known.max() > largest):
            raise ShapeError(f"{name} must be in 0 .. {largest}, got {values}")
    array = jnp.asarray(values)
    check_dtype(name, array, "integer")
    if array.ndim > len(leading):
        raise ShapeError(
            f"{name} must broadcast to the leading axes {leading}, got shape {array.shape}"
        )
    array = jnp.expand_dims(array, tuple(range(len(leading) - array.ndim)))
    check_broadcast(name, array, leading, "...", remedy="one value per row, or a single one")
    return jnp.broadcast_to(array, leading)


def zero_unseen(inputs: AttentionInputs) -> AttentionInputs:
    """Zeroes queries beyond their length, and keys and values that no query of no head may see.

    What is in them could be NaN or Inf, and 0 * NaN would be NaN.

    Args:
        inputs: as prepared.

    Returns:
        The inputs with zeros there.
    """

    def keep(kept: jax.Array, array: jax.Array) -> jax.Array:
        return jnp.where(jnp.broadcast_to(kept, array.shape), array, 0)

    if inputs.real_queries is not None:
        inputs = inputs._replace(query=keep(inputs.real_queries, inputs.query))
    if inputs.allowed is None:
        return inputs
    seen = inputs.allowed.any(axis=-2)  # [..., N or 1, S or 1]
    if seen.shape[-2] > 1:
        heads = inputs.key.shape[-2]
        seen = rearrange(seen, "... (k g) s -> ... k g s", k=heads).any(axis=-2)
    seen = rearrange(seen, "... k s -> ... s k 1")
    value = None if inputs.value is None else keep(seen, inputs.value)
    return inputs._replace(key=keep(seen, inputs.key), value=value)
