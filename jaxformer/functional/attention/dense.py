"""Dense attention: all weights at once, fastest for short sequences."""

import dataclasses

import jax
from einops import rearrange

from jaxformer.functional.attention.block import (
    BlockInputs,
    attend_block,
    biased,
    capped,
    dot_products,
    masked,
    softmax_factors,
    weighted_values,
    zero_blind_queries,
    zero_hidden_keys,
)
from jaxformer.functional.attention.inputs import AttentionInputs
from jaxformer.functional.dtypes import widened
from jaxformer.functional.taps import LayerTaps


def dense_attention(
    inputs: AttentionInputs, operands: str | None = None
) -> tuple[jax.Array, jax.Array | None]:
    """`dot_product_attention` with all weights at once."""
    static = dataclasses.replace(inputs.static, operands=operands)
    query, key = _query_and_key_by_head(inputs)
    bias, mask = (_by_key_head(x, key.shape[-3]) for x in (inputs.bias_of(), inputs.mask_of()))
    value, keep = _value_by_head(inputs, mask), _kept(inputs)
    output, residual = attend_block(static, BlockInputs(query, key, value, bias, mask, keep))
    output = rearrange(output, "... k g t v -> ... t (k g) v").astype(inputs.query.dtype)
    if not static.return_residual:
        return output, None
    return output, rearrange(residual, "... k g t -> ... t (k g)")


def average_values(inputs: AttentionInputs, weights: jax.Array) -> jax.Array:
    """Values `[..., T, N, Hv]`, averaged by weights `[..., N, T, S]` after dropout."""
    kv_heads = inputs.key.shape[-2]
    value = _value_by_head(inputs, _by_key_head(inputs.mask_of(), kv_heads))
    weights = rearrange(weights, "... (k g) t s -> ... k g t s", k=kv_heads)
    output = weighted_values(inputs.static, weights, value, _kept(inputs))
    return rearrange(output, "... k g t v -> ... t (k g) v").astype(inputs.query.dtype)


def dense_weights(inputs: AttentionInputs, stage: str, tap: LayerTaps | None = None) -> jax.Array:
    """`attention_weights` up to a stage, float32 or 64 `[..., N, T, S]`; a tap edits the scores."""
    mask = None
    if stage in ("masked", "softmax"):
        mask = _by_key_head(inputs.mask_of(), inputs.key.shape[-2])
    query, key = _query_and_key_by_head(inputs)
    query, key = zero_blind_queries(query, mask), zero_hidden_keys(key, mask)
    weights = dot_products(inputs.static, query, key)
    if stage != "scores":
        weights = capped(inputs.static, weights)
    if stage not in ("scores", "capped"):
        weights = biased(weights, _by_key_head(inputs.bias_of(), key.shape[-3]))
        if tap is not None:
            weights = tap("scores", rearrange(weights, "... k g t s -> ... (k g) t s"))
            weights = rearrange(weights, "... (k g) t s -> ... k g t s", k=key.shape[-3])
        weights = masked(weights, mask)
    if stage == "softmax":
        exponentials, inverse, *_ = softmax_factors(weights)
        weights = exponentials * inverse
    return rearrange(weights, "... k g t s -> ... (k g) t s")


def _query_and_key_by_head(inputs: AttentionInputs) -> tuple[jax.Array, jax.Array]:
    # Heads before positions: XLA's batched products are faster this way.
    query = rearrange(inputs.query, "... t (k g) h -> ... k g t h", k=inputs.key.shape[-2])
    return query, rearrange(inputs.key, "... s k h -> ... k s h")


def _value_by_head(inputs: AttentionInputs, mask: jax.Array | None) -> jax.Array:
    """Values `[..., k, s, v]`, 0 where no query sees the key."""
    # In float32: weights rounded to bfloat16 make the error 1.5 times as large.
    return zero_hidden_keys(widened(rearrange(inputs.value, "... s k v -> ... k s v")), mask)


def _kept(inputs: AttentionInputs) -> jax.Array | None:
    """Weights that dropout leaves, bool `[..., k, g, t, s]`."""
    if inputs.dropout_rng is None:
        return None
    *leading, num_queries, num_heads, _ = inputs.query.shape
    num_keys, kv_heads, _ = inputs.key.shape[-3:]
    shape = (*leading, kv_heads, num_heads // kv_heads, num_queries, num_keys)
    return jax.random.bernoulli(inputs.dropout_rng, 1 - inputs.static.dropout_rate, shape)


def _by_key_head(array: jax.Array | None, kv_heads: int) -> jax.Array | None:
    """Mask or bias with its head axis, if not of size 1, split by key head."""
    if array is None:
        return None
    heads = kv_heads if array.shape[-3] > 1 else 1
    return rearrange(array, "... (k g) t s -> ... k g t s", k=heads)
