"""The multi-head attention layer as a pure function of its parameters.

Axes: `B` batch, `T` query length, `S` key/value length, `N` query heads, `K` key/value heads,
`H` query and key width, `Hv` value width, `D` d_model.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.errors import ShapeError
from jaxformer.functional.attention import (
    Implementation,
    attention_weights,
    dot_product_attention,
)
from jaxformer.functional.attention.inputs import Lengths, WindowSize
from jaxformer.functional.cache import KVCache
from jaxformer.functional.linear import linear
from jaxformer.functional.normalization import rms_norm
from jaxformer.functional.positions import apply_rotary
from jaxformer.functional.shapes import Array, check_axes, check_dtype

__all__ = ["MultiHeadOutput", "MultiHeadParams", "multi_head_attention", "project_memory"]


class MultiHeadParams(NamedTuple):
    """Parameters of `multi_head_attention`; the heads lie side by side, `(n h)`.

    Args:
        query_kernel: float `[D, N*H]`.
        key_kernel: float `[D, K*H]`; D may be another width for cross-attention.
        value_kernel: float `[D, K*Hv]`.
        output_kernel: float `[N*Hv, D]`.
        query_bias: float `[N*H]` or None.
        key_bias: float `[K*H]` or None.
        value_bias: float `[K*Hv]` or None.
        output_bias: float `[D]` or None.
        query_norm_scale: float `[H]`, of an RMS norm over each query head; None = no norm.
        key_norm_scale: float `[H]`, likewise over each key head.
    """

    query_kernel: jax.Array
    key_kernel: jax.Array
    value_kernel: jax.Array
    output_kernel: jax.Array
    query_bias: jax.Array | None = None
    key_bias: jax.Array | None = None
    value_bias: jax.Array | None = None
    output_bias: jax.Array | None = None
    query_norm_scale: jax.Array | None = None
    key_norm_scale: jax.Array | None = None


class MultiHeadOutput(NamedTuple):
    """Result of `multi_head_attention`.

    Args:
        output: float `[..., T, D]`.
        cache: the longer cache, when one was given.
        weights: float32 `[..., N, T, S]`, before dropout, when they were asked for.
    """

    output: jax.Array
    cache: KVCache | None
    weights: jax.Array | None = None


def multi_head_attention(
    params: MultiHeadParams,
    query_inputs: jax.Array,
    key_value_inputs: jax.Array | None = None,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    norm_eps: float = 1e-6,
    rotary: tuple[jax.Array, jax.Array] | None = None,
    rotary_layout: str = "half",
    cache: KVCache | None = None,
    num_tokens: jax.Array | None = None,
    memory: KVCache | None = None,
    return_weights: bool = False,
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
) -> MultiHeadOutput:
    """Projects to heads, attends in each, and projects the merged heads back.

    Queries and keys are normalized where there are scales for it, then rotated where there are
    tables. Every argument from scale on is that of `dot_product_attention`.

    Args:
        params: the four projections, and the scales of the norms.
        query_inputs: float `[..., T, D]`.
        key_value_inputs: float `[..., S, D]`; query_inputs when not given (self-attention).
        bias: added to the scores, as in `dot_product_attention`; with a cache, S is its capacity.
        mask: bool, True = attend, likewise.
        num_heads: N.
        num_kv_heads: K; N when not given.
        norm_eps: added to the mean square of a head by its norm.
        rotary: (cos, sin) tables `[T, H/2]` or `[..., T, H/2]` for queries and keys alike
            (self-attention only).
        rotary_layout: "half" or "interleaved", as in `apply_rotary`.
        cache: earlier keys and values of this layer. The new ones are appended, and queries see
            the cached tokens up to their own (causal self-attention on `[B, T, D]`).
        num_tokens: int `[B]`, with a cache: how many of the T inputs are real in each row, the
            first ones; all when not given. Outputs of the others are those of a zero row.
        memory: keys and values of another sequence that `project_memory` made, in place of
            key_value_inputs (cross-attention).
        return_weights: whether to compute the attention weights as well; they need T x S memory.
        scale: factor of the scores; 1 / sqrt(H) when not given.
        is_causal: whether a query sees only keys at or before it.
        query_offset: position of the first query; with a cache, it is the cache's.
        query_seq_lengths: output rows at or beyond are those of a zero row; with a cache, they
            are num_tokens.
        key_value_seq_lengths: keys at or beyond are hidden; with a cache, they are its own.
        local_window_size: (left, right) around the query's position.
        query_segment_ids: integer `[..., T]`.
        key_value_segment_ids: integer `[..., S]`.
        softcap: c in c * tanh(scores / c).
        dropout_rate: of the attention weights.
        dropout_rng: PRNG key; needed when the rate is above 0.
        implementation: which computation.

    Returns:
        The output, and the cache and weights where there are any.

    Raises:
        ShapeError: an argument does not fit.

    References:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.2.2; Henry et al.,
        "Query-Key Normalization for Transformers", 2020 (with RMS norm: Qwen Team, "Qwen3", 2025).

    Example:
        >>> import jax.numpy as jnp
        >>> params = MultiHeadParams(*[jnp.eye(8)] * 4)
        >>> multi_head_attention(params, jnp.ones((2, 3, 8)), num_heads=2).output.shape
        (2, 3, 8)
    """
    own = {
        "query_offset": query_offset,
        "query_seq_lengths": query_seq_lengths,
        "key_value_seq_lengths": key_value_seq_lengths,
    }
    _check_sources(key_value_inputs, memory, rotary, cache, num_tokens, is_causal, own)
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    check_axes("query_inputs", query_inputs, "... T D")
    query = _heads(params, "query", query_inputs, num_heads, norm_eps)
    if memory is not None:
        sizes = check_axes("query_inputs", query_inputs, "B T D")
        sizes |= {"K": kv_heads, "H": query.shape[-1]}
        check_axes("memory.key", memory.key, "B S K H", sizes)
        key, value = memory.key.astype(query.dtype), memory.value.astype(query.dtype)
        key_value_seq_lengths = memory.lengths
    else:
        key_value_inputs = query_inputs if key_value_inputs is None else key_value_inputs
        key, value = _keys_and_values(params, key_value_inputs, kv_heads, norm_eps)
    if rotary is not None:
        query = apply_rotary(query, rotary, layout=rotary_layout)
        key = apply_rotary(key, rotary, layout=rotary_layout)
    if cache is not None:
        check_axes("query_inputs", query_inputs, "B T D", {"B": cache.lengths.shape[0]})
        cache = cache.append(key, value, num_tokens)
        new = query.shape[1] if num_tokens is None else num_tokens
        query_offset, query_seq_lengths = cache.lengths - new, num_tokens
        key, value = cache.key.astype(query.dtype), cache.value.astype(query.dtype)
        key_value_seq_lengths = cache.lengths
    structure: dict[str, Any] = dict(
        scale=scale, is_causal=is_causal, query_offset=query_offset,
        query_seq_lengths=query_seq_lengths, key_value_seq_lengths=key_value_seq_lengths,
        local_window_size=local_window_size, query_segment_ids=query_segment_ids,
        key_value_segment_ids=key_value_segment_ids, softcap=softcap,
    )  # fmt: skip
    attended = dot_product_attention(
        query, key, value, bias, mask, **structure,
        dropout_rate=dropout_rate, dropout_rng=dropout_rng, implementation=implementation,
    )  # fmt: skip
    weights = attention_weights(query, key, bias, mask, **structure) if return_weights else None
    merged = rearrange(attended, "... t n h -> ... t (n h)")
    output = linear(merged, params.output_kernel, params.output_bias, name="output_kernel")
    return MultiHeadOutput(output, cache, weights)


def project_memory(
    params: MultiHeadParams, key_value_inputs: jax.Array, lengths: jax.Array | None = None,
    *, num_heads: int, num_kv_heads: int | None = None, norm_eps: float = 1e-6,
) -> KVCache:  # fmt: skip
    """Projects another sequence to keys and values once, for cross-attention from many queries.

    Args:
        params: of the layer; its key and value projections are used.
        key_value_inputs: float `[B, S, D]`, such as an encoder's output.
        lengths: int `[B]`, how many of the S are real, the first ones; all when not given.
        num_heads: N.
        num_kv_heads: K; N when not given.
        norm_eps: added to the mean square of a head by its norm.

    Returns:
        What `multi_head_attention` takes as memory: keys, values and lengths.

    Raises:
        ShapeError: an argument does not fit.

    Example:
        >>> import jax.numpy as jnp
        >>> params = MultiHeadParams(*[jnp.eye(8)] * 4)
        >>> memory = project_memory(params, jnp.ones((2, 5, 8)), num_heads=2)
        >>> layer = multi_head_attention(params, jnp.ones((2, 3, 8)), num_heads=2, memory=memory)
        >>> memory.key.shape, layer.output.shape
        ((2, 5, 2, 4), (2, 3, 8))
    """
    sizes = check_axes("key_value_inputs", key_value_inputs, "B S D")
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    key, value = _keys_and_values(params, key_value_inputs, kv_heads, norm_eps)
    if lengths is None:
        lengths = jnp.full((sizes["B"],), sizes["S"], jnp.int32)
    check_dtype("lengths", lengths, "integer")
    check_axes("lengths", lengths, "B", sizes)
    return KVCache(key, value, lengths)


def _keys_and_values(
    params: MultiHeadParams, inputs: jax.Array, count: int, norm_eps: float
) -> tuple[jax.Array, jax.Array]:
    check_axes("key_value_inputs", inputs, "... S D")
    key = _heads(params, "key", inputs, count, norm_eps)
    return key, _heads(params, "value", inputs, count, norm_eps)


def _heads(
    params: MultiHeadParams, projection: str, inputs: jax.Array, count: int, norm_eps: float
) -> jax.Array:
    """Projects, splits into heads, and normalizes them where there is a scale for it."""
    if count < 1:
        name = "num_heads" if projection == "query" else "num_kv_heads"
        raise ShapeError(f"{name} must be positive, got {count}")
    kernel, bias_name = f"{projection}_kernel", f"{projection}_bias"
    flat = linear(inputs, getattr(params, kernel), getattr(params, bias_name), name=kernel)
    if flat.shape[-1] % count:
        raise ShapeError(
            f"{kernel} must be [D, heads * width], a multiple of {count} heads, got shape "
            f"{getattr(params, kernel).shape}"
        )
    x = rearrange(flat, "... t (n h) -> ... t n h", n=count)
    scale_name = f"{projection}_norm_scale"
    norm_scale = getattr(params, scale_name, None)
    if norm_scale is None:
        return x
    check_axes(scale_name, norm_scale, "H", {"H": x.shape[-1]})
    return rms_norm(x, norm_scale, eps=norm_eps)


def _check_sources(
    key_value_inputs: jax.Array | None,
    memory: KVCache | None,
    rotary: tuple[jax.Array, jax.Array] | None,
    cache: KVCache | None,
    num_tokens: jax.Array | None,
    is_causal: bool,
    own: dict[str, Lengths | None],
) -> None:
    """Raises where what the keys and values come from does not go together."""
    cross = "key_value_inputs" if key_value_inputs is not None else "memory"
    if memory is None and key_value_inputs is None:
        cross = ""
    if memory is not None and key_value_inputs is not None:
        raise ShapeError("memory stands in place of key_value_inputs, got both; leave one out")
    if rotary is not None and cross:
        raise ShapeError(f"rotary tables are for self-attention, got {cross} as well")
    if memory is not None and own["key_value_seq_lengths"] is not None:
        raise ShapeError(
            "key_value_seq_lengths must be left out with memory, which has its own, got both"
        )
    if cache is None:
        if num_tokens is not None:
            raise ShapeError(
                "num_tokens goes with a cache, got none; pass query_seq_lengths and "
                "key_value_seq_lengths"
            )
        return
    if cross or not is_causal:
        raise ShapeError(
            f"a cache is for causal self-attention, got is_causal={is_causal}"
            + (f" and {cross}" if cross else "")
            + "; set is_causal=True and pass query_inputs only"
        )
    for name, value in own.items():
        if value is not None:
            raise ShapeError(
                f"{name} must be left out with a cache, which has its own, got both; "
                "pass num_tokens for rows of unequal length"
            )
