"""The parts of attention of one block of queries to one of keys: scores, softmax, values.

Dense attention is one block, chunked attention a loop over many.
Axes: `g` query heads that share a key head, `t` queries, `s` keys, `h` key width, `v` value width.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange
from jax.ad_checkpoint import checkpoint_name

from jaxformer.functional.dtypes import at_least

OUTPUT, _MAXIMUM, _INVERSE_TOTAL, _RESIDUAL = SAVED = (
    "attention_weighted_values",
    "attention_maximum",
    "attention_inverse_total",
    "attention_residual",
)
"""Names of what is saved under remat: one output row and up to three numbers per query."""


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class StaticOptions:
    """Numbers known at trace time; the residual is the log-sum-exp of the scores."""

    scale: float
    softcap: float | None = None
    dropout_rate: float = 0.0
    return_residual: bool = False
    precision: jax.lax.PrecisionLike = None
    operands: str | None = None  # dtype of the operands of products; None = as they are


def product(static: StaticOptions, pattern: str, left: jax.Array, right: jax.Array) -> jax.Array:
    """Contraction, summed in float32 or 64, of operands in the dtype that the options say."""
    wide = at_least(left.dtype, jnp.float32)
    if static.operands is not None:
        left, right = left.astype(static.operands), right.astype(static.operands)
    return jnp.einsum(pattern, left, right, precision=static.precision, preferred_element_type=wide)


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


class BlockInputs(NamedTuple):
    """Arrays of a block, or tangents or cotangents; `keep` is what dropout leaves."""

    query: jax.Array  # [..., g, t, h]
    key: jax.Array  # [..., s, h]
    value: jax.Array  # float32 or 64 [..., s, v], 0 where no query of the block sees the key
    bias: jax.Array | None = None  # like [..., g, t, s], of its rank, as are these:
    mask: jax.Array | None = None
    keep: jax.Array | None = None


def block_scores(static: StaticOptions, block: BlockInputs) -> jax.Array:
    """Scores of a block: capped, biased and masked, float32 or 64 `[..., g, t, s]`."""
    # ONNX order: a cap after the mask would lift -inf to -softcap and unhide keys.
    scores = capped(static, dot_products(static, block.query, block.key))
    return masked(biased(scores, block.bias), block.mask)


def zero_hidden_keys(array: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Keys or values `[..., s, _]`, zero where a mask `[..., g, t, s]` hides them everywhere."""
    if mask is None:
        return array
    return zero_except(rearrange(mask.any(axis=(-3, -2)), "... s -> ... s 1"), array)


def zero_blind_queries(query: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Queries `[..., g, t, h]`, zero where a mask `[..., g, t, s]` hides all keys from them."""
    return query if mask is None else zero_except(mask.any(-1, keepdims=True), query)


def zero_except(mask: jax.Array, array: jax.Array) -> jax.Array:
    """The array with zeros where a mask that broadcasts to it is False."""
    # Weights of 0 alone would not keep a NaN out of a product, because 0 * NaN is NaN.
    return jnp.where(jnp.broadcast_to(mask, array.shape), array, 0)


def weighted_values(
    static: StaticOptions, weights: jax.Array, value: jax.Array, keep: jax.Array | None
) -> jax.Array:
    """Sum of the values, weighted by the weights kept by dropout."""
    if keep is not None:
        # Inverted dropout keeps the expected output, so inference needs no rescaling.
        weights = jnp.where(keep, weights / (1 - static.dropout_rate), 0)
    return product(static, "...gts,...sv->...gtv", weights, value)
