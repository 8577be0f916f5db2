"""Plans blocks of attention: blocks of queries, and the keys visible to each."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.functional.masks.base import Mask

# Each loop is compiled separately, so this bounds the program size. More loops fit causal attention
# more closely: 8 compute 9/16 of all weights, of which 1/2 are visible.
_MAX_LOOPS = 8


class BlockLoop(NamedTuple):
    """Blocks of equally many queries; block i has the keys from `first_keys[i]` on, or no keys."""

    first_query: int
    num_queries: int
    first_keys: tuple[int, ...]
    num_keys: int

    @property
    def starts(self) -> tuple[jax.Array, jax.Array]:
        """First query and first key of each block: two integer `[n]`."""
        first_queries = self.first_query + self.num_queries * jnp.arange(len(self.first_keys))
        return first_queries, jnp.asarray(self.first_keys)


def plan_loops(
    mask: Mask | None, num_queries: int, num_keys: int, block: int
) -> tuple[BlockLoop, ...]:
    """Cuts the queries into blocks with the keys visible to each, and groups neighbours."""
    # A compiled loop has one shape for all its blocks, so each pays for the widest. Causality,
    # window and lengths change the width little from one block to the next: neighbours waste least.
    num_full, num_last = divmod(num_queries, block)
    full_blocks = (range(i * block, (i + 1) * block) for i in range(num_full))
    visible_keys = [visible_key_range(mask, queries, num_keys) for queries in full_blocks]
    group_size = max(1, -(-num_full // _MAX_LOOPS))
    loops: list[BlockLoop] = []
    for i in range(0, num_full, group_size):
        group = visible_keys[i : i + group_size]
        # All blocks of a loop have the shape of the widest. A narrower one that would end beyond
        # the last key starts earlier instead, and its mask hides the extra keys.
        width = max(map(len, group))
        first_keys = tuple(min(keys.start, num_keys - width) for keys in group)
        if loops and loops[-1].num_keys == width:
            loops[-1] = loops[-1]._replace(first_keys=loops[-1].first_keys + first_keys)
        else:
            loops.append(BlockLoop(i * block, block, first_keys, width))
    if num_last:
        first_query = num_queries - num_last
        keys = visible_key_range(mask, range(first_query, num_queries), num_keys)
        loops.append(BlockLoop(first_query, num_last, (keys.start,), len(keys)))
    return tuple(loops)


def visible_key_range(mask: Mask | None, queries: range, num_keys: int) -> range:
    """Range of keys that queries may see, range(0) for none; ignores what is traced."""
    keys = range(num_keys)
    if mask is not None:
        queries, keys = mask.visible_part(queries, keys)
    return keys if queries and keys else range(0)
