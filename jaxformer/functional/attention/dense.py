"""Attention that holds all weights at once: the fastest way for short sequences."""

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.functional.attention.block import attend, biased, capped, masked, scores, softmax
from jaxformer.functional.attention.inputs import AttentionInputs
from jaxformer.functional.attention.visibility import allowed_in, zero_unseen

__all__ = ["dense_attention", "dense_weights"]


def dense_attention(inputs: AttentionInputs, dropout_rng: jax.Array | None) -> jax.Array:
    """Computes `dot_product_attention` from the whole `[..., N, T, S]`.

    Args:
        inputs: as prepared.
        dropout_rng: PRNG key; None = no dropout.

    Returns:
        float `[..., T, N, Hv]`, in the query's dtype.
    """
    allowed = _allowed(inputs)
    inputs = zero_unseen(inputs, None if allowed is None else allowed.any(axis=-2))
    query, key = _heads_first(inputs)
    value = rearrange(inputs.value, "... s k v -> ... k s v")
    value = value.astype(jnp.promote_types(value.dtype, jnp.float32))
    keep = None
    if dropout_rng is not None:
        shape = (*query.shape[:-1], key.shape[-2])
        keep = jax.random.bernoulli(dropout_rng, 1 - inputs.options.dropout_rate, shape)
    bias, allowed = (_by_key_head(x, key.shape[-3]) for x in (inputs.bias, allowed))
    bias = None if bias is None else bias.astype(value.dtype)
    output = attend(inputs.options, query, key, value, bias, allowed, keep)
    return rearrange(output, "... k g t v -> ... t (k g) v").astype(inputs.query.dtype)


def dense_weights(inputs: AttentionInputs, stage: str) -> jax.Array:
    """Computes `attention_weights`.

    Args:
        inputs: as prepared.
        stage: "scores", "capped", "biased", "masked" or "softmax".

    Returns:
        float32 (float64 for float64) `[..., N, T, S]`.
    """
    allowed = None
    if stage in ("masked", "softmax"):
        allowed = _allowed(inputs)
        inputs = zero_unseen(inputs, None if allowed is None else allowed.any(axis=-2))
    query, key = _heads_first(inputs)
    weights = scores(inputs.options, query, key)
    if stage != "scores":
        weights = capped(inputs.options, weights)
    bias, allowed = (_by_key_head(x, key.shape[-3]) for x in (inputs.bias, allowed))
    if stage not in ("scores", "capped"):
        bias = None if bias is None else bias.astype(weights.dtype)
        weights = masked(biased(weights, bias), allowed)
    if stage == "softmax":
        exponentials, inverse = softmax(weights)
        weights = exponentials * inverse
    return rearrange(weights, "... k g t s -> ... (k g) t s")


def _allowed(inputs: AttentionInputs) -> jax.Array | None:
    return allowed_in(inputs, (0, inputs.query.shape[-3]), (0, inputs.key.shape[-3]))


def _heads_first(inputs: AttentionInputs) -> tuple[jax.Array, jax.Array]:
    # Heads before positions: XLA's batched products are faster that way.
    query = rearrange(inputs.query, "... t (k g) h -> ... k g t h", k=inputs.key.shape[-2])
    return query, rearrange(inputs.key, "... s k h -> ... k s h")


def _by_key_head(array: jax.Array | None, kv_heads: int) -> jax.Array | None:
    """Splits the head axis of a mask or bias, where it has one."""
    if array is None:
        return None
    heads = kv_heads if array.shape[-3] > 1 else 1
    return rearrange(array, "... (k g) t s -> ... k g t s", k=heads)
