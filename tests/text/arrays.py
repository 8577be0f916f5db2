"""Batches and examples: dicts of arrays, compared and joined."""

import numpy as np

from jaxformer.text import Host


def assert_same(batch, other):
    assert batch.keys() == other.keys()
    for name in batch:
        np.testing.assert_array_equal(batch[name], other[name], strict=True)


def joined(parts):
    """The batch whose rows those of several hosts are."""
    assert all(part.keys() == parts[0].keys() for part in parts)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def assert_hosts_share(make, num_hosts, steps, once=True):
    """The rows of hosts make up the global batch, in each step and in `once()`."""
    whole, hosts = make(Host()), [make(Host(index, num_hosts)) for index in range(num_hosts)]
    for step in steps:
        assert_same(joined([host[step] for host in hosts]), whole[step])
    if once:
        for batch, *parts in zip(whole.once(), *(host.once() for host in hosts), strict=True):
            assert_same(joined(parts), batch)
