"""The blocks that chunked attention computes: all that is visible, and little else."""

from unittest import mock

import hypothesis
import hypothesis.strategies as st
import numpy as np

from jaxformer.functional.attention import plan
from jaxformer.functional.masks import Lengths, Window

SIDES = st.none() | st.integers(0, 12)


@hypothesis.given(
    window=st.tuples(SIDES, SIDES),
    offset=st.integers(-40, 40),
    sizes=st.tuples(st.integers(1, 30), st.integers(0, 30)),
    lengths=st.tuples(st.none() | st.integers(0, 30), st.none() | st.integers(0, 30)),
    block=st.integers(1, 9),
    max_loops=st.integers(1, 4),
)
@hypothesis.settings(max_examples=500, deadline=None)
def test_plan_covers_every_query_and_every_key_that_it_sees(
    window, offset, sizes, lengths, block, max_loops
):
    num_queries, num_keys = sizes
    query_length, key_length = (
        None if length is None else min(length, size)
        for length, size in zip(lengths, sizes, strict=True)
    )
    left, right = window
    rule = Window(*window, offset) & Lengths(query_length, key_length)
    with mock.patch.object(plan, "_MAX_LOOPS", max_loops):
        loops = plan.plan_loops(rule, num_queries, num_keys, block)

    position, key = np.ogrid[offset : offset + num_queries, :num_keys]
    seen = np.ones((num_queries, num_keys), bool)
    if left is not None:
        seen &= key >= position - left
    if right is not None:
        seen &= key <= position + right
    if query_length is not None:
        seen[query_length:] = False
    if key_length is not None:
        seen[:, key_length:] = False

    next_query = 0
    for loop in loops:
        assert loop.first_query == next_query
        widths = []
        for first_key in loop.first_keys:
            rows = seen[next_query : next_query + loop.num_queries]
            assert len(rows) == loop.num_queries
            assert 0 <= first_key <= first_key + loop.num_keys <= num_keys
            assert not rows[:, :first_key].any()
            assert not rows[:, first_key + loop.num_keys :].any()
            columns = np.flatnonzero(rows.any(axis=0))
            widths.append(columns[-1] - columns[0] + 1 if columns.size else 0)
            next_query += loop.num_queries
        assert loop.num_keys == max(widths)  # no wider than its widest block
    assert next_query == num_queries
    assert len(loops) <= max_loops + 1  # and the rest
    everything = plan.visible_key_range(rule, range(num_queries), num_keys)
    columns = np.flatnonzero(seen.any(axis=0))
    assert everything == (range(columns[0], columns[-1] + 1) if columns.size else range(0))
