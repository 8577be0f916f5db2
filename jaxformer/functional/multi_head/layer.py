"""The multi-head attention layer as a pure function of its parameters.

Axes: `B` batch, `T` query length, `S` key/value length, `N` query heads, `K` key/value heads,
`H` query and key width, `Hv` value width, `D` d_model.
"""

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
from jaxformer.functional.masks.base import AnyMask, Mask
from jaxformer.functional.multi_head.attention_function import (
    AttentionCall,
    AttentionFunction,
    call_attention,
    function_name,
)
from jaxformer.functional.multi_head.cache import KVCache
from jaxformer.functional.multi_head.cached import (
    check_cached,
    read_memory,
    with_cached_keys,
    with_empty_slots,
)
from jaxformer.functional.multi_head.projections import (
    MultiHeadParams,
    Rotation,
    check_layer,
    head_counts,
    keys_and_values,
    project_heads,
    rotate_heads,
)
from jaxformer.functional.multi_head.window_cache import WindowCache
from jaxformer.functional.positions.sinusoids import ROTARY_LAYOUTS
from jaxformer.functional.taps import LayerTaps


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
    num_heads, kv_heads = head_counts(num_heads, num_kv_heads)
    return_weights = static_bool("return_weights", return_weights)
    check_choice("rotary_layout", rotary_layout, ROTARY_LAYOUTS)
    check_layer(params, "query_inputs", query_inputs, norm_eps)
    crosses = _check_sources(key_value_inputs, cross_cache, cache, rotary, num_tokens)
    mask = mask if mask is None or isinstance(mask, Mask) else as_array("mask", mask)

    # 1. Project the inputs to heads, and rotate them by their positions.
    query = project_heads(params, "query", query_inputs, num_heads, norm_eps)  # [..., T, N, H]
    if cross_cache is not None:
        check_axes("query_inputs", query_inputs, "B T D")
        key, value, options = read_memory(cross_cache, query, kv_heads, options)
    else:
        inputs = query_inputs if key_value_inputs is None else key_value_inputs
        key, value = keys_and_values(params, inputs, kv_heads, norm_eps)  # [..., S, K, H]
    if rotary is not None:
        query, key = rotate_heads(rotary, rotary_layout, query, key)
    call = AttentionCall(query, key, value, bias, mask, options)

    # 2. Append to the cache, and take the keys of all of its tokens.
    earlier = cache
    if cache is not None:
        check_axes("query_inputs", query_inputs, "B T D", {"B": cache.lengths.shape[0]})
        check_cached(options, cache, crosses, mask)
        # What looks at weights or positions gets the keys of a ring in order.
        in_order = return_weights or tap is not None or attention_fn is not dot_product_attention
        call, cache = with_cached_keys(call, cache, num_tokens, in_order=in_order)

    # 3. Attend in each head.
    attended, weights = _attend(attention_fn, call, params.sinks, tap, return_weights)
    if weights is not None and earlier is not None and earlier.is_empty:
        weights = with_empty_slots(earlier, weights)  # [..., N, T, S]

    # 4. Merge the heads, and project them back.
    merged = rearrange(attended, "... t n h -> ... t (n h)")
    output = linear(merged, params.output_kernel, params.output_bias, name="output_kernel")
    output = output if tap is None else tap("attention_output", output)
    return MultiHeadOutput(output, cache, weights)


