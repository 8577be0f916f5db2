"""The multi-head attention layer as a pure function of its parameters.

Axes: `B` batch, `T` query length, `S` key/value length, `N` query heads, `K` key/value heads,
`H` query and key width, `Hv` value width, `D` d_model.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention import AttentionKeywords, Bias, dot_product_attention
from jaxformer.functional.attention.block import softmax_factors
from jaxformer.functional.attention.dense import dense_attention, dense_weights
from jaxformer.functional.attention.inputs import (
    AttentionInputs,
    prepare_attention,
    split_bias,
    used_rng,
)
from jaxformer.functional.checks import (
    as_array,
    check_axes,
    check_choice,
    check_dtype,
    check_keywords,
    static_bool,
)
from jaxformer.functional.dtypes import at_least
from jaxformer.functional.linear import linear
from jaxformer.functional.masks.base import AnyMask, Mask, all_rules
from jaxformer.functional.multi_head.attention_function import (
    AttentionFunction,
    call_attention,
    function_name,
)
from jaxformer.functional.multi_head.cache import KVCache, read_layer
from jaxformer.functional.multi_head.cached import (
    check_cached,
    in_slot_order,
    of_new_tokens,
    with_cached_keys,
    with_cached_positions,
    with_cross_cache,
    with_empty_slots,
)
from jaxformer.functional.multi_head.projections import (
    MultiHeadParams,
    check_layer,
    head_counts,
    keys_and_values,
    project_heads,
)
from jaxformer.functional.multi_head.window_cache import WindowCache
from jaxformer.functional.positions.sinusoids import ROTARY_LAYOUTS, apply_rotary
from jaxformer.functional.taps import LayerTaps

Rotation = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
"""A function from query `[..., T, N, H]` and key `[..., T, K, H]` to both, rotated."""


class MultiHeadOutput(NamedTuple):
    """Result of `multi_head_attention`.

    Args:
        output: float `[..., T, D]`.
        cache: the cache with the new tokens, if one was given.
        weights: float32 (float64 for float64) `[..., N, T, S]`, before dropout, if requested.
    """

    output: jax.Array
    cache: KVCache | WindowCache | None
    weights: jax.Array | None = None


def multi_head_attention(
    params: MultiHeadParams,
    query_inputs: jax.Array,
    key_value_inputs: jax.Array | None = None,
    bias: Bias | None = None,
    mask: AnyMask | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    norm_eps: float = 1e-6,
    rotary: tuple[jax.Array, jax.Array] | Rotation | None = None,
    rotary_layout: str = "half",
    cache: KVCache | WindowCache | None = None,
    num_tokens: jax.Array | None = None,
    cross_cache: KVCache | None = None,
    return_weights: bool = False,
    tap: LayerTaps | None = None,
    attention_fn: AttentionFunction = dot_product_attention,
    **options: Unpack[AttentionKeywords],
) -> MultiHeadOutput:
    """Projects to heads, attends in each, and projects the merged heads back.

    Queries and keys are normalized if params has scales, then rotated if rotary is given.

    Args:
        params: the four projections, and optional norm scales and sinks.
        query_inputs: float `[..., T, D]`.
        key_value_inputs: float `[..., S, D]`; query_inputs when not given (self-attention).
        bias: added to the scores, as in `dot_product_attention`. With a `KVCache`, S of an array is
            its capacity; with a `WindowCache`, S is W + T, its slots plus the new tokens.
        mask: bool, True = attend, likewise; or a rule, whose positions count all cached tokens.
        num_heads: N.
        num_kv_heads: K; N when not given.
        norm_eps: epsilon of the query and key norms, added to the mean square.
        rotary: (cos, sin) tables `[T, H/2]` or `[..., T, H/2]` for both queries and keys, or a
            function that maps query `[..., T, N, H]` and key `[..., T, K, H]` to both, rotated
            (self-attention only).
        rotary_layout: layout of the tables: "half" or "interleaved", as in `apply_rotary`.
        cache: earlier keys and values of this layer; the new ones are appended. With is_causal,
            each query attends to the cached tokens up to its own position. Without it, queries
            attend to all of them and a mask is required (self-attention on `[B, T, D]`). A
            `WindowCache` needs a local_window_size whose left side equals its window.
        num_tokens: int `[B]`, only with a cache: how many of the T inputs of each row are real,
            from the start; all when not given. For the others, attention gives 0.
        cross_cache: keys and values of another sequence from `project_memory`, instead of
            key_value_inputs (cross-attention).
        return_weights: whether to also compute the attention weights, which need T x S memory.
            Those of a function of your own are its output for the identity matrix as values
            (which needs S x S), so it must be linear in them.
        tap: reads and edits "scores", "weights", "head_outputs" and "attention_output", as `Taps`
            describes them.
        attention_fn: attention function with the signature of `dot_product_attention`. It is called
            with query, key and value, plus any non-default arguments by name; with sinks, also with
            return_residual=True. A function of your own gets position biases as an array.
        **options: scale, is_causal, query_offset, query_seq_lengths, key_value_seq_lengths,
            local_window_size, query_segment_ids, key_value_segment_ids, softcap, dropout_rate,
            dropout_rng and implementation, as in `dot_product_attention`. A cache sets the
            offset and the lengths itself.

    Returns:
        The output, and the cache and weights if any.

    Raises:
        ShapeError: an argument does not fit, or attention_fn returns a wrong shape or dtype.
        ConfigError: an option is invalid; attention_fn does not accept the arguments of this call;
            or scores are requested, or scores or weights edited, with an attention_fn other than
            `dot_product_attention`.

    References:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.2.2; Henry et al.,
        "Query-Key Normalization for Transformers", 2020 (with RMS norm: Qwen Team, "Qwen3", 2025;
        over all heads: OLMo Team, "2 OLMo 2 Furious", 2024); Xiao et al., "Efficient Streaming
        Language Models with Attention Sinks", 2023; OpenAI, "gpt-oss", 2025 (learned sinks).

    Example:
        >>> import jax.numpy as jnp
        >>> params = MultiHeadParams(*[jnp.eye(8)] * 4)
        >>> multi_head_attention(params, jnp.ones((2, 3, 8)), num_heads=2).output.shape
        (2, 3, 8)
    """
    check_keywords("multi_head_attention", options, AttentionKeywords)
    if key_value_inputs is not None and cross_cache is not None:
        raise ShapeError("cross_cache replaces key_value_inputs, got both; leave one out")
    memory = {"key_value_inputs": key_value_inputs, "cross_cache": cross_cache}
    crosses = next((name for name, argument in memory.items() if argument is not None), "")
    if rotary is not None and crosses:
        raise ShapeError(f"rotary tables are for self-attention, got {crosses} as well")
    if cache is None and num_tokens is not None:
        raise ShapeError(
            "num_tokens goes with a cache, got none; pass query_seq_lengths and "
            "key_value_seq_lengths"
        )
    num_heads, kv_heads = head_counts(num_heads, num_kv_heads)
    return_weights = static_bool("return_weights", return_weights)
    check_choice("rotary_layout", rotary_layout, ROTARY_LAYOUTS)
    if not isinstance(cache, KVCache | WindowCache | None):
        raise ShapeError(f"cache must be a KVCache, got {type(cache).__name__}")
    if not isinstance(cross_cache, KVCache | None):
        raise ShapeError(f"cross_cache must be a KVCache, got {type(cross_cache).__name__}")
    check_layer(params, "query_inputs", query_inputs, norm_eps)
    mask = mask if mask is None or isinstance(mask, Mask) else as_array("mask", mask)
    query = project_heads(params, "query", query_inputs, num_heads, norm_eps)
    if cross_cache is not None:
        sizes = check_axes("query_inputs", query_inputs, "B T D")
        sizes |= {"K": kv_heads, "H": query.shape[-1]}
        held = read_layer(cross_cache.key, cross_cache.layer)
        check_axes("cross_cache.key", held, "B K S H", sizes)
        key, value = (array.astype(query.dtype) for array in cross_cache.by_position)
        options = with_cross_cache(options, cross_cache)
    else:
        key_value_inputs = query_inputs if key_value_inputs is None else key_value_inputs
        key, value = keys_and_values(params, key_value_inputs, kv_heads, norm_eps)
    if rotary is not None:
        query, key = _rotate(rotary, rotary_layout, query, key)
    empty: KVCache | WindowCache | None = None
    if cache is not None:
        check_axes("query_inputs", query_inputs, "B T D", {"B": cache.lengths.shape[0]})
        check_cached(options, cache, crosses, mask)
        lengths, empty = cache.lengths, cache if cache.is_empty else None
        if empty is not None:
            bias, mask = of_new_tokens(empty, bias, mask, key.shape[1])
        # A ring is out of order: what looks at weights or positions gets a copy in order.
        in_order = attention_fn is not dot_product_attention or isinstance(mask, Mask)
        in_order = in_order or return_weights or tap is not None
        keys, cache = cache.extend(key, value, num_tokens, in_order=in_order)
        options, bias, mask = in_slot_order(options, keys, bias, mask)
        has_position_bias = split_bias(bias)[1] is not None
        options = with_cached_keys(options, keys, num_tokens, has_position_bias=has_position_bias)
        mask = all_rules(with_cached_positions(mask, keys, lengths, cache), keys.mask)
        key, value = keys.key.astype(query.dtype), keys.value.astype(query.dtype)
    weights: jax.Array | None = None
    if attention_fn is not dot_product_attention:
        if tap is not None and (tap.asks("scores") or tap.edits("weights")):
            raise ConfigError(
                "scores of a custom attention_fn are not known, and its weights cannot be edited, "
                f"got {function_name(attention_fn)}; do not request it, or use "
                "dot_product_attention"
            )
        if return_weights or (tap is not None and tap.asks("weights")):
            weights = _weights_of(
                attention_fn, query, key, kv_heads, bias, mask, options, params.sinks
            )
            weights = weights if tap is None else tap("weights", weights)
    elif return_weights or (tap is not None and tap.asks("scores", "weights")):
        rate = options.get("dropout_rate", 0.0)
        scoring: Any = {
            n: v for n, v in options.items() if n not in ("dropout_rng", "implementation")
        }
        inputs = prepare_attention(query, key, value, bias, mask, **scoring)
        weights = _weights(inputs, params.sinks, tap)
    if weights is not None and tap is not None and tap.edits("scores", "weights"):
        attended, _ = dense_attention(inputs, used_rng(rate, options.get("dropout_rng")), weights)
    else:  # Reading weights does not change which implementation computes the output.
        attended, residual = call_attention(
            attention_fn, query, key, value, bias, mask, options,
            with_residual=params.sinks is not None,
        )  # fmt: skip
        if params.sinks is not None and residual is not None:
            shares = _shares_beside_sinks(params.sinks, residual)
            attended = attended * shares[..., None].astype(attended.dtype)
    attended = attended if tap is None else tap("head_outputs", attended)
    merged = rearrange(attended, "... t n h -> ... t (n h)")
    output = linear(merged, params.output_kernel, params.output_bias, name="output_kernel")
    output = output if tap is None else tap("attention_output", output)
    if weights is not None and empty is not None:
        weights = with_empty_slots(empty, weights)
    return MultiHeadOutput(output, cache, weights)


def _weights(inputs: AttentionInputs, sinks: jax.Array | None, tap: LayerTaps | None) -> jax.Array:
    """Weights `[..., N, T, S]` before dropout; the tap is called at "scores" and "weights"."""
    exponentials, inverse, _, total = softmax_factors(dense_weights(inputs, "masked", tap))
    weights = exponentials * inverse
    if sinks is not None:
        shares = _shares_beside_sinks(sinks, rearrange(total, "... n t 1 -> ... t n"))
        weights = weights * rearrange(shares, "... t n -> ... n t 1")
    return weights if tap is None else tap("weights", weights)


def _weights_of(
    attention_fn: AttentionFunction, query: jax.Array, key: jax.Array, num_kv_heads: int,
    bias: Bias | None, mask: AnyMask | None, options: AttentionKeywords, sinks: jax.Array | None,
) -> jax.Array:  # fmt: skip
    """Weights `[..., N, T, S]` of a user's function, before dropout."""
    # Its output for the identity matrix as values, one row per key: exact if it is linear in them.
    num_keys, wide = key.shape[-3], at_least(query.dtype, jnp.float32)
    identity = rearrange(jnp.eye(num_keys, dtype=wide), "s v -> s 1 v")
    values = jnp.broadcast_to(identity, (*key.shape[:-3], num_keys, num_kv_heads, num_keys))
    options = {**options, "dropout_rate": 0.0, "dropout_rng": None}
    attended, residual = call_attention(
        attention_fn, query.astype(wide), key.astype(wide), values, bias, mask, options,
        with_residual=sinks is not None,
    )  # fmt: skip
    if sinks is not None and residual is not None:
        attended = attended * _shares_beside_sinks(sinks, residual)[..., None]
    return rearrange(attended, "... t n s -> ... n t s")


