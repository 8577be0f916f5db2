"""Experts computed for the tokens that chose them: sort, group, compute, combine.

The tokens of all choices are copied to rows, sorted by expert. The experts are computed for these
rows, and each token gets the weighted sum of the rows of its choices. How the rows are grouped:

- ragged: the rows have no gaps, and a grouped matrix product (`jax.lax.ragged_dot`) takes the
  number of rows of each expert. For TPUs, and for GPUs with the package tokamax.
- blocks: each expert's rows are padded to a multiple of a block, and a scan over the blocks
  computes the expert of each. For all others: XLA makes ragged_dot a dense product of all experts.
- buckets: each expert has the same number of rows, its capacity, and drops the choices beyond it.
"""

import dataclasses
import functools
import importlib
import importlib.util
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from einops import rearrange
from jax.sharding import AxisType

from jaxformer.functional.checks import is_symbolic
from jaxformer.functional.experts.sorting import (
    Choices,
    Rows,
    from_rows,
    group_rows,
    sort_choices,
    to_rows,
    weighted_sum,
)
from jaxformer.functional.linear import Kernel, Products, kernel_product, project
from jaxformer.functional.platforms import PLATFORMS, by_platform, default_platform
from jaxformer.functional.sharding import has_explicit_axes, is_one_device

_SMALL_BLOCK, _LARGEST_BLOCK = 32, 256  # rows; smaller ones are slow if an expert has many rows
_MAX_PADDING = 10  # padding is at most a tenth of the rows, unless blocks would be small


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Experts:
    """Parameters of all experts, or, without the first axis, of one; and how they compute."""

    up_kernel: Kernel
    up_bias: jax.Array | None
    gate_kernel: Kernel | None
    gate_bias: jax.Array | None
    down_kernel: Kernel
    down_bias: jax.Array | None
    activate: Callable[..., jax.Array] = dataclasses.field(metadata={"static": True})
    products: Products = dataclasses.field(metadata={"static": True})

    def apply(
        self, x: jax.Array, is_real: jax.Array, project: Callable[..., jax.Array] = project
    ) -> jax.Array:
        """Output `[R, D]` of one expert, or of all by grouped products; 0 where not `is_real`."""

        # In the gradient, 0 times an expert's NaN would be NaN, so zero it after each product.
        def masked(array: jax.Array) -> jax.Array:
            return jnp.where(is_real, array, 0)

        x = masked(x)
        up = masked(project(x, self.up_kernel, self.up_bias, self.products))  # [R, F]
        if self.gate_kernel is None:
            hidden = self.activate(up)
        else:
            gate = masked(project(x, self.gate_kernel, self.gate_bias, self.products))  # [R, F]
            hidden = self.activate(gate, up)
        return masked(project(hidden, self.down_kernel, self.down_bias, self.products))


def compute_experts(
    experts: Experts,  # all E, or this device's part of them
    x: jax.Array,  # float [N, D]
    chosen: jax.Array,  # int [N, k], in 0 .. E-1
    weights: jax.Array,  # float [N, k]
    axis: str | None,  # mapped mesh axis whose devices share the experts and compute for each other
) -> jax.Array:
    """Weighted sum `[N, D]` of the chosen experts, in the dtype of the weights; drops no choice."""
    num_experts = experts.up_kernel.shape[0]
    num_parts = 1 if axis is None else jax.lax.axis_size(axis)
    if axis is not None:
        # All tokens of a device may choose the experts of one other. A static buffer of an
        # all-to-all with room for that would send every token to every device, as gathering does.
        gather = functools.partial(jax.lax.all_gather, axis_name=axis, tiled=True)
        x, chosen, weights = gather(x), gather(chosen), gather(weights)
        chosen = chosen - jax.lax.axis_index(axis).astype(chosen.dtype) * num_experts
        # What expert E computes, which does not exist, is 0.
        chosen = jnp.where((chosen >= 0) & (chosen < num_experts), chosen, num_experts)
    choices = sort_choices(chosen, num_experts)
    size = _rows_per_block(choices, num_parts)
    in_blocks = functools.partial(_in_blocks, experts, x, choices, size, num_parts > 1)
    programs = dict.fromkeys(PLATFORMS, in_blocks)
    if size > 1:  # few choices read few kernels in blocks
        for platform, dot in _grouped_products(experts, x).items():
            programs[platform] = functools.partial(_ragged, experts, x, choices, dot)
    total = weighted_sum(by_platform(programs), weights)
    return total if axis is None else jax.lax.psum_scatter(total, axis, tiled=True)


