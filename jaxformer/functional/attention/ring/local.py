"""Ring attention under a mapped axis: every device calls it with its slice of the sequence."""

import dataclasses
import functools
from typing import Any, Unpack

import jax
from einops import rearrange

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention.inputs import (
    AttentionInputs,
    AttentionKeywords,
    prepare_attention,
    split_bias,
)
from jaxformer.functional.attention.ring.order import from_ring_order, mapped_size
from jaxformer.functional.attention.ring.rounds import attend_rounds
from jaxformer.functional.checks import Array, check_keywords
from jaxformer.functional.masks.base import Mask, Sizes, all_rules, has_array, map_rules
from jaxformer.functional.masks.checks import read_lengths
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
    size = mapped_size(axis_name)
    keywords: dict[str, Any] = {**options, "query_offset": 0}
    names = ("query_seq_lengths", "key_value_seq_lengths")
    lengths = {name: keywords.pop(name, None) for name in names}
    inputs = prepare_attention(query, key, value, bias, return_residual=True, **keywords)
    *leading, num_tokens, num_heads, _ = inputs.query.shape
    if inputs.key.shape[-3] != num_tokens or num_tokens == 0 or num_tokens % 2:
        raise ShapeError(
            "ring_attention is self-attention on two chunks a device: query and key must have the "
            f"same even T, got shapes {inputs.query.shape} and {inputs.key.shape}; pad the "
            f"sequence to a multiple of {2 * size}"
        )
    here = Sizes(tuple(leading), num_heads, num_tokens, num_tokens)
    whole = here._replace(num_queries=size * num_tokens, num_keys=size * num_tokens)
    real_tokens = Lengths(*(
        read_lengths(name, array, whole.leading, whole.num_keys) for name, array in lengths.items()
    ))  # fmt: skip
    rules = map_rules(
        Segments, lambda segments: segments.checked(here), all_rules(inputs.mask, real_tokens, mask)
    )
    rules = gather_segments(rules, axis_name).checked(whole)
    return attend_on_ring(dataclasses.replace(inputs, mask=rules), axis_name)


def attend_on_ring(inputs: AttentionInputs, axis_name: str) -> jax.Array:
    """`ring_attention` of checked inputs, with the residual and the mask of the whole sequence."""
    halves: dict[str, Any] = {
        name: rearrange(getattr(inputs, name), "... (half t) n h -> half ... t n h", half=2)
        for name in ("query", "key", "value")
    }
    in_halves = dataclasses.replace(inputs, **halves)
    in_halves, _ = varying_alike((in_halves, jax.lax.axis_index(axis_name)))
    output = rearrange(attend_rounds(axis_name, in_halves), "half ... t n h -> ... (half t) n h")
    return output.astype(inputs.query.dtype)


def gather_segments(mask: Mask | None, axis_name: str) -> Any:
    """The mask with the segment ids of all devices, in the original order of the sequence."""

    def gather(ids: jax.Array) -> Any:
        ids = jax.lax.all_gather(ids, axis_name, axis=ids.ndim - 1, tiled=True)
        return from_ring_order(ids, jax.lax.axis_size(axis_name), axis=-1)

    return map_rules(Segments, functools.partial(jax.tree.map, gather), mask)


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
    if (implementation := options.get("implementation")) in ("cudnn", "splash"):
        raise ConfigError(
            f"implementation={implementation!r} cannot serve ring attention, which merges blocks "
            "whose positions depend on the device, and calls no kernel; pass 'auto' or 'chunked'"
        )
