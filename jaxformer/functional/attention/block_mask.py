"""Attention mask and bias of one block of queries and keys; zeroing of what no query reads."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.functional.attention.inputs import AttentionInputs
from jaxformer.functional.attention.plan import BlockLoop, visible_key_range
from jaxformer.functional.dtypes import at_least
from jaxformer.functional.masks.base import And, Mask
from jaxformer.functional.masks.checks import Integers
from jaxformer.functional.masks.rules import Lengths, Segments, Window
from jaxformer.functional.masks.tiles import Slice, Tile, slice_axis, to_rank


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


def visible_keys(inputs: AttentionInputs, loops: tuple[BlockLoop, ...]) -> jax.Array | None:
    """Mask of keys that some query sees: bool `[..., N, S]`, or None if all are seen."""
    num_keys = inputs.key.shape[-3]
    if (
        inputs.bias is None
        and not jax.tree.leaves(inputs.mask)
        and not mask_parts(inputs.mask).rest
    ):
        # Only ints of windows and lengths hide keys, and they determine which: nothing to compute.
        first, last = visible_key_range(inputs.mask, num_keys, 0, inputs.query.shape[-3])
        if (first, last) == (0, num_keys):
            return None
        keys = jnp.arange(num_keys)
        return to_rank((keys >= first) & (keys < last), inputs.query.ndim - 1)
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
    """Mask of keys that some of these queries see: bool `[..., N, s]`, as in `block_mask`."""
    mask = block_mask(inputs, queries, keys)
    return jnp.ones((1,) * (inputs.query.ndim - 1), bool) if mask is None else mask.any(-2)


def zero_hidden(inputs: AttentionInputs, visible: jax.Array | None) -> AttentionInputs:
    """Zeroes keys and values that are not `visible`, bool `[..., N, S]`; None = all are."""
    # Weights of 0 alone would not keep a NaN out of the output, because 0 * NaN is NaN.
    if visible is None:
        return inputs
    if visible.shape[-2] > 1:
        # A key is visible if any of the query heads that share its head attends to it.
        kv_heads = inputs.key.shape[-2]
        visible = rearrange(visible, "... (k g) s -> ... k g s", k=kv_heads).any(axis=-2)
    visible = rearrange(visible, "... k s -> ... s k 1")
    return inputs._replace(key=_keep(visible, inputs.key), value=_keep(visible, inputs.value))


def keep_real(array: jax.Array, lengths: Integers | None, fill: float) -> jax.Array:
    """`[..., T, N, H]` with a value in place of queries at or beyond their length, `[...]`."""
    if lengths is None:
        return array
    tile = Tile((0, array.shape[-3]), (0, 1), array.shape[:-3])
    real = rearrange(Lengths(queries=lengths).allows(tile), "... 1 t 1 -> ... t 1 1")
    return jnp.where(jnp.broadcast_to(real, array.shape), array, fill)


def _keep(visible: jax.Array, array: jax.Array) -> jax.Array:
    return jnp.where(jnp.broadcast_to(visible, array.shape), array, 0)


_ALL_REAL = Lengths()


class MaskParts(NamedTuple):
    """The parts of a mask that kernels know; a query sees the keys that all of them allow."""

    window: Window = Window(None, None)
    lengths: Lengths = _ALL_REAL
    segments: Segments | None = None
    rest: tuple[Mask, ...] = ()


def mask_parts(mask: Mask | None) -> MaskParts:
    """Splits a checked mask; of several windows with one offset, the narrower sides."""
    parts = MaskParts()
    for rule in mask.rules if isinstance(mask, And) else (mask,):
        if isinstance(rule, Window) and (window := _narrower(parts.window, rule)) is not None:
            parts = parts._replace(window=window)
        elif isinstance(rule, Lengths) and parts.lengths is _ALL_REAL:
            parts = parts._replace(lengths=rule)
        elif isinstance(rule, Segments) and parts.segments is None:
            parts = parts._replace(segments=rule)
        elif rule is not None:
            parts = parts._replace(rest=(*parts.rest, rule))
    return parts


def _narrower(window: Window, other: Window) -> Window | None:
    """The window that two allow; None if they are not at the same known offset."""
    if window.left is None and window.right is None:
        return other
    if not (isinstance(window.offset, int) and isinstance(other.offset, int)):
        return None
    if window.offset != other.offset:
        return None
    left, right = (
        min((side for side in sides if side is not None), default=None)
        for sides in ((window.left, other.left), (window.right, other.right))
    )
    return Window(left, right, window.offset)