def _grouped_products(experts: Experts, x: jax.Array) -> dict[str, Callable[..., jax.Array]]:
    """The grouped matrix product of each platform that has one for this call."""
    # jit cannot split one over devices, ragged_dot knows no explicit axes, and a `dot_general` of
    # the caller's computes single products.
    axis_types = jax.sharding.get_abstract_mesh().axis_types
    is_explicit = has_explicit_axes(x) or AxisType.Explicit in axis_types
    if experts.products.dot_general is not None or is_explicit or not is_one_device():
        return {}
    dots = {"tpu": jax.lax.ragged_dot, "cuda": _tokamax_ragged_dot(x.dtype)}
    return {platform: dot for platform, dot in dots.items() if dot is not None}


def _rows_per_block(choices: Choices, num_parts: int) -> int:
    """Rows of a block: a power of two; 1 if there are fewer choices than experts."""
    (num_choices,), (num_experts,) = choices.order.shape, choices.sizes.shape
    if is_symbolic(num_choices):
        return _SMALL_BLOCK
    mean = num_choices // (num_experts * num_parts)
    if mean == 0:
        return 1
    small = min(2 << mean.bit_length() - 1, _SMALL_BLOCK)
    padded = max(mean // _MAX_PADDING, 1)
    return min(max(1 << padded.bit_length() - 1, small), _LARGEST_BLOCK)


def _in_blocks(
    experts: Experts, x: jax.Array, choices: Choices, size: int, skips_empty: bool
) -> jax.Array:
    """Output `[k, N, D]` of each choice's expert, in a scan over blocks of rows of one expert."""
    # As in Gale et al., "MegaBlocks", 2022, but with a loop in place of a sparse product.
    numbers, rows = _rows_of_blocks(choices, size)
    blocks = rearrange(to_rows(x, rows), "(g b) d -> g b d", b=size)
    are_real = rearrange(rows.choices < choices.order.size, "(g b) -> g b 1", b=size)

    # XLA merges nothing across scan iterations, so no barriers against CSE are needed.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def apply_expert(number: jax.Array, block: jax.Array, is_real: jax.Array) -> jax.Array:
        def compute() -> jax.Array:
            select = functools.partial(jax.lax.dynamic_index_in_dim, index=number, keepdims=False)
            return jax.tree.map(select, experts).apply(block, is_real)

        if not skips_empty:
            return compute()
        return jax.lax.cond(is_real[0, 0], compute, lambda: jnp.zeros_like(block))

    outputs = jax.lax.map(lambda block: apply_expert(*block), (numbers, blocks, are_real))
    return from_rows(rearrange(outputs, "g b d -> (g b) d"), rows)


def _rows_of_blocks(choices: Choices, size: int) -> tuple[jax.Array, Rows]:
    """The expert of each block, `[G]`, and rows `[G * size]` for the most blocks there can be."""
    (num_choices,), (num_experts,) = choices.order.shape, choices.sizes.shape
    ends = jnp.cumsum((choices.sizes + size - 1) // size)  # [E], in blocks
    starts = jnp.concatenate([jnp.zeros(1, ends.dtype), ends[:-1]])  # [E]
    blocks = jnp.arange(num_experts + (num_choices - num_experts) // size)  # [G]
    groups = jnp.searchsorted(ends, blocks, side="right", method="compare_all")
    groups = jnp.minimum(groups, num_experts - 1)  # unused blocks, at the end, are padding
    ranks = (blocks - starts[groups])[:, None] * size + jnp.arange(size)[None]  # [G, size]
    return groups, group_rows(choices, groups, ranks, starts * size)


def _ragged(experts: Experts, x: jax.Array, choices: Choices, dot: Any) -> jax.Array:
    """Output `[k, N, D]` of each choice's expert, by grouped matrix products without padding."""
    (num_choices,), (num_experts,) = choices.order.shape, choices.sizes.shape
    places = choices.first.at[choices.experts].get(mode="clip") + choices.rank
    rows = Rows(choices.order, jnp.where(choices.experts < num_experts, places, num_choices))
    experts_of_rows = rearrange(choices.experts, "k n -> (k n)")[choices.order]  # [R]

    def project_rows(
        x: jax.Array, kernel: Kernel, bias: jax.Array | None, products: Products
    ) -> jax.Array:
        def product(x: jax.Array, kernel: jax.Array) -> jax.Array:
            return dot(x, kernel, choices.sizes, precision=products.precision)

        result = kernel_product(x, kernel, product)  # [R, F]
        if bias is None:
            return result
        return result + bias.astype(x.dtype).at[experts_of_rows].get(mode="clip")

    # As in blocks, the backward pass computes the experts again.
    apply = jax.checkpoint(functools.partial(Experts.apply, project=project_rows))
    return from_rows(apply(experts, to_rows(x, rows), jnp.bool_(True)), rows)


def _tokamax_ragged_dot(dtype: Any) -> Callable[..., jax.Array] | None:
    """The grouped matrix product of the package tokamax, for 16-bit floats on NVIDIA GPUs."""
    # Its kernels look for a GPU when they are traced.
    on_gpu = jax.default_backend() == "gpu" and default_platform() == "cuda"
    if not on_gpu or dtype.itemsize != 2 or importlib.util.find_spec("tokamax") is None:
        return None
    # Without its fallback to XLA, which computes all experts for every row.
    tokamax: Any = importlib.import_module("tokamax")
    return functools.partial(tokamax.ragged_dot, implementation=("mosaic", "triton"))


def compute_in_buckets(
    experts: Experts, x: jax.Array, chosen: jax.Array, weights: jax.Array, axis: str | None,
    capacity_factor: float,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """`compute_experts` with a capacity of choices per expert, and the number of those dropped."""
    num_parts = 1 if axis is None else jax.lax.axis_size(axis)
    num_experts = experts.up_kernel.shape[0] * num_parts
    capacity = math.ceil(capacity_factor * chosen.size / num_experts)
    capacity = max(1, min(capacity, x.shape[0]))
    choices = sort_choices(chosen, num_experts)
    fits = choices.rank < capacity  # first choices precede second ones, earlier tokens later ones
    is_dropped = ~fits & (choices.experts < num_experts)  # E is no expert
    groups = jnp.arange(num_experts)
    ranks = jnp.broadcast_to(jnp.arange(capacity), (num_experts, capacity))  # [E, C]
    fitting = choices._replace(experts=jnp.where(fits, choices.experts, num_experts))
    rows = group_rows(fitting, groups, ranks, groups * capacity)

    axes = {"p": num_parts, "c": capacity}
    arrays = (to_rows(x, rows), (rows.choices < choices.order.size)[:, None])
    buckets, is_real = (
        rearrange(_exchange(array, axis), "(p e c) d -> e (p c) d", **axes) for array in arrays
    )
    outputs = jax.checkpoint(jax.vmap(Experts.apply))(experts, buckets, is_real)  # [e, p c, D]
    outputs = rearrange(outputs, "e (p c) d -> (p e c) d", **axes)
    total = weighted_sum(from_rows(_exchange(outputs, axis), rows), weights)
    return total, is_dropped.sum(dtype=jnp.int32)


def _exchange(buckets: jax.Array, axis: str | None) -> jax.Array:
    """Buckets `[E C, D]` of the experts of this device, from all devices of a mapped axis."""
    if axis is None:
        return buckets
    return jax.lax.all_to_all(buckets, axis, split_axis=0, concat_axis=0, tiled=True)
