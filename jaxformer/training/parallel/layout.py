"""Layout of a mesh: devices along its axes and over hosts, and sums over parts of a batch."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from jaxformer.config import MESH_AXES, MeshConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.sharding import automatic_axes
from jaxformer.text import Host

ROW_AXES = ("data", "fsdp", "expert")
"""Mesh axes that split the rows of a batch."""

BATCH_SPEC = PartitionSpec(ROW_AXES, "sequence")
"""Sharding of an array `[B, T, ...]` of a batch."""


def axis_sizes(config: MeshConfig, num_devices: int) -> dict[str, int]:
    """Number of devices along each axis of a mesh."""
    fixed = {axis: getattr(config, axis) for axis in MESH_AXES if axis != "data"}
    count = math.prod(fixed.values())
    data = config.data or max(num_devices // count, 1)
    if data * count != num_devices:
        text = " * ".join(f"{axis}={size}" for axis, size in (("data", data), *fixed.items()))
        raise ConfigError(
            "the product of the mesh axes must be the number of devices, got "
            f"{text} = {data * count} of {num_devices} devices; change [mesh], or set "
            "training.devices"
        )
    return {"data": data, **fixed}


def num_row_parts(sizes: Mapping[str, int]) -> int:
    """Number of parts into which a mesh splits the rows of a batch."""
    return math.prod(sizes[axis] for axis in ROW_AXES)


def share_of_host(shards: np.ndarray, process: int) -> tuple[Host, tuple[int, ...]]:
    """Rows of a batch that belong to a host, and which of the parts `[parts, devices]` it has."""
    # A host's parts need not be adjacent, because a mesh places devices by their links. Its rows
    # still are: they go to its parts in order, since a sum over all rows has no order. Hosts with
    # the same parts have the same rows.
    parts_by_host: dict[int, set[int]] = {}
    for part, devices in enumerate(shards):
        for device in devices:
            parts_by_host.setdefault(device.process_index, set()).add(part)
    groups = sorted({tuple(sorted(parts)) for parts in parts_by_host.values()})
    if len(set(map(len, groups))) > 1 or sum(map(len, groups)) != len(shards):
        raise ConfigError(
            "all hosts must have equally many parts of the batch, and any two hosts must have the "
            f"same parts or none in common, got {groups} of {len(shards)} parts; change mesh.data "
            "or mesh.fsdp"
        )
    parts = tuple(sorted(parts_by_host[process]))
    return Host(groups.index(parts), len(groups)), parts


def num_parts() -> int:
    """Number of devices that share the traced program; 1 without a mesh."""
    return math.prod(automatic_axes().values())


def sum_over_parts(
    function: Callable[..., Any], hidden: jax.Array, table: jax.Array, labels: jax.Array,
    *biases: jax.Array,
) -> Any:  # fmt: skip
    """Sum over devices of a function of hidden `[B, T, D]`, table `[V, D]` and labels `[B, T]`."""
    # Left to itself, XLA would sum the gradient of the table over devices after every chunk of
    # tokens, and gather the tokens to split them into chunks.
    axes = {*ROW_AXES, "sequence"} & automatic_axes().keys()
    if not axes:
        return function(hidden, table, labels, *biases)

    def own_part(*arrays: jax.Array) -> Any:
        return jax.lax.psum(function(*arrays), tuple(sorted(axes)))

    rows = tuple(axis for axis in ROW_AXES if axis in axes)
    split = PartitionSpec(rows, "sequence" if "sequence" in axes else None)
    return jax.shard_map(
        own_part, in_specs=(split, PartitionSpec(), split, *[PartitionSpec()] * len(biases)),
        out_specs=PartitionSpec(), axis_names=axes,
    )(hidden, table, labels, *biases)  # fmt: skip
