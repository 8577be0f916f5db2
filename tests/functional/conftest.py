"""Chunked attention in blocks small enough that the few tokens of a test fill several."""

import pytest

from jaxformer.functional.attention import plan, program
from jaxformer.functional.attention.chunked import BlockSizes


@pytest.fixture(autouse=True, scope="package")
def small_blocks():
    """Three queries and one key head at a time, and one loop over the full blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "block_sizes", _small_blocks)
        patch.setattr(plan, "_MAX_LOOPS", 1)
        yield patch


@pytest.fixture
def real_blocks(small_blocks):
    """The blocks that users get."""
    with small_blocks.context() as patch:
        patch.setattr(program, "block_sizes", _BLOCK_SIZES)
        patch.setattr(plan, "_MAX_LOOPS", _MAX_LOOPS)
        yield


_BLOCK_SIZES, _MAX_LOOPS = program.block_sizes, plan._MAX_LOOPS


def _small_blocks(inputs, platform):
    return BlockSizes(min(3, inputs.query.shape[-3]), 1)
