"""Batches and examples: dicts of arrays, compared and joined."""

import numpy as np


def assert_same(batch, other):
    assert batch.keys() == other.keys()
    for name in batch:
        np.testing.assert_array_equal(batch[name], other[name], strict=True)


def joined(parts):
    """The batch whose rows those of several hosts are."""
    assert all(part.keys() == parts[0].keys() for part in parts)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
