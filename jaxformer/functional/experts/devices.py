"""Experts over the devices of a mesh, which exchange the tokens that chose them."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from einops import pack, unpack
from jax.sharding import PartitionSpec

from jaxformer.errors import ConfigError
from jaxformer.functional.experts.grouped import Experts, compute_experts, compute_in_buckets
from jaxformer.functional.linear import Kernel, LowRankKernel


class ExpertsLayout(NamedTuple):
    """Axes of the mesh of `jax.set_mesh` over which a mixture of experts is split.

    Args:
        batch_axes: axes that split the rows B of x `[B, T, D]`.
        sequence_axes: axes that split its tokens T.
        expert_axis: the axis that splits the experts E; it also splits B or T.
        hidden_axes: axes that split the hidden width F of every expert.

    Example:
        >>> ExpertsLayout(batch_axes=("data", "expert"), expert_axis="expert").hidden_axes
        ()
    """

    batch_axes: tuple[str, ...] = ()
    sequence_axes: tuple[str, ...] = ()
    expert_axis: str | None = None
    hidden_axes: tuple[str, ...] = ()


def compute_on_devices(
    experts: Experts, x: jax.Array, chosen: jax.Array, weights: jax.Array,
    capacity_factor: float | None, layout: ExpertsLayout | None,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Weighted sum `[..., D]` of the chosen experts, and the number of choices dropped."""
    if layout is None:
        return _compute(experts, x, chosen, weights, capacity_factor, ExpertsLayout())
    axis = layout.expert_axis
    if axis is not None and axis not in (*layout.batch_axes, *layout.sequence_axes):
        raise ConfigError(
            f"expert_axis must be one of batch_axes or sequence_axes, got {axis!r}; add it to one"
        )
    if x.ndim != 3:
        raise ConfigError(f"with a layout, x must be [B, T, D], got shape {x.shape}")
    tokens = PartitionSpec(layout.batch_axes, layout.sequence_axes)
    return jax.shard_map(
        functools.partial(_compute, capacity_factor=capacity_factor, layout=layout),
        in_specs=(_specs(experts, layout), tokens, tokens, tokens),
        out_specs=(tokens, PartitionSpec()),
        check_vma=False,  # a kernel does not say over which axes its output varies
    )(experts, x, chosen, weights)


def _compute(
    experts: Experts, x: jax.Array, chosen: jax.Array, weights: jax.Array,
    capacity_factor: float | None, layout: ExpertsLayout,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """As `compute_on_devices`, on one device, with its tokens and its part of the experts."""
    x, leading = pack([x], "* d")
    (chosen, _), (weights, _) = pack([chosen], "* k"), pack([weights], "* k")
    if layout.hidden_axes and experts.down_bias is not None:  # summed over the devices: add it once
        is_first = jax.lax.axis_index(layout.hidden_axes) == 0
        down_bias = jnp.where(is_first, experts.down_bias, 0)
        experts = dataclasses.replace(experts, down_bias=down_bias)
    arguments = experts, x, chosen, weights, layout.expert_axis
    if capacity_factor is None:
        output, num_dropped = compute_experts(*arguments), jnp.int32(0)
    else:
        output, num_dropped = compute_in_buckets(*arguments, capacity_factor)
    if layout.hidden_axes:
        output = jax.lax.psum(output, layout.hidden_axes)
    if axes := (*layout.batch_axes, *layout.sequence_axes):
        num_dropped = jax.lax.psum(num_dropped, axes)
    (output,) = unpack(output, leading, "* d")
    return output, num_dropped


def _specs(experts: Experts, layout: ExpertsLayout) -> Experts:
    """How the parameters of the experts are split inside of the computation."""
    expert, hidden = layout.expert_axis, layout.hidden_axes

    def kernel(array: Kernel | None, inputs: Any, outputs: Any) -> Any:
        spec = PartitionSpec(expert, inputs, outputs)
        if not isinstance(array, LowRankKernel):
            return spec
        down, up = PartitionSpec(expert, inputs), PartitionSpec(expert, None, outputs)
        return dataclasses.replace(array, base=spec, down=down, up=up)  # type: ignore[arg-type]

    inner: Any = PartitionSpec(expert, hidden)
    outer: Any = PartitionSpec(expert)
    return dataclasses.replace(
        experts,
        up_kernel=kernel(experts.up_kernel, None, hidden), up_bias=inner,
        gate_kernel=kernel(experts.gate_kernel, None, hidden), gate_bias=inner,
        down_kernel=kernel(experts.down_kernel, hidden, None), down_bias=outer,
    )  # fmt: skip
