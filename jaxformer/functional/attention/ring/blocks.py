"""Blocks of ring attention, a chunk of queries by a chunk of keys: which are computed, and masks.

Chunks are numbered 0 to 2n - 1 in the original order; the positions of their tokens follow.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange

from jaxformer.functional.masks.base import And, Mask, Moved, all_rules
from jaxformer.functional.masks.parts import MaskParts
from jaxformer.functional.masks.rules import Window


class BlockKind(NamedTuple):
    """What the mask of a block needs, as far as ints tell; blocks of a kind share a program."""

    window: bool  # whether the window hides a part of the block
    rest: bool  # whether the other rules may
    is_diagonal: bool  # whether the offset of the window is known: that of equal positions


def plan_blocks(mask: MaskParts, num_chunks: int, length: int) -> tuple[list[BlockKind], jax.Array]:
    """The kinds of blocks; and of each block, int `[2n, 2n]`, 0 if hidden, or 1 + its kind."""
    kinds: dict[BlockKind, int] = {}
    numbers = np.zeros((num_chunks, num_chunks), np.int32)
    rules = mask.window, _rest(mask)
    for chunks in np.ndindex(*numbers.shape):
        queries, keys = (range(chunk * length, (chunk + 1) * length) for chunk in chunks)
        if all(And(rules).visible_part(queries, keys)):
            window, rest = (all(rule.hidden_part(queries, keys)) for rule in rules)
            kind = BlockKind(window, rest, window and queries == keys)
            numbers[chunks] = kinds.setdefault(kind, len(kinds) + 1)
    return [*kinds], jnp.where(_may_be_visible(mask, num_chunks, length), numbers, 0)


def mask_of_block(
    mask: MaskParts, kind: BlockKind, first_query: jax.Array, first_key: jax.Array
) -> Mask | None:
    """The rule of a block whose queries and keys start at these positions."""
    # An int lets attention skip what lies above the diagonal.
    offset = mask.window.offset + (0 if kind.is_diagonal else first_query - first_key)
    window = Window(mask.window.left, mask.window.right, offset) if kind.window else None
    return all_rules(window, Moved(_rest(mask), first_query, first_key) if kind.rest else None)


def _rest(mask: MaskParts) -> Mask:
    """All rules but the window."""
    segments = () if mask.segments is None else (mask.segments,)
    return And((mask.lengths, *segments, *mask.rest))


def _may_be_visible(mask: MaskParts, num_chunks: int, length: int) -> jax.Array:
    """Whether lengths and segments, also traced, leave a part of a block: bool `[2n, 2n]`."""
    starts, lengths = length * jnp.arange(num_chunks), (mask.lengths.queries, mask.lengths.keys)
    visible = jnp.ones((num_chunks, num_chunks), bool)
    for numbers, pattern in zip(lengths, ("c -> c 1", "c -> 1 c"), strict=True):
        if numbers is not None:
            visible &= rearrange(starts < jnp.max(jnp.asarray(numbers), initial=0), pattern)
    if mask.segments is None:
        return visible
    ids = mask.segments.query_ids, mask.segments.key_ids
    query, key = (rearrange(jnp.asarray(x), "... (c t) -> ... c t", t=length) for x in ids)
    query, key = query[..., :, None, :], key[..., None, :, :]
    overlaps = (query.min(-1) <= key.max(-1)) & (key.min(-1) <= query.max(-1))
    return visible & overlaps.any(axis=range(overlaps.ndim - 2))
