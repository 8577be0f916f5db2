"""Attention as somebody else might write it, and the check of a claim about it."""

import jax
import jax.numpy as jnp

from jaxformer.testing import ATTENTION_CLAIMS, AttentionSizes, assert_attention_contract

GROUPED = AttentionSizes(num_heads=6, num_kv_heads=2, value_head_dim=11)


def attention(query, key, value, *, mask=None, is_causal=False, scale=None, dtype=jnp.float32):
    """Plain JAX, correct in every claim; scale and dtype of the scores are there to go wrong."""
    groups = query.shape[2] // key.shape[2]
    allowed = jnp.ones((1, 1, query.shape[1], key.shape[1]), bool)
    if is_causal:
        allowed = allowed & jnp.tril(allowed)
    if mask is not None:
        allowed = allowed & mask
        seen = allowed.any(axis=2)[:, 0, :, None, None]
        key, value = jnp.where(seen, key, 0), jnp.where(seen, value, 0)
    key, value = jnp.repeat(key, groups, axis=2), jnp.repeat(value, groups, axis=2)
    scores = jnp.einsum("btnh,bsnh->bnts", query, key, preferred_element_type=dtype)
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    weights = jax.nn.softmax(jnp.where(allowed, scores, -1e30), axis=-1)
    weights = jnp.where(allowed, weights, 0)
    output = jnp.einsum("bnts,bsnh->btnh", weights.astype(value.dtype), value)
    return output.astype(query.dtype)


def check(claim, function, sizes=None):
    """Checks one claim of the contract alone."""
    without = [name for name in ATTENTION_CLAIMS if name != claim]
    assert_attention_contract(function, sizes or AttentionSizes(), without=without)
