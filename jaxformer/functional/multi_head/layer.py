"""The multi-head attention layer as a pure function of its parameters.

Axes: `B` batch, `T` query length, `S` key/value length, `N` query heads, `K` key/value heads,
`H` query and key width, `Hv` value width, `D` d_model.
"""

import functools
from typing import NamedTuple, Unpack

import jax
from einops import rearrange

from jaxformer.functional.attention import AttentionKeywords, Bias, dot_product_attention
from jaxformer.functional.checks import (
    as_array,
    check_array,
    check_axes,
    check_fields,
    check_keywords,
    check_nonnegative,
    static_bool,
)
from jaxformer.functional.linear import DEFAULT_PRODUCTS, Products, linear
from jaxformer.functional.masks.base import AnyMask, Mask
from jaxformer.functional.multi_head.attention_function import (
    AttentionCall,
    AttentionFunction,
    attention_of,
    beside_sinks,
    unwrap_partial,
    weights_in_heads,
)
from jaxformer.functional.multi_head.cache import KVCache
from jaxformer.functional.multi_head.cached import (
    check_sources,
    read_memory,
    with_cached_keys,
    with_empty_slots,
)
from jaxformer.functional.multi_head.projections import (
    MultiHeadParams,
    Rotation,
    head_counts,
    project_heads,
    rotate_heads,
)
from jaxformer.functional.multi_head.window_cache import WindowCache
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
    rotary: Rotation | None = None,
    cache: KVCache | WindowCache | None = None,
    num_tokens: jax.Array | None = None,
    cross_cache: KVCache | None = None,
    return_weights: bool = False,
    tap: LayerTaps | None = None,
    attention_fn: AttentionFunction = dot_product_attention,
    products: Products = DEFAULT_PRODUCTS,
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
        rotary: function that maps query `[..., T, N, H]` and key `[..., T, K, H]` to both, rotated,
            such as by `apply_rotary` (self-attention only).
        cache: keys and values of earlier tokens; the new ones are appended. With is_causal,
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
            return_residual=True. A function of your own gets position biases and rules as arrays.
        products: precision and function of the products with the kernels. The precision is that of
            attention, too.
        **options: all others of `dot_product_attention` but return_residual. A cache sets the
            offset and the lengths itself.

    Returns:
        The output, and the cache and weights if any.

    Raises:
        ShapeError: an argument does not fit, or attention_fn returns a wrong shape or dtype.
        ConfigError: an option is invalid; attention_fn does not accept the arguments of this call;
            or a tap asks for scores, or edits weights, of a function of your own.

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
    check_fields("params", params, MultiHeadParams)
    check_nonnegative("norm_eps", norm_eps)
    num_heads, kv_heads = head_counts(num_heads, num_kv_heads)
    return_weights = static_bool("return_weights", return_weights)
    inputs = query_inputs if key_value_inputs is None else key_value_inputs
    check_array("query_inputs", query_inputs, "floating", "... T D")
    check_array("key_value_inputs", inputs, "floating", "... S D")
    attention_fn, options = unwrap_partial(attention_fn, options)
    if products.precision is not None:
        options = {"precision": products.precision, **options}
    mask = mask if mask is None or isinstance(mask, Mask) else as_array("mask", mask)
    check_sources(key_value_inputs, cross_cache, cache, rotary, num_tokens, mask, options)
    if cross_cache is not None:
        check_axes("query_inputs", query_inputs, "B T D")
    if cache is not None:
        check_axes("query_inputs", query_inputs, "B T D", {"B": cache.lengths.shape[0]})

    # 1. Project the inputs to heads, and rotate them by their positions.
    # Queries are [..., T, N, H], keys [..., S, K, H], values [..., S, K, Hv].
    project = functools.partial(project_heads, params, norm_eps=norm_eps, products=products)
    query = project("query", query_inputs, num_heads)
    if cross_cache is not None:
        key, value, options = read_memory(cross_cache, query, kv_heads, options)
    else:
        key, value = project("key", inputs, kv_heads), project("value", inputs, kv_heads)
    if rotary is not None:
        query, key = rotate_heads(rotary, query, key)
    call = AttentionCall(query, key, value, bias, mask, options)

    # 2. Append to the cache, and take the keys of all of its tokens.
    longer_cache = None
    if cache is not None:
        # What looks at weights or positions gets the keys of a ring in order.
        in_order = return_weights or tap is not None or attention_fn is not dot_product_attention
        call, longer_cache = with_cached_keys(call, cache, num_tokens, in_order=in_order)

    # 3. Attend in each head.
    weights, attended = None, None
    if return_weights or (tap is not None and tap.asks("scores", "weights")):
        weights, attended = weights_in_heads(attention_fn, call, params.sinks, tap)
        if cache is not None and cache.is_empty:
            weights = with_empty_slots(cache, weights)  # [..., N, T, S]
    if attended is None:
        attend = attention_of(attention_fn, call)
        if params.sinks is None:
            attended = attend()
        else:
            attended = beside_sinks(params.sinks, *attend(return_residual=True))
    attended = attended if tap is None else tap("head_outputs", attended)  # [..., T, N, Hv]

    # 4. Merge the heads, and project them back.
    merged = rearrange(attended, "... t n h -> ... t (n h)")
    output = linear(
        merged, params.output_kernel, params.output_bias, name="output_kernel", products=products
    )
    output = output if tap is None else tap("attention_output", output)
    return MultiHeadOutput(output, longer_cache, weights)
