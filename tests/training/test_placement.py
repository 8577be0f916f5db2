"""Where a mesh has parameters and rows: rules, axes, hosts, and what cannot be placed."""

import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

from jaxformer.config import MESH_AXES, MeshConfig
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.text import Host
from jaxformer.training import MeshRunner, PmapRunner, make_runner
from jaxformer.training.parallel import bytes_per_device, runner_kind
from jaxformer.training.parallel.layout import axis_sizes, share_of_host


def test_dimensions_that_an_axis_does_not_divide_are_refused():
    shapes = {"up_kernel": jax.ShapeDtypeStruct((5, 9), "float32")}
    with pytest.raises(
        ConfigError, match=r"mesh.fsdp=2 must divide .* got 5 of up_kernel \[5, 9\]"
    ):
        bytes_per_device(shapes, {"data": 1, "fsdp": 2, "sequence": 1, "tensor": 2})


def test_sequences_that_the_axis_does_not_divide_are_refused():
    runner = MeshRunner(MeshConfig(sequence=8))
    step = runner.compile_eval(lambda params, batch: batch["tokens"].sum())
    with pytest.raises(ShapeError, match=r"mesh.sequence=8 must divide .* got 12 of tokens"):
        step(jnp.float32(0), {"tokens": np.zeros((1, 12))})


def test_masks_of_a_batch_have_rows_alone():
    runner = MeshRunner(MeshConfig(sequence=2), jax.local_devices()[:4])
    step = runner.compile_eval(lambda params, batch: batch["mask"].sum())
    assert int(step(jnp.float32(0), {"mask": np.ones((2, 1, 6, 6), bool)})) == 72


class Device(typing.NamedTuple):
    process_index: int


@pytest.mark.parametrize(
    ("processes", "host", "parts"),
    [
        ([[0, 0], [0, 0], [1, 1], [1, 1]], Host(1, 2), (2, 3)),
        ([[0], [1], [0], [1]], Host(1, 2), (1, 3)),  # as a torus of TPUs is laid out
        ([[0, 1], [0, 1], [2, 3], [2, 3]], Host(0, 2), (0, 1)),  # two hosts have the same rows
    ],
)  # fmt: skip
def test_hosts_have_the_rows_of_their_devices(processes, host, parts):
    shards = np.empty((len(processes), len(processes[0])), object)
    for place, process in np.ndenumerate(processes):
        shards[place] = Device(process)
    assert share_of_host(shards, 1) == (host, parts)


def test_hosts_that_share_some_rows_alone_are_refused():
    shards = np.empty((3, 1), object)
    shards[:, 0] = [Device(0), Device(0), Device(1)]
    with pytest.raises(ConfigError, match=r"got \[\(0, 1\), \(2,\)\] of 3 parts"):
        share_of_host(shards, 0)


def test_rows_of_a_host_go_to_its_parts_in_order():
    """Also where they are not side by side; each sequence is split besides."""
    runner = MeshRunner(MeshConfig(sequence=2), jax.local_devices()[:4])
    rows = np.arange(24).reshape(4, 6)
    runner._own_shards = (1, 0)
    placed = runner.put({"tokens": rows})["tokens"]
    np.testing.assert_array_equal(placed, rows[[2, 3, 0, 1]])
    assert {shard.data.shape for shard in placed.addressable_shards} == {(2, 3)}


def test_automatic_runner_is_a_mesh_where_one_is_set():
    assert isinstance(make_runner(mesh=MeshConfig()), PmapRunner)
    assert make_runner(mesh=MeshConfig(data=8)).sizes["data"] == 8
    runner = make_runner(mesh=MeshConfig(tensor=2), devices=4, batch_size=2)
    assert isinstance(runner, MeshRunner)
    assert runner.sizes == dict.fromkeys(MESH_AXES, 1) | {"data": 2, "tensor": 2}
    assert (runner.num_shards, runner.num_devices) == (2, 4)


def test_parameters_for_one_host_are_whole_or_split_as_they_are():
    kernel = np.arange(24.0, dtype=np.float32).reshape(4, 6)
    whole = MeshRunner(MeshConfig())
    copy = whole.on_one_host(whole.place({"up_kernel": kernel}))["up_kernel"]
    assert len(copy.devices()) == 1
    np.testing.assert_array_equal(copy, kernel)
    split = MeshRunner(MeshConfig(fsdp=2, tensor=2))
    placed = split.place({"up_kernel": kernel})["up_kernel"]
    assert isinstance(placed.sharding, NamedSharding)
    assert split.on_one_host({"up_kernel": placed})["up_kernel"] is placed


def test_axes_without_a_size_take_the_devices_that_are_left():
    assert axis_sizes(MeshConfig(fsdp=4), 8) == dict.fromkeys(MESH_AXES, 1) | {"data": 2, "fsdp": 4}
    assert runner_kind("auto", MeshConfig(fsdp=2), 1) == "mesh"
    assert runner_kind("auto", MeshConfig(), 1) == runner_kind("auto", None, 1) == "pmap"
    assert runner_kind("auto", None, 2) == "mesh" and runner_kind("single", None, 2) == "single"
