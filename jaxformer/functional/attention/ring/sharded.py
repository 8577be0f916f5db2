"""Ring attention of global arrays, the only function here that shards arrays itself."""

import dataclasses
import functools
import math
from typing import Any, Unpack

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention.inputs import AttentionKeywords, used_rng
from jaxformer.functional.attention.ring.local import refuse_for_ring, ring_attention
from jaxformer.functional.attention.ring.order import (
    exchange_from_ring_order,
    exchange_to_ring_order,
)
from jaxformer.functional.checks import (
    Array,
    as_array,
    as_arrays,
    check_axes,
    check_keywords,
    static_bool,
)
from jaxformer.functional.masks.checks import read_lengths

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
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    layout: RingLayout,
    **options: Unpack[AttentionKeywords],
) -> jax.Array:
    """`ring_attention` of global arrays, split over the axes of a mesh.

    To use it in a model under `jax.jit`, pass `functools.partial(sharded_ring_attention,
    layout=RingLayout(mesh=mesh))` as the attention function; the rest of the model need not know
    that the sequence is split. Give the model tokens and segment ids in ring order
    (`to_ring_order`), split over the same axes, and their positions, `to_ring_order(np.arange(T),
    n, axis=0)`. Its output is in ring order, too. Only keys and values move, around the ring. With
    `in_ring_order=False`, sequences are in their original order and every call moves queries, keys,
    values and results into ring order and back, which costs as much traffic as about N / K + 1 ring
    steps.

    Args:
        query: float `[B, T, N, H]`, in ring order unless the layout says otherwise.
        key: float `[B, T, K, H]`.
        value: float `[B, T, K, Hv]`.
        bias: not supported, as in `ring_attention`.
        mask: not supported.
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
    check_axes("value", value, "B T K Hv", sizes)
    _check_divisible("batch size B", sizes["B"], mesh, batch_axes)
    _check_divisible(
        "sequence length T of query and key", sizes["T"], mesh, (axis_name,), per_device=2
    )
    _check_divisible("number of heads N of the query", sizes["N"], mesh, head_axes)
    _check_divisible("number of heads K of key and value", sizes["K"], mesh, head_axes)
    rest: dict[str, Any] = {**options}
    heads = PartitionSpec(batch_axes, axis_name, head_axes)
    arrays: dict[str, Any] = {"query": query, "key": key, "value": value}
    specs = dict.fromkeys(arrays, heads)
    for name in ("query_segment_ids", "key_value_segment_ids"):
        if (ids := rest.pop(name, None)) is not None:
            arrays[name], specs[name] = as_array(name, ids), PartitionSpec(batch_axes, axis_name)
            check_axes(name, arrays[name], "B T", sizes)
    ordered = tuple(arrays)  # all that have a sequence axis
    for name in ("query_seq_lengths", "key_value_seq_lengths"):
        lengths = read_lengths(name, rest.pop(name, None), (sizes["B"],), sizes["T"])
        if lengths is not None:
            arrays[name] = jnp.broadcast_to(jnp.asarray(lengths, jnp.int32), sizes["B"])
            specs[name] = PartitionSpec(batch_axes)
    rng = used_rng(rest.get("dropout_rate", 0.0), rest.pop("dropout_rng", None))

    def attend(arrays: dict[str, Any], rng: jax.Array | None) -> jax.Array:
        for axis in (*batch_axes, *head_axes):
            if rng is not None:
                rng = jax.random.fold_in(rng, jax.lax.axis_index(axis))
        if not layout.in_ring_order:
            move = functools.partial(exchange_to_ring_order, axis_name=axis_name, axis=1)
            arrays |= {name: move(arrays[name]) for name in ordered}
        output = ring_attention(**arrays, **rest, axis_name=axis_name, dropout_rng=rng)
        if layout.in_ring_order:
            return output
        return exchange_from_ring_order(output, axis_name=axis_name, axis=1)

    in_specs = specs, PartitionSpec()
    return jax.shard_map(attend, mesh=mesh, in_specs=in_specs, out_specs=heads)(arrays, rng)


def _checked_layout(
    layout: RingLayout,
) -> tuple[_AnyMesh, tuple[str, ...], str, tuple[str, ...]]:
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


def _check_divisible(
    called: str, size: int, mesh: _AnyMesh, axes: tuple[str, ...], *, per_device: int = 1
) -> None:
    """Checks that an axis can be cut into `each` parts for every device."""
    parts = per_device * math.prod(mesh.shape[axis] for axis in axes)
    if size % parts:
        raise ShapeError(
            f"the {called} must be a multiple of {parts}, {per_device} for each device of the "
            f"mesh axes {axes}, got {size}; pad it, or choose another mesh"
        )
