"""Attention weights of a layer, for those who read or edit them; shares of sinks.

Axes are those of `layer.py`.
"""

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.errors import ConfigError
from jaxformer.functional.attention import dot_product_attention
from jaxformer.functional.attention.block import softmax_factors
from jaxformer.functional.attention.dense import average_values, dense_weights
from jaxformer.functional.attention.inputs import AttentionInputs, prepare_attention
from jaxformer.functional.checks import check_axes, check_dtype
from jaxformer.functional.dtypes import at_least
from jaxformer.functional.multi_head.attention_function import (
    AttentionCall,
    AttentionFunction,
    attention_keywords,
    checked_result,
    function_name,
)
from jaxformer.functional.taps import LayerTaps


def read_weights(
    attention_fn: AttentionFunction, call: AttentionCall, sinks: jax.Array | None,
    tap: LayerTaps | None, return_weights: bool,
) -> tuple[jax.Array | None, bool]:  # fmt: skip
    """Weights `[..., N, T, S]` if anything reads them, and whether a tap edits them."""
    if not (return_weights or (tap is not None and tap.asks("scores", "weights"))):
        return None, False
    edits = tap is not None and tap.edits("scores", "weights")
    if attention_fn is dot_product_attention:
        weights = _softmax_weights(prepare_attention(*call[:-1], **call.options), sinks, tap)
    elif tap is not None and (tap.asks("scores") or tap.edits("weights")):
        raise ConfigError(
            "scores of a custom attention_fn are not known, and its weights cannot be edited, "
            f"got {function_name(attention_fn)}; do not request it, or use dot_product_attention"
        )
    else:
        weights = _weights_of_function(attention_fn, call, sinks)
    return weights if tap is None else tap("weights", weights), edits


def average_by_weights(call: AttentionCall, weights: jax.Array) -> jax.Array:
    """Values `[..., T, N, Hv]` averaged by edited weights."""
    return average_values(prepare_attention(*call[:-1], **call.options), weights)


def beside_sinks(
    sinks: jax.Array | None, attended: jax.Array, residual: jax.Array | None
) -> jax.Array:
    """Head outputs `[..., T, N, Hv]` of a softmax that the sinks, if any, take part in."""
    if sinks is None or residual is None:
        return attended
    return attended * _shares_beside_sinks(sinks, residual)[..., None].astype(attended.dtype)


def _softmax_weights(
    inputs: AttentionInputs, sinks: jax.Array | None, tap: LayerTaps | None
) -> jax.Array:
    """Weights `[..., N, T, S]` before dropout; the tap reads and edits the scores."""
    factors = softmax_factors(dense_weights(inputs, "masked", tap))
    weights = factors.exponentials * factors.inverse
    if sinks is None:
        return weights
    shares = _shares_beside_sinks(sinks, rearrange(factors.residual, "... n t 1 -> ... t n"))
    return weights * rearrange(shares, "... t n -> ... n t 1")


def _weights_of_function(
    attention_fn: AttentionFunction, call: AttentionCall, sinks: jax.Array | None
) -> jax.Array:
    """Weights `[..., N, T, S]` of a user's function, before dropout."""
    # Its output for the identity matrix as values, one row per key: exact if it is linear in them.
    (*leading, num_keys, kv_heads, _), wide = call.key.shape, at_least(call.key.dtype, jnp.float32)
    identity = rearrange(jnp.eye(num_keys, dtype=wide), "s v -> s 1 v")
    call = call._replace(
        query=call.query.astype(wide), key=call.key.astype(wide),
        value=jnp.broadcast_to(identity, (*leading, num_keys, kv_heads, num_keys)),
        options={**call.options, "dropout_rate": 0.0, "dropout_rng": None},
    )  # fmt: skip
    has_sinks = sinks is not None
    result = attention_fn(
        *call[:3], **attention_keywords(attention_fn, call, with_residual=has_sinks)
    )
    attended = beside_sinks(
        sinks, *checked_result(attention_fn, call, result, with_residual=has_sinks)
    )
    return rearrange(attended, "... t n s -> ... n t s")


def _shares_beside_sinks(sinks: jax.Array, residual: jax.Array) -> jax.Array:
    """Share of the softmax that goes to the keys, not the sink: float `[..., T, N]`."""
    check_axes("sinks", sinks, "N", {"N": residual.shape[-1]})
    check_dtype("sinks", sinks, "floating")
    # exp(residual) / (exp(residual) + exp(sink)), with the log-sum-exp of the scores as residual.
    return jax.nn.sigmoid(residual - jnp.broadcast_to(sinks.astype(residual.dtype), residual.shape))
