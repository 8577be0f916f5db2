"""Attention of global arrays whose rows and heads jit splits over the devices of a mesh."""

import dataclasses
import math
from typing import Any, Unpack

import jax
from jax.sharding import PartitionSpec

from jaxformer.errors import ConfigError
from jaxformer.functional.attention.inputs import (
    AttentionInputs,
    AttentionKeywords,
    Bias,
    prepare_attention,
)
from jaxformer.functional.attention.program import attention_program
from jaxformer.functional.checks import Array, check_axes, check_keywords
from jaxformer.functional.masks.base import AnyMask
from jaxformer.functional.masks.parts import mask_parts
from jaxformer.functional.sharding import automatic_axes


def sharded_attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Bias | None = None,
    mask: AnyMask | None = None,
    *,
    batch_axes: str | tuple[str, ...] = (),
    head_axes: str | tuple[str, ...] = (),
    return_residual: bool = False,
    **options: Unpack[AttentionKeywords],
) -> Any:
    """`dot_product_attention` of global arrays, where each device computes its rows and heads.

    For `jax.jit` with a mesh: jit splits dense and chunked attention itself, but no Pallas kernel,
    such as that of "splash". Nothing moves between devices if the axes are all of the mesh. Calls
    that no such kernel supports are left to jit: those with a bias, an array as a mask, dropout or
    one query_offset per row, and where the devices do not divide the rows or heads.

    To use it in a model, pass `functools.partial(sharded_attention, batch_axes="data")` as the
    attention function. In training with the runner "mesh", models do so themselves on TPUs.

    Args:
        query: float `[B, T, N, H]`.
        key: float `[B, S, K, H]`.
        value: float `[B, S, K, Hv]`.
        bias: as in `dot_product_attention`.
        mask: as in `dot_product_attention`.
        batch_axes: axes of the mesh of `jax.set_mesh`, of type Auto, that B is split over, a name
            or several.
        head_axes: axes of the mesh that N and K are split over.
        return_residual: whether to return (output, residual), as in `dot_product_attention`.
        **options: the keywords of `dot_product_attention`.

    Returns:
        float `[B, T, N, Hv]`, split like the query; with return_residual, (output, residual), the
        residual `[B, T, N]`, split likewise.

    Raises:
        ShapeError: an argument does not fit.
        ConfigError: an option is invalid, or the mesh has no such axis.

    Example:
        >>> axes = (jax.sharding.AxisType.Auto,)
        >>> mesh = jax.make_mesh((1,), ("data",), axis_types=axes, devices=jax.devices()[:1])
        >>> x = jax.numpy.ones((2, 3, 4, 8))
        >>> with jax.set_mesh(mesh):
        ...     sharded_attention(x, x, x, batch_axes="data", is_causal=True).shape
        (2, 3, 4, 8)
    """
    check_keywords("sharded_attention", options, AttentionKeywords)
    inputs = prepare_attention(
        query, key, value, bias, mask, return_residual=return_residual, **options
    )
    sizes = check_axes("query", inputs.query, "B T N H")
    batch_axes, head_axes = (
        (axes,) if isinstance(axes, str) else axes for axes in (batch_axes, head_axes)
    )
    rows, heads = _num_devices(batch_axes), _num_devices(head_axes)
    divides = sizes["B"] % rows == sizes["N"] % heads == inputs.key.shape[-2] % heads == 0
    parts = mask_parts(inputs.mask)
    has_no_kernel = bias is not None or inputs.dropout_rng is not None
    has_no_kernel |= bool(jax.tree.leaves((parts.window, parts.rules)))

    def attend(inputs: AttentionInputs) -> tuple[jax.Array, jax.Array | None]:
        return attention_program(inputs)(inputs)

    if rows * heads > 1 and divides and not has_no_kernel:
        split = PartitionSpec(batch_axes, None, head_axes)
        specs: dict[str, Any] = dict.fromkeys(("query", "key", "value"), split)
        specs["mask"] = PartitionSpec(batch_axes)
        in_specs = dataclasses.replace(inputs, **specs)  # the other fields have no arrays
        # A Pallas kernel does not say over which axes its output varies.
        attend = jax.shard_map(attend, in_specs=(in_specs,), out_specs=split, check_vma=False)
    output, residual = attend(inputs)
    return output if residual is None else (output, residual)


def _num_devices(axes: tuple[str, ...]) -> int:
    mesh = automatic_axes()
    if unknown := [axis for axis in axes if axis not in mesh]:
        raise ConfigError(
            "batch_axes and head_axes must name axes of type Auto of the mesh of jax.set_mesh, got "
            f"{unknown[0]!r}, and the mesh has {', '.join(mesh) or 'none'}"
        )
    return math.prod(mesh[axis] for axis in axes)
