"""Attention of a block of queries over a block of keys: scores, softmax, values.

Every implementation in JAX calls `attend`; they differ in the blocks that they cut.
Axes: `g` query heads that share a key head, `t` queries, `s` keys, `h` key width, `v` value width.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

__all__ = ["SAVED", "Options", "attend", "biased", "capped", "masked", "scores", "softmax"]

_OUTPUT, _PEAK, _INVERSE_TOTAL = SAVED = (
    "attention_output",
    "attention_peak",
    "attention_inverse_total",
)
"""Names of what recomputation keeps: one output row and two numbers per query."""


class Options(NamedTuple):
    """Numbers that are fixed when a program is traced.

    Args:
        scale: factor of the scores.
        softcap: c in c * tanh(scores / c), or None.
        dropout_rate: share of the weights that are dropped.
    """

    scale: float
    softcap: float | None = None
    dropout_rate: float = 0.0


def scores(options: Options, query: jax.Array, key: jax.Array) -> jax.Array:
    """Computes scaled products of queries and keys.

    Args:
        options: with the scale.
        query: float `[..., g, t, h]`.
        key: float `[..., s, h]`.

    Returns:
        float32 (float64 for float64) `[..., g, t, s]`.
    """
    wide = jnp.promote_types(query.dtype, jnp.float32)
    products = jnp.einsum("...gth,...sh->...gts", query, key, preferred_element_type=wide)
    return products * options.scale


def capped(options: Options, scores: jax.Array) -> jax.Array:
    """Bounds scores smoothly, where the options have a cap."""
    if options.softcap is None:
        return scores
    return options.softcap * jnp.tanh(scores / options.softcap)


def biased(scores: jax.Array, bias: jax.Array | None) -> jax.Array:
    """Adds a bias that broadcasts to the scores, of their rank."""
    return scores if bias is None else scores + jnp.broadcast_to(bias, scores.shape)


def masked(scores: jax.Array, allowed: jax.Array | None) -> jax.Array:
    """Sets scores to -inf where `allowed`, of their rank, is False."""
    return scores if allowed is None else jnp.where(allowed, scores, -jnp.inf)


def softmax(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Splits a softmax over the last axis, in which -inf weighs 0, into two factors.

    Args:
        scores: float `[..., s]`; a row may be -inf throughout.

    Returns:
        (exponentials, inverse total), `[..., s]` and `[..., 1]`; their product is the weights.
    """
    peak = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True, initial=-jnp.inf))
    peak = checkpoint_name(jnp.where(peak == -jnp.inf, 0, peak), _PEAK)
    exponentials = jnp.exp(scores - peak)
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials, checkpoint_name(1 / jnp.where(total == 0, 1, total), _INVERSE_TOTAL)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def attend(
    options: Options,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array | None,
    allowed: jax.Array | None,
    keep: jax.Array | None,
) -> jax.Array:
    """Averages the values by the softmax of the scores.

    Args:
        options: scale, cap and dropout rate.
        query: float `[..., g, t, h]`.
        key: float `[..., s, h]`.
        value: float32 or float64 `[..., s, v]`.
        bias: float that broadcasts to `[..., g, t, s]`, of its rank, or None.
        allowed: bool that broadcasts to `[..., g, t, s]`; True = attend; None = everywhere.
        keep: bool `[..., g, t, s]`: the weights that dropout leaves; None = all.

    Returns:
        The value's dtype, `[..., g, t, v]`; 0 where nothing is allowed.
    """
    exponentials, inverse = softmax(_logits(options, allowed, query, key, bias))
    return _average(options, exponentials, value, keep) * inverse


@attend.defjvp
def _attend_jvp(options: Options, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    # With P the weights, the derivative of the output O = P V is
    #   P dV + (P * dS) V - rowsum(P * dS) O
    # and the transpose of that is the backward pass of FlashAttention (Dao et al., 2022): neither
    # needs more of the forward pass than O and two numbers a row, from which P comes back.
    query, key, value, bias, allowed, keep = primals
    query_dot, key_dot, value_dot, bias_dot, _, _ = tangents
    logits, logits_dot = jax.jvp(
        functools.partial(_logits, options, allowed),
        (query, key, bias),
        (query_dot, key_dot, bias_dot),
    )
    exponentials, inverse = softmax(logits)
    output = checkpoint_name(_average(options, exponentials, value, keep) * inverse, _OUTPUT)
    weights = exponentials * inverse
    moved = weights * logits_dot
    output_dot = _average(options, weights, value_dot, keep) + _average(options, moved, value, keep)
    return output, output_dot - moved.sum(axis=-1, keepdims=True) * output


def _logits(
    options: Options,
    allowed: jax.Array | None,
    query: jax.Array,
    key: jax.Array,
    bias: jax.Array | None,
) -> jax.Array:
    return masked(biased(capped(options, scores(options, query, key)), bias), allowed)


def _average(
    options: Options, weights: jax.Array, value: jax.Array, keep: jax.Array | None
) -> jax.Array:
    """Sums values by the weights that dropout leaves."""
    if keep is not None:
        weights = jnp.where(keep, weights / (1 - options.dropout_rate), 0)
    return jnp.einsum("...gts,...sv->...gtv", weights, value)
