"""Attention of one block of queries to one block of keys: scores, softmax, values.

Dense attention calls `attend` for all queries and keys; `recomputed.py` has the version for blocks.
Axes: `g` query heads that share a key head, `t` queries, `s` keys, `h` key width, `v` value width.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange
from jax.ad_checkpoint import checkpoint_name

from jaxformer.functional.dtypes import at_least

OUTPUT, _MAXIMUM, _INVERSE_TOTAL, _RESIDUAL = SAVED = (
    "attention_output",
    "attention_maximum",
    "attention_inverse_total",
    "attention_residual",
)
"""Names of what is saved under remat: one output row and up to three numbers per query."""


class StaticOptions(NamedTuple):
    """Numbers known at trace time; the residual is the log-sum-exp of the scores."""

    scale: float
    softcap: float | None = None
    dropout_rate: float = 0.0
    return_residual: bool = False
    operands: str | None = None  # dtype of the operands of products; None = as they are


def product(static: StaticOptions, pattern: str, left: jax.Array, right: jax.Array) -> jax.Array:
    """Contraction, summed in float32 or 64, of operands in the dtype that the options say."""
    wide = at_least(left.dtype, jnp.float32)
    if static.operands is not None:
        left, right = left.astype(static.operands), right.astype(static.operands)
    return jnp.einsum(pattern, left, right, preferred_element_type=wide)


def dot_products(static: StaticOptions, query: jax.Array, key: jax.Array) -> jax.Array:
    """Scaled dot products of `[..., g, t, h]` and `[..., s, h]`: float32 or 64 `[..., g, t, s]`."""
    # Half precision is accumulated and kept in float32: softmax would magnify rounding errors.
    return product(static, "...gth,...sh->...gts", query, key) * static.scale


def capped(static: StaticOptions, scores: jax.Array) -> jax.Array:
    """Scores soft-capped to (-softcap, softcap), if there is a cap."""
    if static.softcap is None:
        return scores
    return static.softcap * jnp.tanh(scores / static.softcap)


def biased(scores: jax.Array, bias: jax.Array | None) -> jax.Array:
    """Scores plus a bias of their rank that broadcasts to them."""
    return scores if bias is None else scores + jnp.broadcast_to(bias, scores.shape)


def masked(scores: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Scores with -inf where a mask of their rank is False."""
    return scores if mask is None else jnp.where(mask, scores, -jnp.inf)


class SoftmaxFactors(NamedTuple):
    """A softmax over the last axis as a product: `exponentials * inverse`."""

    exponentials: jax.Array  # [..., s]
    inverse: jax.Array  # [..., 1], 0 only in rows that see nothing
    maximum: jax.Array  # [..., 1], 0 in rows that see nothing
    residual: jax.Array  # log-sum-exp, [..., 1], -inf in rows that see nothing


def softmax_factors(scores: jax.Array) -> SoftmaxFactors:
    """Softmax in two factors, to divide once per output row, not per weight; -inf gets weight 0."""
    # The maximum only prevents overflow of exp; it cancels out and so has no gradient.
    maximum = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True, initial=-jnp.inf))
    # In a row that sees nothing, -inf - -inf would be NaN. With a maximum of 0, its weights are 0.
    maximum = checkpoint_name(jnp.where(maximum == -jnp.inf, 0, maximum), _MAXIMUM)
    exponentials = jnp.exp(scores - maximum)
    total = exponentials.sum(axis=-1, keepdims=True)
    safe_total = jnp.where(total == 0, 1, total)
    residual = jnp.where(total == 0, -jnp.inf, maximum + jnp.log(safe_total))
    return SoftmaxFactors(
        exponentials,
        checkpoint_name(jnp.where(total == 0, 0, 1 / safe_total), _INVERSE_TOTAL),
        maximum,
        checkpoint_name(residual, _RESIDUAL),
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def attend(
    static: StaticOptions,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array | None,
    mask: jax.Array | None,
    keep: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    """Average of the values `[..., g, t, v]`, log-sum-exp `[..., g, t]`; 0 and -inf if masked."""
    scores = block_scores(static, mask, query, key, bias)
    exponentials, inverse, _, residual = softmax_factors(scores)
    return weighted_values(static, exponentials, value, keep) * inverse, residual[..., 0]


@attend.defjvp
def _attend_jvp(
    static: StaticOptions, primals: tuple, tangents: tuple
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    # Everything here is linear in the tangents, so JAX transposes it by itself: one rule serves
    # forward mode, reverse mode, and derivatives of derivatives.
    query, key, value, bias, mask, keep = primals
    query_dot, key_dot, value_dot, bias_dot, _, _ = tangents
    # The gradient of the query is a product with all keys, that of the key with all queries.
    query, key = zero_unseeing(query, mask), zero_unseen(key, mask)
    scores, scores_dot = jax.jvp(
        functools.partial(block_scores, static, mask),
        (query, key, bias),
        (query_dot, key_dot, bias_dot),
    )
    exponentials, inverse, _, residual = softmax_factors(scores)
    output = checkpoint_name(weighted_values(static, exponentials, value, keep) * inverse, OUTPUT)
    dots = attended_dots(static, exponentials * inverse, scores_dot, value, value_dot, keep, output)
    return (output, residual[..., 0]), dots


def attended_dots(
    static: StaticOptions,
    weights: jax.Array,
    scores_dot: jax.Array,
    value: jax.Array,
    value_dot: jax.Array,
    keep: jax.Array | None,
    output: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Tangents of the output and the log-sum-exp, for those of the scores and the values."""
    # With P the weights, the derivative of O = P V is P dV + (P * dS) V - rowsum(P * dS) O, and
    # that of the log-sum-exp is rowsum(P * dS).
    weighted_dot = weights * scores_dot
    output_dot = weighted_values(static, weights, value_dot, keep)
    output_dot += weighted_values(static, weighted_dot, value, keep)
    residual_dot = weighted_dot.sum(axis=-1, keepdims=True)
    return output_dot - residual_dot * output, residual_dot[..., 0]


def block_scores(
    static: StaticOptions,
    mask: jax.Array | None,
    query: jax.Array,
    key: jax.Array,
    bias: jax.Array | None,
) -> jax.Array:
    """Scores of a block: capped, biased and masked, float32 or 64 `[..., g, t, s]`."""
    # ONNX order: a cap after the mask would lift -inf to -softcap and unhide keys.
    return masked(biased(capped(static, dot_products(static, query, key)), bias), mask)


def zero_unseen(array: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Keys or values `[..., s, _]`, zero where a mask `[..., g, t, s]` hides them everywhere."""
    # Weights of 0 alone would not keep a NaN out of a product, because 0 * NaN is NaN.
    if mask is None:
        return array
    seen = rearrange(mask.any(axis=(-3, -2)), "... s -> ... s 1")
    return jnp.where(jnp.broadcast_to(seen, array.shape), array, 0)


def zero_unseeing(query: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Queries `[..., g, t, h]`, zero where a mask `[..., g, t, s]` hides all keys from them."""
    if mask is None:
        return query
    return jnp.where(jnp.broadcast_to(mask.any(-1, keepdims=True), query.shape), query, 0)


def weighted_values(
    static: StaticOptions, weights: jax.Array, value: jax.Array, keep: jax.Array | None
) -> jax.Array:
    """Sum of the values, weighted by the weights kept by dropout."""
    if keep is not None:
        # Inverted dropout keeps the expected output, so inference needs no rescaling.
        weights = jnp.where(keep, weights / (1 - static.dropout_rate), 0)
    return product(static, "...gts,...sv->...gtv", weights, value)
