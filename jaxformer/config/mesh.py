"""Config of a mesh of devices: its axes, and the rules that place parameters on it."""

import dataclasses
from typing import Literal

from jaxformer.config.checks import require, require_positive, require_types
from jaxformer.errors import ConfigError

__all__ = ["MESH_AXES", "MeshConfig", "MeshRule"]

MESH_AXES = ("data", "fsdp", "sequence", "tensor")
"""Axes of a mesh, from those whose devices may be far apart to those that talk most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshRule:
    """How parameters of some names are split over the axes of a mesh.

    Args:
        path: pattern of the parameter's path, such as `*/query_kernel`: `*` stands for anything,
            `?` for one character. The path of a parameter has the names of its modules and its
            own, between slashes, as in `stack/layers/attention/query_kernel`.
        axes: axis of the mesh that each of the last dimensions is split over: "data", "fsdp",
            "sequence" or "tensor", or "" for none. Dimensions before these, such as that of the
            layers, are not split. With a question mark, as in "tensor?", a dimension that the
            axis does not divide is not split; without, it is an error.

    Raises:
        ConfigError: path is empty, or axes has another word, or an axis twice.

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
                    f"axes of the mesh rule for {self.path!r} must be of {', '.join(MESH_AXES)}, "
                    f"or '' for a dimension that is not split, got {name!r}"
                )
        if len(set(names)) < len(names):
            raise ConfigError(
                f"axes of the mesh rule for {self.path!r} must name an axis once, got "
                f"{list(self.axes)}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Mesh of devices: how many there are along each axis, and what is split over which.

    Args:
        data: devices along the axis over which only the rows of a batch are split; all that the
            other axes leave when not given.
        fsdp: devices along the axis over which the rows of a batch are split, and the parameters
            and the optimizer's state as well ("fully sharded data parallel").
        tensor: devices along the axis over which attention heads, the inner width of feed-forward
            layers and the vocabulary are split.
        sequence: devices along the axis over which the tokens of a sequence are split.
        optimizer_state: where the optimizer's state is between its updates: on the "device", or in
            the memory of its "host", from which each step fetches it and to which it returns.
        rules: rules that come before those of the library; of all rules that match a parameter
            the first places it.

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
