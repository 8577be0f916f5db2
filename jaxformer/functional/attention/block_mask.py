"""Attention mask and bias of one block of queries and keys."""

import jax
import jax.numpy as jnp

from jaxformer.functional.attention.inputs import AttentionInputs
from jaxformer.functional.dtypes import at_least
from jaxformer.functional.masks.tiles import Slice, Tile, to_rank


def block_mask(inputs: AttentionInputs, queries: Slice, keys: Slice) -> jax.Array | None:
    """Mask of one block, bool `[..., N, t, s]`, size 1 where it does not vary; None = all."""
    tile = Tile(queries, keys, inputs.query.shape[:-3])
    allowed = None if inputs.mask is None else inputs.mask.allows(tile)
    if inputs.bias is None:
        return allowed
    # Not `isfinite`: a NaN in a bias must reach the output, not be hidden.
    by_bias = tile.block_of(inputs.bias) != -jnp.inf
    return by_bias if allowed is None else allowed & by_bias


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
        bias = Tile(queries, keys).block_of(inputs.bias).astype(wide)
    if inputs.position_bias is None:
        return bias
    (first_query, num_queries), (first_key, num_keys) = queries, keys
    # A traced `zero` keeps XLA from computing the biases of all blocks before a loop.
    offset = inputs.offset + (first_query + zero - first_key)
    by_distance = inputs.position_bias.array(num_queries, num_keys, offset)
    by_distance = to_rank(by_distance, rank)
    return by_distance if bias is None else bias + by_distance


def full_bias(inputs: AttentionInputs) -> jax.Array | None:
    """Sum of the biases of all queries and keys, like `block_bias`."""
    return block_bias(inputs, (0, inputs.query.shape[-3]), (0, inputs.key.shape[-3]))