def _shares_beside_sinks(sinks: jax.Array, residual: jax.Array) -> jax.Array:
    """Share of the softmax that goes to the keys, not the sink: float `[..., T, N]`."""
    check_axes("sinks", sinks, "N", {"N": residual.shape[-1]})
    check_dtype("sinks", sinks, "floating")
    # exp(residual) / (exp(residual) + exp(sink)), with the log-sum-exp of the scores as residual.
    return jax.nn.sigmoid(residual - jnp.broadcast_to(sinks.astype(residual.dtype), residual.shape))


def _rotate(
    rotary: tuple[jax.Array, jax.Array] | Rotation, layout: str, query: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Rotates with tables or a user's function, whose result is checked."""
    if not callable(rotary):
        try:
            query, key = (apply_rotary(x, rotary, layout=layout) for x in (query, key))
            return query, key
        except ShapeError as error:
            raise ShapeError(f"rotary must be tables or a function: {error}") from None
    rotated = rotary(query, key)
    if not isinstance(rotated, tuple) or len(rotated) != 2:
        raise ShapeError(
            f"a rotary function must return (query, key), got {type(rotated).__name__}"
        )
    for name, before, after in zip(("query", "key"), (query, key), rotated, strict=True):
        if (after.shape, after.dtype) != (before.shape, before.dtype):
            raise ShapeError(
                f"a rotation must keep the {name}'s shape {before.shape} and dtype "
                f"{before.dtype}, got {after.shape} and {after.dtype}"
            )
    return rotated
