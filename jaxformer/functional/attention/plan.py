"""Which blocks of queries chunked attention computes, and which keys each of them may see."""

from typing import NamedTuple

from jaxformer.functional.attention.inputs import Structure

__all__ = ["Run", "plan_runs", "visible_keys"]

_MAX_RUNS = 8  # each is compiled by itself


class Run(NamedTuple):
    """Blocks that one loop computes, because they have the same size.

    Args:
        first_query: of the first block.
        num_queries: of each block.
        first_keys: one for each block.
        num_keys: of each block; 0 = nothing to see.
    """

    first_query: int
    num_queries: int
    first_keys: tuple[int, ...]
    num_keys: int


def plan_runs(structure: Structure, num_queries: int, num_keys: int, block: int) -> tuple[Run, ...]:
    """Cuts the queries into blocks, finds the keys that each may see, and joins equal blocks.

    Args:
        structure: what limits a query's sight.
        num_queries: T.
        num_keys: S.
        block: queries in a block; the last has the rest.

    Returns:
        Runs of blocks, in order, with all queries in them.

    Example:
        >>> from jaxformer.functional.attention.inputs import Structure
        >>> causal = Structure((None, 0), 0, None, None, None, None)
        >>> plan_runs(causal, 5, 5, block=2)[1:]
        (Run(first_query=2, num_queries=2, first_keys=(0,), num_keys=4), \
Run(first_query=4, num_queries=1, first_keys=(0,), num_keys=5))
    """
    num_full, rest = divmod(num_queries, block)
    seen = [visible_keys(structure, num_keys, i * block, (i + 1) * block) for i in range(num_full)]
    group_size = max(1, -(-num_full // _MAX_RUNS))
    runs: list[Run] = []
    for i in range(0, num_full, group_size):
        group = seen[i : i + group_size]
        width = max(last - first for first, last in group)
        firsts = tuple(min(first, num_keys - width) for first, _ in group)
        if runs and runs[-1].num_keys == width:
            runs[-1] = runs[-1]._replace(first_keys=runs[-1].first_keys + firsts)
        else:
            runs.append(Run(i * block, block, firsts, width))
    if rest:
        first, last = visible_keys(structure, num_keys, num_queries - rest, num_queries)
        runs.append(Run(num_queries - rest, rest, (first,), last - first))
    return tuple(runs)


def visible_keys(structure: Structure, num_keys: int, start: int, stop: int) -> tuple[int, int]:
    """Finds the keys that some query may see, as far as ints tell; segments are not looked at.

    Args:
        structure: what limits a query's sight.
        num_keys: S.
        start: first query.
        stop: the one after the last query.

    Returns:
        First key, and the one after the last; (0, 0) for none.

    Example:
        >>> from jaxformer.functional.attention.inputs import Structure
        >>> visible_keys(Structure((2, 0), 0, None, None, None, None), 9, 4, 6)
        (2, 6)
    """
    (left, right), offset = structure.window, structure.offset
    first, last = 0, num_keys
    if isinstance(structure.key_lengths, int):
        last = structure.key_lengths
    if isinstance(structure.query_lengths, int):
        stop = min(stop, structure.query_lengths)
    if isinstance(offset, int):
        first = first if left is None else max(first, start + offset - left)
        last = last if right is None else min(last, stop + offset + right)
    return (first, last) if start < stop and first < last else (0, 0)
