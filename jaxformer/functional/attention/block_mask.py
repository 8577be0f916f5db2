"""Attention mask and bias of one block of queries and keys; zeroing of what no query reads."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.functional.attention.inputs import AttentionInputs
from jaxformer.functional.dtypes import at_least
from jaxformer.functional.masks.base import And, Mask
from jaxformer.functional.masks.checks import Integers
from jaxformer.functional.masks.rules import Lengths, Segments, Window
from jaxformer.functional.masks.tiles import Slice, Tile, to_rank


def block_mask(
    inputs: AttentionInputs, queries: Slice, keys: Slice, *, keys_first: bool = False
) -> jax.Array | None:
    """Mask of one block, bool `[..., N, t, s]`, or `[..., N, s, t]` with keys_first; None = all."""
    tile = Tile(queries, keys, inputs.query.shape[:-3], keys_first)
    allowed = None if inputs.mask is None else inputs.mask.allows(tile)
    if inputs.bias is None:
        return allowed
    # Not `isfinite`: a NaN in a bias must reach the output, not be hidden.
    by_bias = tile.ordered(tile.block_of(inputs.bias) != -jnp.inf)
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
