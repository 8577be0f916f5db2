"""Layout of the devices of a mesh: along its axes, and over hosts."""

import math

import numpy as np

from jaxformer.config import MESH_AXES, MeshConfig
from jaxformer.errors import ConfigError
from jaxformer.text import Host

__all__ = ["axis_sizes", "inference_mesh", "share_of_host"]


def axis_sizes(config: MeshConfig, num_devices: int) -> dict[str, int]:
    """Number of devices along each axis of a mesh.

    Raises:
        ConfigError: the product of the axes is not the number of devices.

    Example:
        >>> axis_sizes(MeshConfig(fsdp=4), 8)
        {'data': 2, 'fsdp': 4, 'sequence': 1, 'tensor': 1}
    """
    others = {axis: getattr(config, axis) for axis in MESH_AXES if axis != "data"}
    count = math.prod(others.values())
    data = config.data or max(num_devices // count, 1)
    if data * count != num_devices:
        text = " * ".join(f"{axis}={size}" for axis, size in (("data", data), *others.items()))
        raise ConfigError(
            "the product of the mesh axes must be the number of devices, got "
            f"{text} = {data * count} of {num_devices} devices; change [mesh], or set "
            "training.devices"
        )
    return {"data": data, **others}


def inference_mesh(trained_on: MeshConfig, num_devices: int) -> MeshConfig:
    """Mesh that splits parameters over the devices of one host for inference.

    It is the mesh of training or, if there are too few devices, the axis "fsdp" over all.

    Example:
        >>> mesh = inference_mesh(MeshConfig(data=8, fsdp=2, tensor=2), 4)
        >>> mesh.data, mesh.fsdp, mesh.tensor
        (1, 2, 2)
        >>> inference_mesh(MeshConfig(fsdp=16), 4).fsdp
        4
    """
    fsdp, tensor = trained_on.fsdp, trained_on.tensor
    if not 1 < fsdp * tensor <= num_devices:
        fsdp, tensor = num_devices, 1
    return MeshConfig(data=1, fsdp=fsdp, tensor=tensor, rules=trained_on.rules)


def share_of_host(shards: np.ndarray, process: int) -> tuple[Host, tuple[int, ...]]:
    """Rows of a batch that belong to a host, and the parts of the batch on its devices.

    A host's parts need not be adjacent, because a mesh places devices by their links. Its rows
    still are: they go to its parts in order, since the order of rows does not affect a sum over
    all.

    Args:
        shards: devices `[parts, devices with the same rows]`.
        process: index of the host.

    Returns:
        The host's rows, and its parts. Hosts with the same parts have the same rows.

    Raises:
        ConfigError: hosts have different numbers of parts, or share only some of them.
    """
    own: dict[int, set[int]] = {}
    for part, devices in enumerate(shards):
        for device in devices:
            own.setdefault(device.process_index, set()).add(part)
    groups = sorted({tuple(sorted(parts)) for parts in own.values()})
    if len(set(map(len, groups))) > 1 or sum(map(len, groups)) != len(shards):
        raise ConfigError(
            "all hosts must have equally many parts of the batch, and any two hosts must have the "
            f"same parts or none in common, got {groups} of {len(shards)} parts; change mesh.data "
            "or mesh.fsdp"
        )
    parts = tuple(sorted(own[process]))
    return Host(groups.index(parts), len(groups)), parts
