"""Ring attention: a sequence split over devices that pass keys and values around a ring.

In step s, every device attends from its own queries to the keys of the device s places before it,
merges the result by the log-sum-exp of the scores, and passes the keys on. The backward pass goes
round once more; gradients of keys and values travel with them. So a device never holds more than
its own share and one in transit. Differentiating through the loop would keep the keys and values of
every step, which is the whole sequence. The price: the backward pass recomputes the output of every
block, not only its weights.
"""

import functools
from typing import Any, Unpack

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention.choice import check_implementation
from jaxformer.functional.attention.inputs import (
    AttentionKeywords,
    prepare_attention,
    read_lengths,
    used_rng,
)
from jaxformer.functional.attention.ring.order import mapped_size
from jaxformer.functional.attention.ring.round import (
    Chunks,
    Keys,
    Queries,
    Ring,
    Shared,
    block_attention,
    go_round,
    share_of,
    varying,
    wide,
)
from jaxformer.functional.checks import Array, check_keywords
from jaxformer.functional.dtypes import at_least


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
        bias: not supported, because it would be `[T, T]` over all devices.
        mask: not supported, likewise.
        axis_name: the mapped axis that the sequence is split over, such as a mesh axis.
        **options: the keywords of `dot_product_attention`, except query_offset. Lengths count
            tokens of the whole sequence, segment ids are integer `[..., T/n]`, dropout_rng is the
            same on all devices of this axis, and the implementation, of each T/2n by T/2n block,
            may not be "cudnn".

    Returns:
        float `[..., T/n, N, Hv]`, in the query's dtype and in ring order.

    Raises:
        ShapeError: an argument does not fit.
        ConfigError: an option is invalid or not supported, or the axis is not mapped.

    References:
        Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite
        Context", 2023; Brandon et al., "Striped Attention", 2023 (balanced causal work).

    Example:
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
    if check_implementation(implementation) == "cudnn":
        raise ConfigError(
            "implementation='cudnn' cannot serve ring attention, which merges blocks by a residual "
            "that cuDNN does not return; pass 'auto' or 'chunked'"
        )
    lengths = options.pop("query_seq_lengths", None), options.pop("key_value_seq_lengths", None)
    dropout_rate, dropout_rng = options.pop("dropout_rate", 0.0), options.pop("dropout_rng", None)
    options["query_offset"] = 0
    inputs = prepare_attention(query, key, value, None, None, options, dropout_rate=dropout_rate)
    num_tokens, leading = inputs.query.shape[-3], inputs.query.shape[:-3]
    if inputs.key.shape[-3] != num_tokens or num_tokens == 0 or num_tokens % 2:
        raise ShapeError(
            "ring_attention is self-attention on two chunks a device: query and key must have the "
            f"same even T, got shapes {inputs.query.shape} and {inputs.key.shape}; pad the "
            f"sequence to a multiple of {2 * size}"
        )
    total = size * num_tokens
    shared = Shared(
        read_lengths("query_seq_lengths", lengths[0], leading, total),
        read_lengths("key_value_seq_lengths", lengths[1], leading, total),
        used_rng(dropout_rate, dropout_rng),
    )
    structure = inputs.structure
    ring = Ring(axis_name, size, structure.window, inputs.static, implementation)
    queries = Queries(_in_halves(inputs.query), _ids_in_halves(structure.query_ids))
    keys = Keys(_in_halves(inputs.key), _in_halves(inputs.value), _ids_in_halves(structure.key_ids))
    queries, keys, shared = varying(ring, (queries, keys, shared))
    output = _attend(ring, queries, keys, shared)
    output = rearrange(output, "half ... t n h -> ... (half t) n h")
    return output.astype(inputs.query.dtype)


