"""Scaled dot-product attention, and its weights for looking at.

Axes: `B` batch, `T` query length, `S` key/value length, `N` query heads, `K` key/value heads,
`H` query and key width, `Hv` value width.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.errors import ConfigError
from jaxformer.functional.attention_inputs import (
    AttentionInputs,
    Lengths,
    WindowSize,
    prepare_attention,
    zero_unseen,
)
from jaxformer.functional.shapes import Array

__all__ = ["Implementation", "attention_weights", "dot_product_attention"]

Implementation = Literal["auto", "dense", "xla"] | None
Stage = Literal["scores", "capped", "biased", "softmax"]


def dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_offset: Lengths | None = None,
    query_seq_lengths: Lengths | None = None,
    key_value_seq_lengths: Lengths | None = None,
    local_window_size: WindowSize | None = None,
    query_segment_ids: Array | None = None,
    key_value_segment_ids: Array | None = None,
    softcap: float | None = None,
    dropout_rate: float = 0.0,
    dropout_rng: jax.Array | None = None,
    implementation: Implementation = "auto",
) -> jax.Array:
    r"""Attends from every query to the keys that it may see, and averages their values.

    $$\mathrm{softmax}(\mathrm{cap}(\mathrm{scale} \cdot Q K^T) + \mathrm{bias}) V$$

    over the keys that mask, structure (causal, window, lengths, segments) and a bias above
    -inf all allow. The argument names and order are those of `jax.nn.dot_product_attention`.

    - A query that may see nothing gives exactly 0, with gradients of exactly 0.
    - NaN or Inf in keys and values that no query may see changes no bit of any result.
    - Scores and softmax are float32 and stay so into the product with the values (float64 for
      float64 inputs). On GPU and TPU, float32 products follow `jax.default_matmul_precision`.

    Args:
        query: float `[..., T, N, H]`, with any leading axes, none included.
        key: float `[..., S, K, H]`, the same leading axes; query head n reads key head
            n // (N / K).
        value: float `[..., S, K, Hv]`.
        bias: float, added to the capped scores; broadcasts to `[..., N, T, S]` with that rank, or
            is `[T, S]`. -inf hides a key.
        mask: bool, True = attend; shaped like the bias.
        scale: factor of the scores; 1 / sqrt(H) when not given.
        is_causal: whether query i, at position `query_offset + i`, sees only keys at or before it.
        query_offset: int, or integer array that broadcasts to the leading axes. Needed by
            is_causal and local_window_size when T differs from S: 0 aligns the first query with
            the first key, S - T the last with the last.
        query_seq_lengths: integers that broadcast to the leading axes; query rows at or beyond
            are 0.
        key_value_seq_lengths: likewise; keys at or beyond are hidden.
        local_window_size: (left, right) around the query's position, None = unbounded; an int
            means both.
        query_segment_ids: integer `[..., T]`; a query sees the keys of its own segment.
        key_value_segment_ids: integer `[..., S]`.
        softcap: c in c * tanh(scores / c).
        dropout_rate: share of the weights set to 0, the others scaled up; in [0, 1).
        dropout_rng: PRNG key; needed when the rate is above 0.
        implementation: "dense" holds all `[..., N, T, S]` weights; None and "xla" mean the same,
            and "auto" takes it.

    Returns:
        float `[..., T, N, Hv]`, in the query's dtype.

    Raises:
        ShapeError: an argument does not fit; the message names it, its axes and the remedy.
        ConfigError: an option is impossible.

    References:
        Vaswani et al., "Attention Is All You Need", 2017; Ainslie et al., "GQA", 2023 (grouped
        heads); Gemma Team, "Gemma 2", 2024 (soft cap).

    Example:
        >>> query, key = jnp.ones((2, 5, 4, 8)), jnp.ones((2, 5, 2, 8))
        >>> value = jnp.ones((2, 5, 2, 3))
        >>> dot_product_attention(query, key, value, is_causal=True).shape
        (2, 5, 4, 3)
    """
    if implementation not in ("auto", "dense", "xla", None):
        raise ConfigError(
            f"implementation must be 'auto' or 'dense' (None and 'xla' mean dense), got "
            f"{implementation!r}"
        )
    _check_dropout(dropout_rate, dropout_rng)
    inputs = prepare_attention(
        query, key, value, bias, mask, scale=scale, is_causal=is_causal, query_offset=query_offset,
        query_seq_lengths=query_seq_lengths, key_value_seq_lengths=key_value_seq_lengths,
        local_window_size=local_window_size, query_segment_ids=query_segment_ids,
        key_value_segment_ids=key_value_segment_ids, softcap=softcap,
    )  # fmt: skip
    inputs = zero_unseen(inputs)
    weights = _softmax(_masked(_biased(inputs, _capped(inputs, _scores(inputs))), inputs.allowed))
    if dropout_rng is not None and dropout_rate > 0:
        keep = jax.random.bernoulli(dropout_rng, 1 - dropout_rate, weights.shape)
        weights = jnp.where(keep, weights / (1 - dropout_rate), 0)
    return _weighted_values(inputs, weights)


def attention_weights(
    query: Array,
    key: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_offset: Lengths | None = None,
    query_seq_lengths: Lengths | None = None,
    key_value_seq_lengths: Lengths | None = None,
    local_window_size: WindowSize | None = None,
    query_segment_ids: Array | None = None,
    key_value_segment_ids: Array | None = None,
    softcap: float | None = None,
    stage: Stage = "softmax",
) -> jax.Array:
    """Computes the weights of `dot_product_attention`, for looking at.

    Args:
        query: float `[..., T, N, H]`.
        key: float `[..., S, K, H]`.
        bias: as in `dot_product_attention`, like every argument up to softcap.
        mask: True = attend.
        scale: factor of the scores; 1 / sqrt(H) when not given.
        is_causal: whether a query sees only keys at or before it.
        query_offset: position of the first query.
        query_seq_lengths: query rows at or beyond have weights 0.
        key_value_seq_lengths: keys at or beyond are hidden.
        local_window_size: (left, right) around the query's position.
        query_segment_ids: integer `[..., T]`.
        key_value_segment_ids: integer `[..., S]`.
        softcap: c in c * tanh(scores / c).
        stage: what to return: scaled "scores", "capped" ones, "biased" ones (nothing is masked
            yet in these three), or the weights after mask and "softmax", before dropout.

    Returns:
        float32 (float64 for float64) `[..., N, T, S]`; after "softmax" each row sums to 1, or is
        0 where the query may see nothing.

    Raises:
        ShapeError: an argument does not fit.
        ConfigError: an option is impossible.

    Example:
        >>> attention_weights(jnp.ones((2, 1, 4)), jnp.ones((2, 1, 4)), is_causal=True)[0].tolist()
        [[1.0, 0.0], [0.5, 0.5]]
    """
    if stage not in ("scores", "capped", "biased", "softmax"):
        raise ConfigError(f"stage must be scores, capped, biased or softmax, got {stage!r}")
    inputs = prepare_attention(
        query, key, None, bias, mask, scale=scale, is_causal=is_causal, query_offset=query_offset,
        query_seq_lengths=query_seq_lengths, key_value_seq_lengths=key_value_seq_lengths,
        local_window_size=local_window_size, query_segment_ids=query_segment_ids,
        key_value_segment_ids=key_value_segment_ids, softcap=softcap,
    )  # fmt: skip
    result = _scores(zero_unseen(inputs) if stage == "softmax" else inputs)
    if stage != "scores":
        result = _capped(inputs, result)
    if stage in ("biased", "softmax"):
        result = _biased(inputs, result)
    return _softmax(_masked(result, inputs.allowed)) if stage == "softmax" else result


def _check_dropout(rate: float, rng: jax.Array | None) -> None:
    if not 0 <= rate < 1:
        raise ConfigError(f"dropout_rate must be in [0, 1), got {rate}")
    if rate > 0 and rng is None:
        raise ConfigError(f"dropout_rate={rate} needs a dropout_rng; pass one, or a rate of 0")


def _scores(inputs: AttentionInputs) -> jax.Array:
    """Scaled products of queries and keys, float32: `[..., N, T, S]`."""
    # Heads before positions: XLA's batched products are faster that way.
    query = rearrange(inputs.query, "... t (k g) h -> ... k g t h", k=inputs.key.shape[-2])
    key = rearrange(inputs.key, "... s k h -> ... k s h")
    scores = jnp.einsum(
        "...kgth,...ksh->...kgts", query, key, preferred_element_type=inputs.wide_dtype
    )
    return rearrange(scores * inputs.scale, "... k g t s -> ... (k g) t s")


def _capped(inputs: AttentionInputs, scores: jax.Array) -> jax.Array:
    if inputs.softcap is None:
        return scores
    return inputs.softcap * jnp.tanh(scores / inputs.softcap)


def _biased(inputs: AttentionInputs, scores: jax.Array) -> jax.Array:
    if inputs.bias is None:
        return scores
    return scores + jnp.broadcast_to(inputs.bias.astype(scores.dtype), scores.shape)


def _masked(scores: jax.Array, allowed: jax.Array | None) -> jax.Array:
    return scores if allowed is None else jnp.where(allowed, scores, -jnp.inf)


@jax.custom_jvp
def _softmax(scores: jax.Array) -> jax.Array:
    """Softmax over the last axis in which -inf weighs 0, also where a whole row is -inf."""
    peak = scores.max(axis=-1, keepdims=True, initial=-jnp.inf)
    weights = jnp.exp(scores - jnp.where(peak == -jnp.inf, 0, peak))
    total = weights.sum(axis=-1, keepdims=True)
    return weights / jnp.where(total == 0, 1, total)


@_softmax.defjvp
def _softmax_jvp(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    # The derivative needs the weights only, so the scores need not be kept for it.
    weights = _softmax(*primals)
    moved = weights * tangents[0]
    return weights, moved - weights * moved.sum(axis=-1, keepdims=True)


def _weighted_values(inputs: AttentionInputs, weights: jax.Array) -> jax.Array:
    """Sums values by float32 weights: `[..., N, T, S]` -> `[..., T, N, Hv]`."""
    assert inputs.value is not None
    value = rearrange(inputs.value, "... s k h -> ... k s h").astype(weights.dtype)
    weights = rearrange(weights, "... (k g) t s -> ... k g t s", k=value.shape[-3])
    output = jnp.einsum("...kgts,...ksh->...kgth", weights, value)
    return rearrange(output, "... k g t h -> ... t (k g) h").astype(inputs.query.dtype)
