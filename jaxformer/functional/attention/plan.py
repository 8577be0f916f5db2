"""Plans blocks of attention: blocks of queries, and the keys visible to each."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.functional.masks.base import Mask, is_empty

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
    num_full, rest = divmod(num_queries, block)
    ranges = [
        visible_key_range(mask, num_keys, i * block, (i + 1) * block) for i in range(num_full)
    ]
    group_size = max(1, -(-num_full // _MAX_LOOPS))
    loops: list[BlockLoop] = []
    for i in range(0, num_full, group_size):
        group = ranges[i : i + group_size]
        # All blocks of a loop have the shape of the widest. A narrower one that would end beyond
        # the last key starts earlier instead, and its mask hides the extra keys.
        width = max(stop - start for start, stop in group)
        first_keys = tuple(min(start, num_keys - width) for start, _ in group)
        if loops and loops[-1].num_keys == width:
            loops[-1] = loops[-1]._replace(first_keys=loops[-1].first_keys + first_keys)
        else:
            loops.append(BlockLoop(i * block, block, first_keys, width))
    if rest:
        start, stop = visible_key_range(mask, num_keys, num_queries - rest, num_queries)
        loops.append(BlockLoop(num_queries - rest, rest, (start,), stop - start))
    return tuple(loops)


def visible_key_range(mask: Mask | None, num_keys: int, start: int, stop: int) -> tuple[int, int]:
    """Range of keys that queries may see, (0, 0) for none; ignores what is traced."""
    queries, keys = (start, stop), (0, num_keys)
    if mask is not None:
        queries, keys = mask.visible_part(queries, keys)
    return (0, 0) if is_empty(queries, keys) else keys
