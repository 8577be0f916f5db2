"""The order of a sequence on a ring of devices, and the work of each of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jaxformer.functional import from_ring_order, ring_positions, to_ring_order
from jaxformer.functional.attention.ring.rounds import plan_blocks
from jaxformer.functional.masks import Window
from jaxformer.functional.masks.parts import MaskParts

T = 48


def visible_blocks(n, window):
    """Blocks that device i computes in step s, [i, s], by the table that decides on skipping."""
    _, kinds = plan_blocks(MaskParts(Window(*window)), 2 * n, 10)
    kinds, counts = np.asarray(kinds), np.zeros((n, n), int)
    for device, step in np.ndindex(n, n):
        source = (device - step) % n
        for query_chunk in (device, 2 * n - 1 - device):
            for key_chunk in (source, 2 * n - 1 - source):
                counts[device, step] += kinds[query_chunk, key_chunk] > 0
    return counts


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_causal_work_is_the_same_on_every_device_in_every_step(n):
    counts = visible_blocks(n, (None, 0))
    assert (counts[:, 0] == 3).all()
    assert (counts[:, 1:] == 2).all()


def test_a_window_bounds_the_work_of_a_device():
    assert visible_blocks(8, (None, None)).sum(axis=1).tolist() == [32] * 8
    # The chunk of the queries itself, and the one before it, which the first chunk has not.
    assert visible_blocks(8, (10, 0)).sum(axis=1).tolist() == [3] + [4] * 7


def test_ring_order_gives_device_i_the_chunks_i_and_2n_minus_1_minus_i():
    positions = to_ring_order(np.arange(24), 3, axis=0).reshape(3, 2, 4)
    for device in range(3):
        for half, chunk in enumerate((device, 5 - device)):
            assert positions[device, half].tolist() == list(range(4 * chunk, 4 * chunk + 4))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("array", [np, jnp])
def test_ring_order_is_undone_by_its_inverse(array, axis):
    x = array.arange(12 * 12 * 12).reshape(12, 12, 12)
    there = to_ring_order(x, 3, axis=axis)
    assert type(there) is type(x)
    assert not (there == x).all()
    assert (from_ring_order(there, 3, axis=axis) == x).all()


def test_ring_positions_are_those_of_the_rows_in_ring_order():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("sequence",))
    positions = jax.shard_map(
        lambda: ring_positions(6, axis_name="sequence"),
        mesh=mesh, in_specs=(), out_specs=PartitionSpec("sequence"),
    )()  # fmt: skip
    assert positions.dtype == np.int32
    assert positions.tolist() == to_ring_order(np.arange(T), 8, axis=0).tolist()
