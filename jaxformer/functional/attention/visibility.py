"""Who sees whom: the mask of one block of the weights, and keys that nobody sees."""

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.functional import masks
from jaxformer.functional.attention.inputs import AttentionInputs

__all__ = ["Span", "allowed_in", "block_of", "cut", "zero_unseen"]

Span = tuple[int | jax.Array, int]


def allowed_in(inputs: AttentionInputs, queries: Span, keys: Span) -> jax.Array | None:
    """Draws one block of what mask, structure and a bias other than -inf together allow.

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
        parts.append(block_of(inputs.bias, queries, keys) != -jnp.inf)  # NaN is not hidden
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
    return inputs._replace(key=keep(seen, inputs.key), value=keep(seen, inputs.value))
