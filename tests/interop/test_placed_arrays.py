"""Arrays that are filled in parts, whole or as the shards of several devices."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxformer.interop.conversion.placed_arrays import PlacedArray

LAYERS, EXPERTS, D, F = 2, 6, 4, 10
VALUES = np.arange(LAYERS * EXPERTS * D * F, dtype=np.float32).reshape(LAYERS, EXPERTS, D, F)


# Axes that are split, by the axes of a mesh of 2 x 2 devices, and how many parts that makes.
@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ((), 1), (("x",), 2), ((None, "x"), 2), ((None, None, "x", "y"), 4),
        (("y", None, ("x",)), 4), ((None, None, ("x", "y")), 4),
    ],
)  # fmt: skip
@pytest.mark.parametrize("given", [0, 1, 2], ids="{} leading axes at a time".format)
def test_array_is_split_as_device_put_splits_it_and_replicas_share_memory(spec, parts, given):
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    array = PlacedArray(VALUES.shape, np.float32, sharding)
    for at in np.ndindex(VALUES.shape[:given]):
        array.fill(at, VALUES[at].astype(np.float64))
    found = array.put()
    expected = jax.device_put(VALUES, sharding)
    assert found.sharding == expected.sharding and found.dtype == expected.dtype
    for one, other in zip(found.addressable_shards, expected.addressable_shards, strict=True):
        assert one.device == other.device
        np.testing.assert_array_equal(one.data, other.data)
    # Of the CPU, whose devices take the memory as it is.
    pointers = {shard.data.unsafe_buffer_pointer() for shard in found.addressable_shards}
    assert len(pointers) == parts


@pytest.mark.parametrize("place", [None, "device", "sharding"])
def test_array_for_one_device_is_whole(place):
    device = jax.devices()[3]
    places = {"device": device, "sharding": jax.sharding.SingleDeviceSharding(device)}
    array = PlacedArray(VALUES.shape, np.float32, places.get(place))
    array.fill((), VALUES)
    (memory,) = array._buffers.values()
    found = array.put()
    assert found.unsafe_buffer_pointer() == memory.ctypes.data  # not a copy
    assert found.devices() == {jax.devices()[0] if place is None else device}
    np.testing.assert_array_equal(found, VALUES)
