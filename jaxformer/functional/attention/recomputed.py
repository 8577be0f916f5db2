"""Attention of one block whose backward pass recomputes the weights, with keys before queries.

The weights follow from the scores and two numbers per query, the maximum and the inverse total. The
backward pass is that of FlashAttention (Dao et al., 2022). It has the scores as `[s, g, t]`, or
`[s, q]` with all queries `q` of the block: on CPUs, products that contract the first axis of a
large matrix take up to three times as long as others, and this order avoids them.
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
    biased,
    block_scores,
    capped,
    masked,
    product,
    softmax_factors,
    weighted_values,
)
from jaxformer.functional.linear_map import linear_map
from jaxformer.functional.masks.tiles import in_memory


class Masks(NamedTuple):
    """Mask of a block `[..., g, t, s]`, and the same mask as `[..., g, s, t]`."""

    by_query: jax.Array
    by_key: jax.Array  # to transpose it would take a quarter of the time of the backward pass


class Block(NamedTuple):
    """Inputs of `block.attend`, with both orders of the mask."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    bias: jax.Array | None
    masks: Masks | None
    keep: jax.Array | None
    unseen: jax.Array | None = None  # keys that the derivative has to zero, bool [..., s]


class _Saved(NamedTuple):
    """A block, its output, and of each query the maximum and the inverse total."""

    block: Block
    output: jax.Array
    # With these two, weights are exact. The log-sum-exp would lose the number of keys where scores
    # are far from 0.
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


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def attend_recomputing(static: StaticOptions, block: Block) -> _Attended:
    """`block.attend` of arrays of one float dtype, float32 or 64."""
    saved, residual = _average(static, block)
    return saved.output, residual


@attend_recomputing.defjvp
def _attend_jvp(
    static: StaticOptions, primals: tuple[Block], tangents: tuple[Block]
) -> tuple[_Attended, _Attended]:
    saved, residual = _average(static, *primals)
    # The gradient of the key is a product with all queries, also with those that see nothing.
    sees = jnp.broadcast_to(saved.inverse != 0, saved.block.query.shape)
    block = saved.block._replace(query=jnp.where(sees, saved.block.query, 0))
    if block.unseen is not None:
        block = block._replace(key=jnp.where(block.unseen[..., None], 0, block.key))
    saved = saved._replace(block=block, output=checkpoint_name(saved.output, OUTPUT))
    dots = linear_map(
        functools.partial(_forward, static),
        functools.partial(_backward, static),
        saved,
        _Dots(*tangents[0][:4]),
    )
    return (saved.output, residual), dots


def _average(static: StaticOptions, block: Block) -> tuple[_Saved, jax.Array]:
    """The output, with what its derivative needs, and the log-sum-exp."""
    mask = None if block.masks is None else block.masks.by_query
    factors = softmax_factors(block_scores(static, mask, block.query, block.key, block.bias))
    output = weighted_values(static, factors.exponentials, block.value, block.keep)
    output = output * factors.inverse
    return _Saved(block, output, factors.maximum, factors.inverse), factors.residual[..., 0]


def _forward(static: StaticOptions, saved: _Saved, dots: _Dots) -> _Attended:
    """Tangents of the results for those of the inputs."""
    static = static._replace(operands=None)  # a gradient of this is not rounded
    query, key, value, bias, masks, keep, _ = saved.block
    mask = None if masks is None else masks.by_query
    scores, scores_dot = jax.jvp(
        functools.partial(block_scores, static, mask),
        (query, key, bias),
        (dots.query, dots.key, dots.bias),
    )
    weights = jnp.exp(scores - saved.maximum) * saved.inverse
    return attended_dots(static, weights, scores_dot, value, dots.value, keep, saved.output)


def _backward(static: StaticOptions, saved: _Saved, cotangents: _Attended) -> _Dots:
    """Cotangents of the inputs for those of the results: the transpose of `_forward`."""
    output_bar, residual_bar = cotangents
    block = saved.block
    group = block.query.shape[-3]
    # The softmax subtracts rowsum(P * dP), which is rowsum(O * dO).
    shift = (saved.output * output_bar).sum(axis=-1) - residual_bar
    # The weights' factor 1 / total is applied to what they multiply, which is smaller.
    shift *= saved.inverse[..., 0]
    query, output_rows = (
        rearrange(x, "... g t h -> ... (g t) h") for x in (block.query, output_bar * saved.inverse)
    )

    def products(left: jax.Array, right: jax.Array) -> jax.Array:
        """Products of `[..., s, h]` and `[..., (g t), h]`: `[..., s, g, t]`."""
        matrix = product(static, "...sh,...qh->...sq", left, right)
        return rearrange(matrix, "... s (g t) -> ... s g t", g=group)

    def of_queries(numbers: jax.Array) -> jax.Array:
        return rearrange(numbers, "... g t -> ... 1 g t")

    def transposed(array: jax.Array) -> jax.Array:
        return rearrange(array, "... g t s -> ... s g t")

    def score(dots: jax.Array, bias: jax.Array | None) -> jax.Array:
        bias = None if bias is None else transposed(bias)
        mask = None if block.masks is None else block.masks.by_key
        mask = None if mask is None else rearrange(mask, "... g s t -> ... s g t")
        return masked(biased(capped(static, dots * static.scale), bias), mask)

    scores, pull = jax.vjp(score, products(block.key, query), block.bias)
    exponentials = jnp.exp(scores - of_queries(saved.maximum[..., 0]))
    weights_bar = products(block.value, output_rows)
    weights = exponentials
    if block.keep is not None:
        share = jnp.where(transposed(block.keep), 1 / (1 - static.dropout_rate), 0)
        weights, weights_bar = exponentials * share, weights_bar * share
    products_bar, bias_bar = pull(exponentials * (weights_bar - of_queries(shift)))
    weights, products_bar = (
        rearrange(x, "... s g t -> ... s (g t)") for x in (weights, products_bar)
    )
    value_bar = product(static, "...sq,...qv->...sv", weights, output_rows)
    key_bar = product(static, "...sq,...qh->...sh", products_bar, query)
    # A small matrix is transposed, not the scores, which XLA would prefer.
    key_rows = in_memory(rearrange(block.key, "... s h -> ... h s"))
    query_bar = in_memory(product(static, "...hs,...sq->...hq", key_rows, products_bar))
    query_bar = rearrange(query_bar, "... h (g t) -> ... g t h", g=group)
    return _Dots(query_bar, key_bar, value_bar, bias_bar)
