"""Attention of one block of queries to one block of keys: scores, softmax, values, derivatives.

Dense attention is one block, chunked attention a loop over many. The derivative recomputes the
weights from the scores and two numbers per query, the maximum and the inverse total, as that of
FlashAttention does (Dao et al., 2022).
Axes: `g` query heads that share a key head, `t` queries, `s` keys, `h` key width, `v` value width.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange
from jax.ad_checkpoint import checkpoint_name

from jaxformer.functional.dtypes import at_least
from jaxformer.functional.linear_map import linear_map

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


class _Saved(NamedTuple):
    """A block, its output, and of each query the maximum and the inverse total."""

    block: BlockInputs
    output: jax.Array  # [..., g, t, v]
    # With these two, weights are exact. The log-sum-exp would lose the number of keys where scores
    # are far from 0.
    maximum: jax.Array  # [..., g, t, 1]
    inverse: jax.Array  # [..., g, t, 1]


class Attended(NamedTuple):
    """Output and log-sum-exp of a block, or their tangents or cotangents."""

    output: jax.Array  # [..., g, t, v]
    residual: jax.Array  # [..., g, t]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def attend_block(static: StaticOptions, block: BlockInputs) -> Attended:
    """Averages of the values `[..., g, t, v]`, log-sum-exp `[..., g, t]`; 0 and -inf if masked."""
    exponentials, inverse, _, residual = softmax_factors(_scores(static, block))
    output = weighted_values(static, exponentials, block.value, block.keep) * inverse
    return Attended(output, residual[..., 0])


@attend_block.defjvp
def _attend_block_jvp(
    static: StaticOptions, primals: tuple[BlockInputs], tangents: tuple[BlockInputs]
) -> tuple[Attended, Attended]:
    block, block_dot = *primals, *tangents
    # The gradient of the query is a product with all keys, that of the key with all queries. The
    # forward pass needs no zeros there: they would cost a pass over the keys of a cache.
    query = zero_blind_queries(block.query, block.mask)
    block = block._replace(query=query, key=zero_hidden_keys(block.key, block.mask))
    exponentials, inverse, maximum, residual = softmax_factors(_scores(static, block))
    output = weighted_values(static, exponentials, block.value, block.keep) * inverse
    output = checkpoint_name(output, OUTPUT)
    dots = linear_map(
        functools.partial(_forward, static),
        functools.partial(_backward, static),
        _Saved(block, output, maximum, inverse),
        block_dot._replace(mask=None, keep=None),
    )
    return Attended(output, residual[..., 0]), dots


def _forward(static: StaticOptions, saved: _Saved, dots: BlockInputs) -> Attended:
    """Tangents of the results for those of the inputs."""
    # Forward mode and second derivatives are not rounded.
    static = dataclasses.replace(static, operands=None)
    query, key, value, bias, mask, keep = saved.block

    def scores_of(query: jax.Array, key: jax.Array, bias: jax.Array | None) -> jax.Array:
        return _scores(static, BlockInputs(query, key, value, bias, mask))

    scores, scores_dot = jax.jvp(scores_of, (query, key, bias), (dots.query, dots.key, dots.bias))
    weights = jnp.exp(scores - saved.maximum) * saved.inverse
    # With P the weights, the derivative of O = P V is P dV + (P * dS) V - rowsum(P * dS) O, and
    # that of the log-sum-exp is rowsum(P * dS).
    weighted_dot = weights * scores_dot
    output_dot = weighted_values(static, weights, dots.value, keep)
    output_dot += weighted_values(static, weighted_dot, value, keep)
    residual_dot = weighted_dot.sum(axis=-1, keepdims=True)
    return Attended(output_dot - residual_dot * saved.output, residual_dot[..., 0])


def _backward(static: StaticOptions, saved: _Saved, cotangents: Attended) -> BlockInputs:
    """Cotangents of the inputs for those of the results: the transpose of `_forward`."""
    # Keys come first, `[..., s, g, t]`: on CPUs, products that contract the first axis of a large
    # matrix take up to three times as long as others, and this order avoids them.
    output_bar, residual_bar = cotangents
    query, key, value, bias, mask, keep = saved.block
    mask, keep = _keys_first(mask), _keys_first(keep)

    def scores_of(products: jax.Array, bias: jax.Array | None) -> jax.Array:
        return masked(biased(capped(static, products * static.scale), _keys_first(bias)), mask)

    with jax.named_scope("rematted_computation"):  # as jax.checkpoint calls what it computes again
        products = product(static, "...sh,...gth->...sgt", key, query)
    scores, pull = jax.vjp(scores_of, products, bias)
    exponentials = jnp.exp(scores - rearrange(saved.maximum, "... g t 1 -> ... 1 g t"))
    # The weights' factor 1 / total is applied to what they multiply, which is smaller.
    output_bar = output_bar * saved.inverse
    # The softmax subtracts rowsum(P * dP), which is rowsum(O * dO).
    shift = (saved.output * output_bar).sum(axis=-1) - residual_bar * saved.inverse[..., 0]
    shift = rearrange(shift, "... g t -> ... 1 g t")
    weights_bar = product(static, "...sv,...gtv->...sgt", value, output_bar)
    weights = exponentials
    if keep is not None:
        share = jnp.where(keep, 1 / (1 - static.dropout_rate), 0)
        weights, weights_bar = weights * share, weights_bar * share
    products_bar, bias_bar = pull(exponentials * (weights_bar - shift))
    value_bar = product(static, "...sgt,...gtv->...sv", weights, output_bar)
    key_bar = product(static, "...sgt,...gth->...sh", products_bar, query)
    # A small matrix is transposed, not the scores, which XLA would prefer.
    key = _in_memory(rearrange(key, "... s h -> ... h s"))
    query_bar = _in_memory(product(static, "...hs,...sgt->...hgt", key, products_bar))
    query_bar = rearrange(query_bar, "... h g t -> ... g t h")
    query_bar, key_bar = query_bar.astype(query.dtype), key_bar.astype(key.dtype)
    return BlockInputs(query_bar, key_bar, value_bar, bias_bar)


def _keys_first(array: jax.Array | None) -> jax.Array | None:
    return None if array is None else rearrange(array, "... g t s -> ... s g t")


def _in_memory(array: jax.Array) -> jax.Array:
    """The array, which XLA then computes as it is, in this order of its axes."""
    return jax.lax.optimization_barrier(array)


def _scores(static: StaticOptions, block: BlockInputs) -> jax.Array:
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
