"""How the devices of a mesh are laid out: along its axes, and over hosts."""

import math

import numpy as np

from jaxformer.config import MESH_AXES, MeshConfig
from jaxformer.errors import ConfigError
from jaxformer.text import Host

__all__ = ["axis_sizes", "inference_mesh", "share_of_host"]


def axis_sizes(config: MeshConfig, num_devices: int) -> dict[str, int]:
    """Number of devices along each axis of a mesh.

    Args:
        config: the axes.
        num_devices: devices in all.

    Raises:
        ConfigError: the axes do not make up the number of devices.

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
            f"the axes of the mesh must make up the number of devices, got {text} = "
            f"{data * count} of {num_devices} devices; change the [mesh], or set training.devices"
        )
    return {"data": data, **others}


def inference_mesh(trained_on: MeshConfig, num_devices: int) -> MeshConfig:
    """Mesh by which the devices of one host split parameters where nothing is trained.

    As in training, if there are so many devices, else by the axis "fsdp" over all.

    Args:
        trained_on: the mesh of training.
        num_devices: devices of the host.

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
    """Which of the parts that rows of a batch are split into are on the devices of a host.

    The devices of a host need not be neighbours in the mesh, which is laid out so that neighbours
    have links. Its rows of a batch are side by side all the same, and go to the parts that it has:
    whose rows are whose makes no difference to a sum over all.

    Args:
        shards: devices `[parts, devices that have the same rows]`.
        process: the host's index.

    Returns:
        Which rows of a batch are the host's, and its parts. Hosts that have the same parts have the
        same rows.

    Raises:
        ConfigError: hosts have not as many parts, or share some and not others.
    """
    own: dict[int, set[int]] = {}
    for part, devices in enumerate(shards):
        for device in devices:
            own.setdefault(device.process_index, set()).add(part)
    groups = sorted({tuple(sorted(parts)) for parts in own.values()})
    if len(set(map(len, groups))) > 1 or sum(map(len, groups)) != len(shards):
        raise ConfigError(
            "hosts must have equally many of the parts that rows of a batch are split into, and "
            f"any two the same or none in common, got {groups} of {len(shards)} parts; change "
            "mesh.data or mesh.fsdp"
        )
    parts = tuple(sorted(own[process]))
    return Host(groups.index(parts), len(groups)), parts
