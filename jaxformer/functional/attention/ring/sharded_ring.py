"""Ring attention of global arrays, whose tokens are split over the devices of a mesh."""

import dataclasses
import functools
import math
from typing import Any, Unpack

import jax
from jax.sharding import PartitionSpec

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention.inputs import (
    AttentionInputs,
    AttentionKeywords,
    prepare_attention,
)
from jaxformer.functional.attention.ring.local import (
    attend_on_ring,
    gather_segments,
    refuse_for_ring,
)
from jaxformer.functional.attention.ring.order import exchange_chunks
from jaxformer.functional.checks import Array, as_arrays, check_axes, check_keywords, static_bool
from jaxformer.functional.masks.base import Mask, map_rules
from jaxformer.functional.masks.rules import Rule, Segments
from jaxformer.functional.positions.biases import AlibiBias, PositionBias

_AnyMesh = jax.sharding.Mesh | jax.sharding.AbstractMesh


@dataclasses.dataclass(frozen=True, kw_only=True)
class RingLayout:
    """How `sharded_ring_attention` splits its arrays over the axes of a mesh.

    Args:
        mesh: device mesh with Auto axes. With Explicit axes, the default of `jax.make_mesh`, arrays
            must already be split this way. None = the mesh of `jax.set_mesh`.
        sequence_axis: mesh axis that T is split over; n devices.
        batch_axes: mesh axes that B is split over, a name or several.
        head_axes: mesh axes that N and K are split over.
        in_ring_order: whether sequences are in ring order; False = original order.
    """

    mesh: jax.sharding.Mesh | None = None
    sequence_axis: str = "sequence"
    batch_axes: str | tuple[str, ...] = ()
    head_axes: str | tuple[str, ...] = ()
    in_ring_order: bool = True


def sharded_ring_attention(
    query: Array,
    key: Array,
    value: Array,
    bias: PositionBias | None = None,
    mask: Mask | None = None,
    *,
    layout: RingLayout,
    **options: Unpack[AttentionKeywords],
) -> jax.Array:
    """`ring_attention` of global arrays, split over the axes of a mesh.

    In training with the runner "mesh", models do it themselves. Elsewhere, under `jax.jit`, pass
    `functools.partial(sharded_ring_attention, layout=RingLayout(mesh=mesh))` as the attention
    function. Give the model tokens and segment ids in ring order (`to_ring_order`), split over the
    same axes, and their positions, `to_ring_order(np.arange(T), n, axis=0)`. Its output is in ring
    order, too. With `in_ring_order=False`, sequences are in their original order, and every call
    moves them into ring order and back, which costs as much traffic as about N / K + 1 ring steps.

    Args:
        query: float `[B, T, N, H]`, in ring order unless the layout says otherwise.
        key: float `[B, T, K, H]`.
        value: float `[B, T, K, Hv]`.
        bias: an `AlibiBias` or a `RelativeBias`, as in `ring_attention`.
        mask: a rule. Ids of `Segments` are integer `[B, T]`, ordered like the query; an array of a
            `Rule` with B as the first of four axes has a number per row.
        layout: the mesh, and which of its axes split which axes of the arrays.
        **options: the keywords of `ring_attention`. Lengths are int or integers that broadcast to
            `[B]`, and segment ids integer `[B, T]`, ordered like the query. Each device draws its
            own dropout mask.

    Returns:
        float `[B, T, N, Hv]`, split and ordered like the query.

    Raises:
        ShapeError: an argument does not fit, or an axis size does not divide.
        ConfigError: an option is invalid or not supported, or the mesh has no such axis.

    Example:
        >>> import functools
        >>> import numpy as np
        >>> from jaxformer.functional import dot_product_attention, from_ring_order, to_ring_order
        >>> n = min(2, jax.device_count())
        >>> layout = RingLayout(mesh=jax.sharding.Mesh(jax.devices()[:n], ("sequence",)))
        >>> attend = functools.partial(sharded_ring_attention, layout=layout, is_causal=True)
        >>> x = np.random.default_rng(0).normal(size=(1, 8, 2, 4)).astype(np.float32)
        >>> output = from_ring_order(np.asarray(jax.jit(attend)(*[to_ring_order(x, n)] * 3)), n)
        >>> bool(np.allclose(output, dot_product_attention(x, x, x, is_causal=True), atol=1e-6))
        True
    """
    check_keywords("sharded_ring_attention", options, AttentionKeywords)
    refuse_for_ring(bias, mask, options)
    mesh, batch_axes, axis_name, head_axes = _checked_layout(layout)
    query, key, value = as_arrays(query=query, key=key, value=value)
    sizes = check_axes("query", query, "B T N H")
    sizes |= check_axes("key", key, "B T K H", sizes)
    for axis, called, axes, per_device in (
        ("T", "sequence length T of query and key", (axis_name,), 2),
        ("B", "batch size B", batch_axes, 1),
        ("N", "number of heads N of the query", head_axes, 1),
        ("K", "number of heads K of key and value", head_axes, 1),
    ):
        parts = per_device * math.prod(mesh.shape[name] for name in axes)
        if sizes[axis] % parts or sizes["T"] == 0:
            raise ShapeError(
                f"the {called} must be a multiple of {parts}, {per_device} for each device of the "
                f"mesh axes {axes}, got {sizes[axis]}; pad it, or choose another mesh"
            )
    inputs = prepare_attention(query, key, value, bias, mask, return_residual=True, **options)
    split = PartitionSpec(batch_axes, axis_name)
    heads, rows = PartitionSpec(*split, head_axes), PartitionSpec(batch_axes)

    def specs_of_rule(rule: Any) -> Any:
        if not isinstance(rule, Rule):
            return split if isinstance(rule, Segments) else rows
        by_row = [array.ndim == 4 and len(array) == sizes["B"] for array in rule.arrays]
        specs = tuple(rows if is_by_row else PartitionSpec() for is_by_row in by_row)
        return dataclasses.replace(rule, arrays=specs)

    specs: dict[str, Any] = dict.fromkeys(("query", "key", "value"), heads)
    # Slopes are [N], a table [num_buckets, N].
    specs["position_bias"] = PartitionSpec(*[None] * (not isinstance(bias, AlibiBias)), head_axes)
    specs["mask"] = jax.tree.map(
        specs_of_rule, inputs.mask, is_leaf=lambda part: isinstance(part, Segments | Rule)
    )
    specs["dropout_rng"] = PartitionSpec()
    move = functools.partial(exchange_chunks, axis_name=axis_name)

    def attend(inputs: AttentionInputs) -> jax.Array:
        arrays, mask, rng = (inputs.query, inputs.key, inputs.value), inputs.mask, None
        if inputs.dropout_rng is not None:
            rng = inputs.dropout_rng
            for axis in (*batch_axes, *head_axes):
                rng = jax.random.fold_in(rng, jax.lax.axis_index(axis))
        if not layout.in_ring_order:
            arrays = jax.tree.map(move, arrays)
            mask = map_rules(Segments, functools.partial(jax.tree.map, move), mask)
        changes: dict[str, Any] = dict(zip(("query", "key", "value"), arrays, strict=True))
        mask = gather_segments(mask, axis_name)
        inputs = dataclasses.replace(inputs, **changes, mask=mask, dropout_rng=rng)
        output = attend_on_ring(inputs, axis_name)
        return output if layout.in_ring_order else move(output, back=True)

    in_specs = dataclasses.replace(inputs, **specs)
    return jax.shard_map(attend, mesh=mesh, in_specs=(in_specs,), out_specs=heads)(inputs)


