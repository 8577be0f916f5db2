"""Zeros in place of what no query sees, which a fused kernel would multiply."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.functional.attention.block import zero_except
from jaxformer.functional.attention.inputs import AttentionInputs
from jaxformer.functional.attention.plan import BlockLoop, visible_key_range
from jaxformer.functional.masks.checks import Integers
from jaxformer.functional.masks.parts import mask_parts
from jaxformer.functional.masks.rules import Lengths
from jaxformer.functional.masks.tiles import Slice, Tile, slice_axis, to_rank


def visible_keys(inputs: AttentionInputs, loops: tuple[BlockLoop, ...]) -> jax.Array | None:
    """Mask of keys that some query sees: bool `[..., N, S]`, or None if all are seen."""
    num_keys = inputs.key.shape[-3]
    if (
        inputs.bias is None
        and not jax.tree.leaves(inputs.mask)
        and not mask_parts(inputs.mask).rules
    ):
        # Only ints of windows and lengths hide keys, and they determine which: nothing to compute.
        seen = visible_key_range(inputs.mask, range(inputs.query.shape[-3]), num_keys)
        if len(seen) == num_keys:
            return None
        keys = jnp.arange(num_keys)
        return to_rank((keys >= seen.start) & (keys < seen.stop), inputs.query.ndim - 1)
    # Block by block, so that no [T, S] mask is held, from that of no queries, for its shape.
    visible = _visible_to(inputs, (0, 0), (0, num_keys))
    visible = jnp.broadcast_to(visible, (*visible.shape[:-1], num_keys))

    def add_block(
        loop: BlockLoop, visible: jax.Array, starts: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, None]:
        first_query, first_key = starts
        keys = (first_key, loop.num_keys)
        in_block = _visible_to(inputs, (first_query, loop.num_queries), keys)
        union = slice_axis(visible, keys, axis=-1) | in_block
        return jax.lax.dynamic_update_slice_in_dim(visible, union, first_key, axis=-1), None

    for loop in loops:
        if loop.num_keys:
            visible, _ = jax.lax.scan(functools.partial(add_block, loop), visible, loop.starts)
    return visible


def _visible_to(inputs: AttentionInputs, queries: Slice, keys: Slice) -> jax.Array:
    """Mask of keys that some of these queries see: bool `[..., N, s]`, as in `mask_of`."""
    mask = inputs.mask_of(queries, keys)
    return jnp.ones((1,) * (inputs.query.ndim - 1), bool) if mask is None else mask.any(-2)


def zero_hidden(inputs: AttentionInputs, visible: jax.Array | None) -> AttentionInputs:
    """Zeroes keys and values that are not `visible`, bool `[..., N, S]`; None = all are."""
    if visible is None:
        return inputs
    if visible.shape[-2] > 1:
        # A key is visible if any of the query heads that share its head attends to it.
        kv_heads = inputs.key.shape[-2]
        visible = rearrange(visible, "... (k g) s -> ... k g s", k=kv_heads).any(axis=-2)
    visible = rearrange(visible, "... k s -> ... s k 1")
    key, value = (zero_except(visible, array) for array in (inputs.key, inputs.value))
    return dataclasses.replace(inputs, key=key, value=value)


def keep_real(array: jax.Array, lengths: Integers | None) -> jax.Array:
    """`[..., T, N, H]` with zeros in place of queries at or beyond their length, `[...]`."""
    if lengths is None:
        return array
    tile = Tile((0, array.shape[-3]), (0, 1), array.shape[:-3])
    is_real = rearrange(Lengths(queries=lengths).allows(tile), "... 1 t 1 -> ... t 1 1")
    return zero_except(is_real, array)