def refuse_for_ring(bias: Any, mask: Any, options: AttentionKeywords) -> None:
    """Raises ConfigError for arguments that ring attention does not support."""
    for name, given in (("bias", bias), ("mask", mask)):
        if given is not None:
            raise ConfigError(
                f"ring attention takes no {name}, since a [T, T] array would not fit on a device "
                "of a ring; use is_causal, local_window_size, lengths and segment ids (with rotary "
                "or absolute positions), or dot_product_attention"
            )
    if (offset := options.get("query_offset")) is not None:
        raise ConfigError(
            f"ring attention takes no query_offset, got {offset!r}: queries and keys are the "
            "same tokens; leave it out"
        )


def _in_halves(array: jax.Array) -> jax.Array:
    return rearrange(array, "... (half t) n h -> half ... t n h", half=2)


def _ids_in_halves(ids: jax.Array | None) -> jax.Array | None:
    return None if ids is None else rearrange(ids, "... (half t) -> half ... t", half=2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(ring: Ring, queries: Queries, keys: Keys, shared: Shared) -> jax.Array:
    """Attention in halves: float32 or float64 `[2, ..., t, N, Hv]`."""
    return _forward(ring, queries, keys, shared)[0]


def _forward(
    ring: Ring, queries: Queries, keys: Keys, shared: Shared
) -> tuple[jax.Array, jax.Array]:
    """Output and log-sum-exp of all blocks."""
    rows, dtype = queries.query.shape[:-1], at_least(queries.query.dtype, jnp.float32)
    output = jnp.zeros((*rows, keys.value.shape[-1]), dtype)
    residual = jnp.full(rows, -jnp.inf, dtype)
    output, residual = varying(ring, (output, residual, queries.query))[:2]

    def merge(
        kind: int, chunks: Chunks, queries: Queries, keys: Keys, fixed: Any, own: Any,
        travelling: Any,
    ) -> tuple[Any, Any]:  # fmt: skip
        output, residual = own
        block = block_attention(ring, kind, chunks, queries, keys, shared)
        part, part_residual = block(*wide(queries, keys))
        total = jnp.logaddexp(residual, part_residual)
        output = output * share_of(residual, total) + part * share_of(part_residual, total)
        return (output, total), travelling

    own = output, residual
    (output, residual), _ = go_round(ring, shared, queries, keys, (), own, (), merge)
    return output, residual


def _attend_forward(
    ring: Ring, queries: Queries, keys: Keys, shared: Shared
) -> tuple[jax.Array, tuple]:
    output, residual = _forward(ring, queries, keys, shared)
    return output, (queries, keys, shared, output, residual)


def _attend_backward(ring: Ring, saved: tuple, cotangent: jax.Array) -> tuple[Queries, Keys, None]:
    queries, keys, shared, output, residual = saved
    zeros = [jnp.zeros(x.shape, output.dtype) for x in (queries.query, keys.key, keys.value)]
    own, *travelling, _ = varying(ring, (*zeros, output))
    # The whole output is the sum over blocks b of exp(r_b - r) O_b. With G the cotangent,
    #   dO_b = exp(r_b - r) G  and  dr_b = exp(r_b - r) (rowsum(G * O_b) - rowsum(G * O)).
    weighted = (cotangent * output).sum(axis=-1)

    def add_gradients(
        kind: int, chunks: Chunks, queries: Queries, keys: Keys, fixed: Any, own: Any,
        travelling: Any,
    ) -> tuple[Any, Any]:  # fmt: skip
        cotangent, weighted, residual = fixed
        block = block_attention(ring, kind, chunks, queries, keys, shared)
        (part, part_residual), pull = jax.vjp(block, *wide(queries, keys))
        share = share_of(part_residual, residual)
        along = (cotangent * part).sum(axis=-1) - weighted
        query, *others = pull((share * cotangent, share[..., 0] * along))
        return own + query, jax.tree.map(jnp.add, travelling, others)

    fixed = cotangent, weighted, residual
    query, (key, value) = go_round(
        ring, shared, queries, keys, fixed, own, travelling, add_gradients
    )
    return (
        Queries(query.astype(queries.query.dtype), None),
        Keys(key.astype(keys.key.dtype), value.astype(keys.value.dtype), None),
        None,
    )


_attend.defvjp(_attend_forward, _attend_backward)
