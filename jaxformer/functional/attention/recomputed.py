"""Attention of one block whose backward pass recomputes the weights, with keys before queries.

The weights follow from the scores and two numbers per query, the maximum and the inverse total. The
backward pass is that of FlashAttention (Dao et al., 2022). It has the scores as `[s, q]`, where `q`
are all queries of the block, `(g t)`: on CPUs, products that contract the first axis of a large
matrix take up to three times as long as others, and this order avoids them.
Axes are those of `block.py`.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange
from jax.ad_checkpoint import checkpoint_name

from jaxformer.functional.attention.block import (
    OUTPUT,
    StaticOptions,
    attended_dots,
    averaged_values,
    biased,
    block_scores,
    capped,
    masked,
    softmax_factors,
    weighted_values,
)
from jaxformer.functional.linear_map import linear_map


class _Saved(NamedTuple):
    """Inputs of a block, its output, and of each query the maximum and the inverse total.

    With these two, weights are exact for all scores. Their log-sum-exp alone would lose the number
    of keys where scores are far from 0.
    """

    query: jax.Array
    key: jax.Array
    value: jax.Array
    bias: jax.Array | None
    mask: jax.Array | None
    keep: jax.Array | None
    output: jax.Array
    maximum: jax.Array
    inverse: jax.Array


class _Dots(NamedTuple):
    """Tangents or cotangents of the query, the key, the value and the bias."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    bias: jax.Array | None


_Attended = tuple[jax.Array, jax.Array]
"""Output `[..., g, t, v]` and log-sum-exp `[..., g, t]`, or their tangents or cotangents."""


# For arrays of one float dtype, float32 or 64.
attend_recomputing = jax.custom_jvp(averaged_values, nondiff_argnums=(0,))


@attend_recomputing.defjvp
def _attend_jvp(
    static: StaticOptions, primals: tuple, tangents: tuple
) -> tuple[_Attended, _Attended]:
    query, key, value, bias, mask, keep = primals
    factors = softmax_factors(block_scores(static, mask, query, key, bias))
    output = weighted_values(static, factors.exponentials, value, keep) * factors.inverse
    output = checkpoint_name(output, OUTPUT)
    dots = linear_map(
        functools.partial(_forward, static),
        functools.partial(_backward, static),
        _Saved(query, key, value, bias, mask, keep, output, factors.maximum, factors.inverse),
        _Dots(*tangents[:4]),
    )
    return (output, factors.residual[..., 0]), dots


def _forward(static: StaticOptions, saved: _Saved, dots: _Dots) -> _Attended:
    """Tangents of the results for those of the inputs."""
    scores, scores_dot = jax.jvp(
        functools.partial(block_scores, static, saved.mask),
        (saved.query, saved.key, saved.bias),
        (dots.query, dots.key, dots.bias),
    )
    weights = jnp.exp(scores - saved.maximum) * saved.inverse
    return attended_dots(
        static, weights, scores_dot, saved.value, dots.value, saved.keep, saved.output
    )


def _backward(static: StaticOptions, saved: _Saved, cotangents: _Attended) -> _Dots:
    """Cotangents of the inputs for those of the results: the transpose of `_forward`."""
    output_bar, residual_bar = cotangents
    group, length = saved.query.shape[-3:-1]

    def keys_first(block: jax.Array) -> jax.Array:
        block = jnp.broadcast_to(block, (*block.shape[:-3], group, length, block.shape[-1]))
        return rearrange(block, "... g t s -> ... s (g t)")

    def score(products: jax.Array, bias: jax.Array | None) -> jax.Array:
        bias = None if bias is None else keys_first(bias)
        # Otherwise XLA transposes the mask element by element, in the loop over the scores.
        mask = None if saved.mask is None else _in_memory(keys_first(saved.mask))
        return masked(biased(capped(static, products * static.scale), bias), mask)

    query, output_rows = (
        rearrange(x, "... g t h -> ... (g t) h") for x in (saved.query, output_bar)
    )
    products = jnp.einsum("...sh,...qh->...sq", saved.key, query)
    scores, pull = jax.vjp(score, products, saved.bias)
    maximum, inverse = (
        rearrange(x, "... g t 1 -> ... 1 (g t)") for x in (saved.maximum, saved.inverse)
    )
    weights = jnp.exp(scores - maximum) * inverse
    weights_bar = jnp.einsum("...sv,...qv->...sq", saved.value, output_rows)
    kept = weights
    if saved.keep is not None:
        share = jnp.where(keys_first(saved.keep), 1 / (1 - static.dropout_rate), 0)
        kept, weights_bar = weights * share, weights_bar * share
    value_bar = jnp.einsum("...sq,...qv->...sv", kept, output_rows)
    # The softmax subtracts rowsum(P * dP), which is rowsum(O * dO).
    shift = (saved.output * output_bar).sum(axis=-1) - residual_bar
    products_bar, bias_bar = pull(
        weights * (weights_bar - rearrange(shift, "... g t -> ... 1 (g t)"))
    )
    key_bar = jnp.einsum("...sq,...qh->...sh", products_bar, query)
    # A small matrix is transposed, not the scores, which XLA would prefer.
    key_rows = _in_memory(rearrange(saved.key, "... s h -> ... h s"))
    query_bar = _in_memory(jnp.einsum("...hs,...sq->...hq", key_rows, products_bar))
    query_bar = rearrange(query_bar, "... h (g t) -> ... g t h", g=group)
    return _Dots(query_bar, key_bar, value_bar, bias_bar)


def _in_memory(array: jax.Array) -> jax.Array:
    """The array, which XLA then computes as it is, in this order of its axes."""
    return jax.lax.optimization_barrier(array)
