"""Chunked attention in blocks small enough that the few tokens of a test fill several."""

import pytest

from jaxformer.functional.attention import chunked, plan


@pytest.fixture(autouse=True, scope="package")
def small_blocks():
    """Three queries and one key head at a time, and one loop over the full blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked, "_block_size", lambda inputs: (min(3, inputs.query.shape[-3]), 1))
        patch.setattr(plan, "_MAX_LOOPS", 1)
        yield patch


@pytest.fixture
def real_blocks(small_blocks):
    """The blocks that users get."""
    with small_blocks.context() as patch:
        patch.setattr(chunked, "_block_size", _BLOCK_SIZE)
        patch.setattr(plan, "_MAX_LOOPS", _MAX_LOOPS)
        yield


_BLOCK_SIZE, _MAX_LOOPS = chunked._block_size, plan._MAX_LOOPS
