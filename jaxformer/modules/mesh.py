"""Mesh axes that split activations, by Flax's logical axis names."""

import math

from flax import linen as nn

from jaxformer.functional.sharding import automatic_axes


def mesh_axes(logical: str) -> tuple[str, ...]:
    """Mesh axes that split an axis of activations, by the first rule with its name."""
    rules = nn.get_logical_axis_rules()
    axes = next((axes for name, axes in rules if name == logical), None) or ()
    axes = (axes,) if isinstance(axes, str) else axes
    return tuple(axis for axis in axes if axis in automatic_axes())


def num_parts(axes: tuple[str, ...]) -> int:
    """Number of devices along axes of the mesh."""
    return math.prod(automatic_axes().get(axis, 1) for axis in axes)
