"""Attention in blocks small enough that the few tokens of a test fill several."""

import pytest

from jaxformer.functional.attention import chunked


@pytest.fixture(autouse=True)
def small_blocks(request, monkeypatch):
    """Two queries and one key head at a time, except where a test is marked with real_blocks."""
    if "real_blocks" not in request.keywords:
        monkeypatch.setattr(chunked, "_block_size", lambda inputs: (2, 1))
        monkeypatch.setattr(chunked, "_MAX_RUNS", 2)
