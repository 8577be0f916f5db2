"""Dense attention: all weights of a block at once, fastest for short sequences.

The derivative recomputes the weights from the scores and two numbers per query, the maximum and the
inverse total, as that of FlashAttention does (Dao et al., 2022). Axes are those of `block.py`.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange
from jax.ad_checkpoint import checkpoint_name

from jaxformer.functional.attention.block import (
    OUTPUT,
    BlockInputs,
    StaticOptions,
    biased,
    block_scores,
    capped,
    dot_products,
    masked,
    product,
    softmax_factors,
    weighted_values,
    zero_blind_queries,
    zero_except,
    zero_hidden_keys,
)
from jaxformer.functional.attention.inputs import AttentionInputs
from jaxformer.functional.dtypes import widened
from jaxformer.functional.linear_map import linear_map
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
    exponentials, inverse, _, residual = softmax_factors(block_scores(static, block))
    output = weighted_values(static, exponentials, block.value, block.keep) * inverse
    return Attended(output, residual[..., 0])


@attend_block.defjvp
def _attend_block_jvp(
    static: StaticOptions, primals: tuple[BlockInputs], tangents: tuple[BlockInputs]
) -> tuple[Attended, Attended]:
    block, block_dot = *primals, *tangents
    exponentials, inverse, maximum, residual = softmax_factors(block_scores(static, block))
    output = weighted_values(static, exponentials, block.value, block.keep) * inverse
    output = checkpoint_name(output, OUTPUT)
    if block.mask is not None:
        # The gradient of the query is a product with all keys, that of the key with all queries.
        # The forward pass needs no zeros there: they would cost a pass over the keys of a cache.
        query = zero_except(inverse != 0, block.query)  # of rows that see nothing it is 0
        block = block._replace(query=query, key=zero_hidden_keys(block.key, block.mask))
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
        return block_scores(static, BlockInputs(query, key, value, bias, mask))

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
