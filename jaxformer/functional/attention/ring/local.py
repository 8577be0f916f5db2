"""Ring attention under a mapped axis: every device calls it with its slice of the sequence."""

import functools
from collections.abc import Callable
from typing import Any, Unpack, cast

import jax
from einops import rearrange

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention.inputs import (
    AttentionKeywords,
    prepare_attention,
    split_bias,
    used_rng,
)
from jaxformer.functional.attention.program import check_implementation
from jaxformer.functional.attention.ring.order import from_ring_order, mapped_size
from jaxformer.functional.attention.ring.rounds import Keys, Ring, Shared, attend
from jaxformer.functional.checks import Array, check_keywords
from jaxformer.functional.masks.base import AnyMask, Mask, Sizes, all_rules, has_array
from jaxformer.functional.masks.checks import read_lengths
from jaxformer.functional.masks.parts import mask_parts
from jaxformer.functional.masks.rules import Lengths, Segments
from jaxformer.functional.positions.biases import PositionBias
from jaxformer.functional.sharding import varying_alike


def ring_attention(
    query: Array,
    key: Array,
    value: Array,
    bias: PositionBias | None = None,
    mask: Mask | None = None,
    *,
    axis_name: str,
    **options: Unpack[AttentionKeywords],
) -> jax.Array:
    """Self-attention over a sequence split over the devices of a mapped axis.

    Equals `dot_product_attention` of the whole sequence and is called like it. Every device calls
    it with its slice of the sequence in ring order (see `to_ring_order`). To use it in a
    model under `jax.shard_map`, pass `functools.partial(ring_attention, axis_name=...)` as the
    attention function and `ring_positions` as the positions. `sharded_ring_attention` also does the
    mapping.

    - Memory per device shrinks with the number of devices, in the backward pass too.
    - Blocks hidden by causality, window, lengths, segments or the ints of a rule are skipped.
      Causal work is the same on every device.
    - Partial results are merged in float32 (float64 for float64). Reverse mode only.
    - Dropout draws a separate mask for each block, so it differs from that on one device.

    Args:
        query: float `[..., T/n, N, H]`, this device's slice; T/n is even.
        key: float `[..., T/n, K, H]`; query head n reads key head n // (N / K).
        value: float `[..., T/n, K, Hv]`.
        bias: an `AlibiBias` or a `RelativeBias`, the same on all devices of this axis. An array is
            not supported: it would be `[T, T]` over all devices.
        mask: a rule, True = attend, of positions in the whole sequence; not an array. Ids of
            `Segments` are integer `[..., T/n]`, those of this device.
        axis_name: the mapped axis that the sequence is split over, such as a mesh axis.
        **options: the keywords of `dot_product_attention`, except query_offset. Lengths count
            tokens of the whole sequence, segment ids are integer `[..., T/n]`, dropout_rng is the
            same on all devices of this axis, and the implementation, of each T/2n by T/2n block,
            may not be "cudnn" or "splash".

    Returns:
        float `[..., T/n, N, Hv]`, in the query's dtype and in ring order.

    Raises:
        ShapeError: an argument does not fit.
        ConfigError: an option is invalid or not supported, or the axis is not mapped.

    References:
        Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite
        Context", 2023; Brandon et al., "Striped Attention", 2023 (balanced causal work).

    Example:
        >>> import functools
        >>> import numpy as np
        >>> from jax.sharding import PartitionSpec
        >>> from jaxformer.functional import dot_product_attention, from_ring_order, to_ring_order
        >>> n = min(2, jax.device_count())
        >>> mesh = jax.sharding.Mesh(jax.devices()[:n], ("sequence",))
        >>> attend = functools.partial(ring_attention, axis_name="sequence", is_causal=True)
        >>> split = PartitionSpec(None, "sequence")  # [B, T, N, H]
        >>> attend = jax.jit(jax.shard_map(attend, mesh=mesh, in_specs=split, out_specs=split))
        >>> x = np.random.default_rng(0).normal(size=(1, 8, 2, 4)).astype(np.float32)
        >>> output = from_ring_order(attend(*[to_ring_order(x, n)] * 3), n)
        >>> bool(np.allclose(output, dot_product_attention(x, x, x, is_causal=True), atol=1e-6))
        True
    """
    check_keywords("ring_attention", options, AttentionKeywords)
    refuse_for_ring(bias, mask, options)
    rest = cast("dict[str, Any]", options)
    size, implementation = mapped_size(axis_name), rest.pop("implementation", "auto")
    if check_implementation(implementation) in ("cudnn", "splash"):
        raise ConfigError(
            f"implementation={implementation!r} cannot serve ring attention, which merges blocks "
            "whose positions depend on the device, and calls no kernel; pass 'auto' or 'chunked'"
        )
    names = ("query_seq_lengths", "key_value_seq_lengths")
    lengths = {name: rest.pop(name, None) for name in names}
    dropout_rng = rest.pop("dropout_rng", None)
    inputs = prepare_attention(
        query, key, value, bias, **rest | {"query_offset": 0, "return_residual": True}
    )
    *leading, num_tokens, num_heads, _ = inputs.query.shape
    if inputs.key.shape[-3] != num_tokens or num_tokens == 0 or num_tokens % 2:
        raise ShapeError(
            "ring_attention is self-attention on two chunks a device: query and key must have the "
            f"same even T, got shapes {inputs.query.shape} and {inputs.key.shape}; pad the "
            f"sequence to a multiple of {2 * size}"
        )
    here = Sizes(tuple(leading), num_heads, num_tokens, num_tokens)
    whole = here._replace(num_queries=size * num_tokens, num_keys=size * num_tokens)
    real = Lengths(*(
        read_lengths(name, array, whole.leading, whole.num_keys) for name, array in lengths.items()
    ))  # fmt: skip

    def of_all_devices(segments: Segments) -> Segments:
        gather = functools.partial(jax.lax.all_gather, axis_name=axis_name, tiled=True)
        return jax.tree.map(
            lambda ids: from_ring_order(gather(ids, axis=ids.ndim - 1), size, axis=-1),
            segments.checked(here),
        )

    rules = map_segments(of_all_devices, all_rules(inputs.mask, real, mask)).checked(whole)
    shared = Shared(mask_parts(rules), used_rng(inputs.static.dropout_rate, dropout_rng))
    in_halves = functools.partial(rearrange, pattern="... (half t) n h -> half ... t n h", half=2)
    arrays = in_halves(inputs.query), Keys(in_halves(inputs.key), in_halves(inputs.value))
    marked = varying_alike((*arrays, inputs.position_bias, shared, jax.lax.axis_index(axis_name)))
    output = attend(Ring(axis_name, size, inputs.static, implementation), *marked[:-1])
    output = rearrange(output, "half ... t n h -> ... (half t) n h")
    return output.astype(inputs.query.dtype)


def map_segments(function: Callable[[Segments], Any], mask: AnyMask | None) -> Any:
    """The mask with the results of a function of its segments, whose ids are split like tokens."""

    def is_segments(part: object) -> bool:
        return isinstance(part, Segments)

    return jax.tree.map(lambda x: function(x) if is_segments(x) else x, mask, is_leaf=is_segments)


def refuse_for_ring(bias: Any, mask: Any, options: AttentionKeywords) -> None:
    """Raises ConfigError for arguments that ring attention does not support."""
    is_array = {"bias": split_bias(bias)[0] is not None, "mask": has_array(mask)}
    if name := next((name for name in is_array if is_array[name]), None):
        raise ConfigError(
            f"ring attention takes no array as {name}, since a [T, T] array would not fit on a "
            "device of a ring; use rules such as Causal or Segments and biases such as AlibiBias, "
            "or dot_product_attention"
        )
    if (offset := options.get("query_offset")) is not None:
        raise ConfigError(
            f"ring attention takes no query_offset, got {offset!r}: queries and keys are the "
            "same tokens; leave it out"
        )
