"""Ring attention under a mapped axis: every device calls it with its slice of the sequence."""

from typing import Any, Unpack, cast

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention.block_mask import mask_parts
from jaxformer.functional.attention.choice import check_implementation
from jaxformer.functional.attention.inputs import (
    AttentionKeywords,
    prepare_attention,
    used_rng,
)
from jaxformer.functional.attention.ring.order import mapped_size
from jaxformer.functional.attention.ring.rounds import Keys, Queries, Ring, Shared, attend
from jaxformer.functional.checks import Array, check_keywords
from jaxformer.functional.masks.checks import read_lengths
from jaxformer.functional.masks.rules import Segments
from jaxformer.functional.sharding import varying_alike


def ring_attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None = None,
    mask: Array | None = None,
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
    - Blocks hidden by causality, window, lengths or segments are skipped. Causal work is the same
      on every device.
    - Partial results are merged in float32 (float64 for float64). Reverse mode only.
    - Dropout draws a separate mask for each block, so it differs from that on one device.

    Args:
        query: float `[..., T/n, N, H]`, this device's slice; T/n is even.
        key: float `[..., T/n, K, H]`; query head n reads key head n // (N / K).
        value: float `[..., T/n, K, Hv]`.
        bias: not supported: an array would be `[T, T]` over all devices. Position biases are not
            either.
        mask: not supported, likewise.
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
    size, implementation = mapped_size(axis_name), options.pop("implementation", "auto")
    if check_implementation(implementation) in ("cudnn", "splash"):
        raise ConfigError(
            f"implementation={implementation!r} cannot serve ring attention, which merges blocks "
            "whose positions depend on the device, and calls no kernel; pass 'auto' or 'chunked'"
        )
    lengths = options.pop("query_seq_lengths", None), options.pop("key_value_seq_lengths", None)
    dropout_rng, rest = options.pop("dropout_rng", None), cast("dict[str, Any]", options)
    inputs = prepare_attention(query, key, value, **rest | {"query_offset": 0})
    num_tokens, leading = inputs.query.shape[-3], inputs.query.shape[:-3]
    if inputs.key.shape[-3] != num_tokens or num_tokens == 0 or num_tokens % 2:
        raise ShapeError(
            "ring_attention is self-attention on two chunks a device: query and key must have the "
            f"same even T, got shapes {inputs.query.shape} and {inputs.key.shape}; pad the "
            f"sequence to a multiple of {2 * size}"
        )
    shared = Shared(
        read_lengths("query_seq_lengths", lengths[0], leading, size * num_tokens),
        read_lengths("key_value_seq_lengths", lengths[1], leading, size * num_tokens),
        used_rng(inputs.static.dropout_rate, dropout_rng),
    )
    parts = mask_parts(inputs.mask)
    window, (query_ids, key_ids) = parts.window, _ids_in_halves(parts.segments)
    ring = Ring(axis_name, size, (window.left, window.right), inputs.static, implementation)
    queries = Queries(_in_halves(inputs.query), query_ids)
    keys = Keys(_in_halves(inputs.key), _in_halves(inputs.value), key_ids)
    marked = varying_alike((queries, keys, shared, jax.lax.axis_index(axis_name)))
    output = attend(ring, *marked[:3])
    output = rearrange(output, "half ... t n h -> ... (half t) n h")
    return output.astype(inputs.query.dtype)


def _in_halves(array: jax.Array) -> jax.Array:
    return rearrange(array, "... (half t) n h -> half ... t n h", half=2)


def _ids_in_halves(segments: Segments | None) -> tuple[jax.Array | None, jax.Array | None]:
    if segments is None:
        return None, None
    ids = jnp.stack([jnp.asarray(segments.query_ids), jnp.asarray(segments.key_ids)])
    query_ids, key_ids = rearrange(ids, "two ... (half t) -> two half ... t", half=2)
    return query_ids, key_ids


def refuse_for_ring(bias: Any, mask: Any, options: AttentionKeywords) -> None:
    """Raises ConfigError for arguments that ring attention does not support."""
    for name, array in (("bias", bias), ("mask", mask)):
        if array is not None:
            raise ConfigError(
                f"ring attention takes no {name}, since a [T, T] array would not fit on a device "
                "of a ring, and it computes no position biases; use is_causal, local_window_size, "
                "lengths and segment ids (with rotary or absolute positions), or "
                "dot_product_attention"
            )
    if (offset := options.get("query_offset")) is not None:
        raise ConfigError(
            f"ring attention takes no query_offset, got {offset!r}: queries and keys are the "
            "same tokens; leave it out"
        )
