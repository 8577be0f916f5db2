"""Experts over the devices of a mesh, which exchange the tokens that chose them."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from einops import pack, unpack
from jax.sharding import PartitionSpec

from jaxformer.errors import ConfigError
from jaxformer.functional.experts.grouped import (
    ExpertOptions,
    Experts,
    compute_experts,
    compute_in_buckets,
)
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
    experts: Experts, x: jax.Array, chosen: jax.Array, weights: jax.Array, options: ExpertOptions,
    capacity_factor: float | None, layout: ExpertsLayout | None,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Weighted sum `[..., D]` of the chosen experts, and the number of choices dropped."""
    compute = functools.partial(_compute, options=options, capacity_factor=capacity_factor)
    if layout is None:
        return compute(experts, x, chosen, weights, layout=ExpertsLayout())
    axis = layout.expert_axis
    if axis is not None and axis not in (*layout.batch_axes, *layout.sequence_axes):
        raise ConfigError(
            f"expert_axis must be one of batch_axes or sequence_axes, got {axis!r}; add it to one"
        )
    if x.ndim != 3:
        raise ConfigError(f"with a layout, x must be [B, T, D], got shape {x.shape}")
    tokens = PartitionSpec(layout.batch_axes, layout.sequence_axes)
    return jax.shard_map(
        functools.partial(compute, layout=layout),
        in_specs=(_specs(experts, layout), tokens, tokens, tokens),
        out_specs=(tokens, PartitionSpec()),
        check_vma=False,  # a kernel does not say over which axes its output varies
    )(experts, x, chosen, weights)


def _compute(
    experts: Experts, x: jax.Array, chosen: jax.Array, weights: jax.Array, *,
    options: ExpertOptions, capacity_factor: float | None, layout: ExpertsLayout,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """As `compute_on_devices`, on one device, with its tokens and its part of the experts."""
    x, leading = pack([x], "* d")
    (chosen, _), (weights, _) = pack([chosen], "* k"), pack([weights], "* k")
    axis = layout.expert_axis
    if layout.hidden_axes and experts.down_bias is not None:  # summed over the devices: add it once
        is_first = jax.lax.axis_index(layout.hidden_axes) == 0
        experts = experts._replace(down_bias=jnp.where(is_first, experts.down_bias, 0))
    if capacity_factor is not None:
        num_experts = experts.up_kernel.shape[0] * (1 if axis is None else jax.lax.axis_size(axis))
        capacity = math.ceil(capacity_factor * chosen.size / num_experts)
        output, num_dropped = compute_in_buckets(
            experts, x, chosen, weights, options, max(1, min(capacity, x.shape[0])), axis
        )
    else:
        num_dropped = jnp.int32(0)
        if axis is None:
            output = compute_experts(experts, x, chosen, weights, options)
        else:
            output = _compute_gathered(experts, x, chosen, weights, options, axis)
    if layout.hidden_axes:
        output = jax.lax.psum(output, layout.hidden_axes)
    if axes := (*layout.batch_axes, *layout.sequence_axes):
        num_dropped = jax.lax.psum(num_dropped, axes)
    (output,) = unpack(output, leading, "* d")
    return output, num_dropped


def _compute_gathered(
    experts: Experts, x: jax.Array, chosen: jax.Array, weights: jax.Array, options: ExpertOptions,
    axis: str,
) -> jax.Array:  # fmt: skip
    """As `compute_experts`, for all tokens of the devices that share the experts."""
    # All tokens of a device may choose the experts of one other. A static buffer of an all-to-all
    # with room for that would send every token to every device, as gathering them does.
    num_local = experts.up_kernel.shape[0]
    gather = functools.partial(jax.lax.all_gather, axis_name=axis, tiled=True)
    x, chosen, weights = gather(x), gather(chosen), gather(weights)
    local = chosen - jax.lax.axis_index(axis).astype(chosen.dtype) * num_local
    local = jnp.where((local >= 0) & (local < num_local), local, num_local)
    output = compute_experts(experts, x, local, weights, options, num_parts=jax.lax.axis_size(axis))
    return jax.lax.psum_scatter(output, axis, tiled=True)


def _specs(experts: Experts, layout: ExpertsLayout) -> Any:
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
    return Experts(
        up_kernel=kernel(experts.up_kernel, None, hidden), up_bias=inner,
        gate_kernel=kernel(experts.gate_kernel, None, hidden), gate_bias=inner,
        down_kernel=kernel(experts.down_kernel, hidden, None), down_bias=outer,
    )  # fmt: skip