def exchange(x: jax.Array, layout: RingLayout, *, back: bool = False) -> jax.Array:
    """Moves an array `[B, T, ...]` of a mesh from original order into ring order, or back."""
    mesh, batch_axes, axis_name, _ = _checked_layout(layout)
    move = functools.partial(exchange_chunks, axis_name=axis_name, back=back)
    split = PartitionSpec(batch_axes, axis_name)
    return jax.shard_map(move, mesh=mesh, in_specs=split, out_specs=split)(x)


def _checked_layout(layout: RingLayout) -> tuple[_AnyMesh, tuple[str, ...], str, tuple[str, ...]]:
    """The mesh, and its axes for B, T and heads."""
    if not isinstance(layout, RingLayout):
        raise ConfigError(
            f"layout must be a RingLayout, got {type(layout).__name__}; make one with "
            "RingLayout(mesh=...)"
        )
    static_bool("in_ring_order", layout.in_ring_order)
    mesh: Any = jax.sharding.get_abstract_mesh() if layout.mesh is None else layout.mesh
    if not isinstance(mesh, _AnyMesh) or mesh.empty:
        got = "none from jax.set_mesh" if getattr(mesh, "empty", False) else type(mesh).__name__
        raise ConfigError(
            f"mesh must be a jax.sharding.Mesh, got {got}; make one with jax.make_mesh"
        )
    named: dict[str, Any] = {
        name: (axes,) if isinstance(axes := getattr(layout, name), str) else axes
        for name in ("sequence_axis", "batch_axes", "head_axes")
    }
    seen: list[str] = []
    for argument, axes in named.items():
        for axis in axes if isinstance(axes, tuple) else (axes,):
            if axis not in mesh.axis_names or axis in seen:
                raise ConfigError(
                    f"{argument} must name axes of the mesh, {', '.join(mesh.axis_names)}, each "
                    f"for one purpose, got {axis!r}"
                )
            seen.append(axis)
    return mesh, named["batch_axes"], layout.sequence_axis, named["head_axes"]