def _check_sources(
    key_value_inputs: jax.Array | None, cross_cache: Any, cache: Any, rotary: Any, num_tokens: Any
) -> str:
    """Checks where keys and values come from; name of the argument of cross-attention, or ""."""
    if key_value_inputs is not None and cross_cache is not None:
        raise ShapeError("cross_cache replaces key_value_inputs, got both; leave one out")
    crosses = "key_value_inputs" if key_value_inputs is not None else ""
    crosses = "cross_cache" if cross_cache is not None else crosses
    if rotary is not None and crosses:
        raise ShapeError(f"rotary tables are for self-attention, got {crosses} as well")
    if cache is None and num_tokens is not None:
        raise ShapeError(
            "num_tokens goes with a cache, got none; pass query_seq_lengths and "
            "key_value_seq_lengths"
        )
    if not isinstance(cache, KVCache | WindowCache | None):
        raise ShapeError(f"cache must be a KVCache, got {type(cache).__name__}")
    if not isinstance(cross_cache, KVCache | None):
        raise ShapeError(f"cross_cache must be a KVCache, got {type(cross_cache).__name__}")
    return crosses


def _attend(
    attention_fn: AttentionFunction, call: AttentionCall, sinks: jax.Array | None,
    tap: LayerTaps | None, return_weights: bool,
) -> tuple[jax.Array, jax.Array | None]:  # fmt: skip
    """Head outputs `[..., T, N, Hv]`, and weights `[..., N, T, S]` if anything reads them."""
    is_custom = attention_fn is not dot_product_attention
    if is_custom and tap is not None and (tap.asks("scores") or tap.edits("weights")):
        raise ConfigError(
            "scores of a custom attention_fn are not known, and its weights cannot be edited, "
            f"got {function_name(attention_fn)}; do not request it, or use dot_product_attention"
        )
    weights, inputs = None, None
    if return_weights or (tap is not None and tap.asks("scores", "weights")):
        if is_custom:
            weights = _weights_of_function(attention_fn, call, sinks)
        else:
            without = ("dropout_rng", "implementation")
            scoring: Any = {n: v for n, v in call.options.items() if n not in without}
            inputs = prepare_attention(*call[:-1], **scoring)
            weights = _softmax_weights(inputs, sinks, tap)
        weights = weights if tap is None else tap("weights", weights)
    if inputs is not None and tap is not None and tap.edits("scores", "weights"):
        rng = used_rng(inputs.static.dropout_rate, call.options.get("dropout_rng"))
        attended, _ = dense_attention(inputs, rng, weights)
    else:  # Reading weights does not change which implementation computes the output.
        attended = _attend_beside_sinks(attention_fn, call, sinks)
    return attended if tap is None else tap("head_outputs", attended), weights


def _attend_beside_sinks(
    attention_fn: AttentionFunction, call: AttentionCall, sinks: jax.Array | None
) -> jax.Array:
    """Head outputs `[..., T, N, Hv]` of a softmax that the sinks, if any, take part in."""
    attended, residual = call_attention(attention_fn, call, with_residual=sinks is not None)
    if sinks is None or residual is None:
        return attended
    return attended * _shares_beside_sinks(sinks, residual)[..., None].astype(attended.dtype)


def _softmax_weights(
    inputs: AttentionInputs, sinks: jax.Array | None, tap: LayerTaps | None
) -> jax.Array:
    """Weights `[..., N, T, S]` before dropout; the tap reads and edits the scores."""
    exponentials, inverse, _, total = softmax_factors(dense_weights(inputs, "masked", tap))
    weights = exponentials * inverse
    if sinks is None:
        return weights
    shares = _shares_beside_sinks(sinks, rearrange(total, "... n t 1 -> ... t n"))
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
    attended = _attend_beside_sinks(attention_fn, call, sinks)  # [..., T, N, S]
    return rearrange(attended, "... t n s -> ... n t s")


def _shares_beside_sinks(sinks: jax.Array, residual: jax.Array) -> jax.Array:
    """Share of the softmax that goes to the keys, not the sink: float `[..., T, N]`."""
    check_axes("sinks", sinks, "N", {"N": residual.shape[-1]})
    check_dtype("sinks", sinks, "floating")
    # exp(residual) / (exp(residual) + exp(sink)), with the log-sum-exp of the scores as residual.
    return jax.nn.sigmoid(residual - jnp.broadcast_to(sinks.astype(residual.dtype), residual.shape))
