"""Attention mask and bias of one block of queries and keys; zeroing of what no query reads."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.functional import masks
from jaxformer.functional.attention.inputs import AttentionInputs, Structure
from jaxformer.functional.dtypes import at_least

Slice = tuple[int | jax.Array, int]
"""Start (may be traced) and size of a slice along one axis."""


def block_mask(
    inputs: AttentionInputs, queries: Slice, keys: Slice, *, keys_first: bool = False
) -> jax.Array | None:
    """Mask of one block, bool `[..., N, t, s]`, or `[..., N, s, t]` with keys_first; None = all."""
    arrays: list[jax.Array] = []
    if inputs.mask is not None:
        arrays.append(slice_block(inputs.mask, queries, keys))
    if inputs.bias is not None:
        # Not `isfinite`: a NaN in a bias must reach the output, not be hidden.
        arrays.append(slice_block(inputs.bias, queries, keys) != -jnp.inf)
    structure = inputs.structure
    if keys_first:
        # Without a barrier, XLA would transpose element by element where the mask is used. The
        # structure's masks are computed in this order, several times as fast as a transpose.
        arrays = [in_memory(rearrange(array, "... t s -> ... s t")) for array in arrays]
        structure, queries, keys = structure.transposed, keys, queries
    parts = [*_structure_masks(structure, queries, keys), *arrays]
    return masks.combine(*(masks.to_rank(part, inputs.query.ndim) for part in parts))


def _structure_masks(structure: Structure, queries: Slice, keys: Slice) -> Iterator[jax.Array]:
    """Masks of one block by a structure, of the rank of `[..., 1, t, s]` at most."""
    (first_query, num_queries), (first_key, num_keys) = queries, keys
    if structure.window != (None, None):
        # Mask functions count from 0, so the block's distance from the diagonal is an offset.
        offset = structure.offset + (first_query - first_key)
        yield masks.window(num_queries, num_keys, structure.window, offset)
    if structure.key_lengths is not None:
        yield masks.first_keys(structure.key_lengths - first_key, num_keys)
    if structure.query_lengths is not None:
        real = masks.first_keys(structure.query_lengths - first_query, num_queries)
        yield rearrange(real, "... 1 1 t -> ... 1 t 1")
    if structure.query_ids is not None and structure.key_ids is not None:
        query_ids = slice_axis(structure.query_ids, queries, axis=-1)
        key_ids = slice_axis(structure.key_ids, keys, axis=-1)
        yield masks.segments(query_ids, key_ids)


def in_memory(array: jax.Array) -> jax.Array:
    """The array, which XLA then computes as it is, in this order of its axes."""
    return jax.lax.optimization_barrier(array)


def full_mask(inputs: AttentionInputs) -> jax.Array | None:
    """Boolean attention mask of all queries and keys, like `block_mask`."""
    return block_mask(inputs, (0, inputs.query.shape[-3]), (0, inputs.key.shape[-3]))


def block_bias(
    inputs: AttentionInputs, queries: Slice, keys: Slice, zero: int | jax.Array = 0
) -> jax.Array | None:
    """Sum of the biases of a block, float32 or 64, of the rank of `[..., N, t, s]`; None = none."""
    wide, rank = at_least(inputs.query.dtype, jnp.float32), inputs.query.ndim
    bias = None
    if inputs.bias is not None:
        bias = slice_block(inputs.bias, queries, keys).astype(wide)
    if inputs.position_bias is None:
        return bias
    (first_query, num_queries), (first_key, num_keys) = queries, keys
    # A traced `zero` keeps XLA from computing the biases of all blocks before a loop.
    offset = inputs.structure.offset + (first_query + zero - first_key)
    by_distance = inputs.position_bias.array(num_queries, num_keys, offset)
    by_distance = masks.to_rank(by_distance, rank)
    return by_distance if bias is None else bias + by_distance


def full_bias(inputs: AttentionInputs) -> jax.Array | None:
    """Sum of the biases of all queries and keys, like `block_bias`."""
    return block_bias(inputs, (0, inputs.query.shape[-3]), (0, inputs.key.shape[-3]))


def slice_block(array: jax.Array, queries: Slice, keys: Slice) -> jax.Array:
    """Block `[..., t, s]` of a mask or bias `[..., T, S]`; axes of size 1 stay."""
    for axis, part in ((-2, queries), (-1, keys)):
        if array.shape[axis] != 1:
            array = slice_axis(array, part, axis=axis)
    return array


def slice_axis(array: jax.Array, part: Slice, *, axis: int) -> jax.Array:
    """Slice along one axis, from a start that may be traced."""
    start, size = part
    if isinstance(start, int) and (start, size) == (0, array.shape[axis]):
        return array
    # The gradient of a static slice is a pad; of a dynamic one, an update of the whole array.
    if isinstance(start, int):
        return jax.lax.slice_in_dim(array, start, start + size, axis=axis)
    return jax.lax.dynamic_slice_in_dim(array, start, size, axis=axis)


def zero_hidden(inputs: AttentionInputs, visible: jax.Array | None) -> AttentionInputs:
    """Zeroes queries beyond their length, and keys and values not `visible`, bool `[..., N, S]`."""
    # Weights of 0 alone would not keep a NaN out of the output, because 0 * NaN is NaN.
    if inputs.structure.query_lengths is not None:
        real = masks.first_keys(inputs.structure.query_lengths, inputs.query.shape[-3])
        real = rearrange(masks.to_rank(real, inputs.query.ndim), "... 1 1 t -> ... t 1 1")
        inputs = inputs._replace(query=_keep(real, inputs.query))
    if visible is None:
        return inputs
    if visible.shape[-2] > 1:
        # A key is visible if any of the query heads that share its head attends to it.
        kv_heads = inputs.key.shape[-2]
        visible = rearrange(visible, "... (k g) s -> ... k g s", k=kv_heads).any(axis=-2)
    visible = rearrange(visible, "... k s -> ... s k 1")
    return inputs._replace(key=_keep(visible, inputs.key), value=_keep(visible, inputs.value))


def _keep(visible: jax.Array, array: jax.Array) -> jax.Array:
    return jnp.where(jnp.broadcast_to(visible, array.shape), array, 0)
