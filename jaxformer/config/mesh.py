"""Config of a mesh of devices: its axes, and the rules that place parameters on it."""

import dataclasses
from typing import Literal

from jaxformer.config.checks import require, require_positive, require_types
from jaxformer.errors import ConfigError

__all__ = ["MESH_AXES", "MeshConfig", "MeshRule"]

MESH_AXES = ("data", "fsdp", "sequence", "tensor")
"""Axes of a mesh, in the order of communication between their devices, least first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshRule:
    """How parameters whose paths match a pattern are split over the axes of a mesh.

    Args:
        path: pattern for the paths of parameters, such as `*/query_kernel`: `*` matches anything,
            `?` one character. A path is the names of the enclosing modules and the parameter's own
            name, separated by slashes, as in `stack/layers/attention/query_kernel`.
        axes: one entry for each of the last dimensions of the parameter, in order: the mesh axis
            that it is split over ("data", "fsdp", "sequence" or "tensor"), or "" for none. Earlier
            dimensions, such as that of the layers, are not split. If the size of the axis does not
            divide the dimension, that is an error; with a question mark, as in "tensor?", the
            dimension is not split instead.

    Raises:
        ConfigError: path is empty, or axes has an unknown axis, or an axis twice.

    Example:
        >>> MeshRule(path="*/query_kernel", axes=("fsdp", "tensor")).axes
        ('fsdp', 'tensor')
    """

    path: str
    axes: tuple[str, ...]

    def __post_init__(self) -> None:
        require_types(self)
        require(bool(self.path), "path must be a pattern, such as '*/query_kernel'", path=self.path)
        names = [axis.removesuffix("?") for axis in self.axes if axis]
        for name in names:
            if name not in MESH_AXES:
                raise ConfigError(
                    f"axes of the mesh rule for {self.path!r} must be in {', '.join(MESH_AXES)}, "
                    f"or '' for a dimension that is not split, got {name!r}"
                )
        if len(set(names)) < len(names):
            raise ConfigError(
                f"axes of the mesh rule for {self.path!r} must name an axis once, got "
                f"{list(self.axes)}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Mesh of devices: number of devices along each axis, and what each axis splits.

    Args:
        data: number of devices along the axis that splits only the rows of a batch; if not set, all
            devices that the other axes leave.
        fsdp: number of devices along the axis that splits the rows of a batch, the parameters and
            the optimizer state (fully sharded data parallelism).
        tensor: number of devices along the axis that splits attention heads, the hidden width of
            feed-forward layers and the vocabulary (tensor parallelism).
        sequence: number of devices along the axis that splits the tokens of a sequence.
        optimizer_state: where the optimizer state is kept between updates: on the "device", or in
            the memory of its "host", from which each step copies it to the device and back.
        rules: rules for splitting parameters, before the built-in ones; the first rule that matches
            a parameter applies.

    Raises:
        ConfigError: a number is not positive.

    References:
        Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
        2020 (fsdp). Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models
        Using Model Parallelism", 2019 (tensor).

    Example:
        >>> MeshConfig(fsdp=4, tensor=2).sequence
        1
    """

    data: int | None = None
    fsdp: int = 1
    tensor: int = 1
    sequence: int = 1
    optimizer_state: Literal["device", "host"] = "device"
    rules: tuple[MeshRule, ...] = ()

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, *MESH_AXES)
        if any(type(rule) is not MeshRule for rule in self.rules):
            raise ConfigError(f"rules of a mesh must be MeshRules, got {self.rules!r}")
