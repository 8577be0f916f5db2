"""The multi-head attention layer as a pure function of its parameters.

Axes: `B` batch, `T` query length, `S` key/value length, `N` query heads, `K` key/value heads,
`H` query and key width, `Hv` value width, `D` d_model.
"""

from typing import NamedTuple

import jax
from einops import rearrange

from jaxformer.errors import ShapeError
from jaxformer.functional.attention import Implementation, dot_product_attention
from jaxformer.functional.attention.inputs import Lengths
from jaxformer.functional.cache import KVCache
from jaxformer.functional.linear import linear
from jaxformer.functional.positions import apply_rotary
from jaxformer.functional.shapes import Array, check_axes

__all__ = ["MultiHeadOutput", "MultiHeadParams", "multi_head_attention"]


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
    """

    query_kernel: jax.Array
    key_kernel: jax.Array
    value_kernel: jax.Array
    output_kernel: jax.Array
    query_bias: jax.Array | None = None
    key_bias: jax.Array | None = None
    value_bias: jax.Array | None = None
    output_bias: jax.Array | None = None


class MultiHeadOutput(NamedTuple):
    """Result of `multi_head_attention`.

    Args:
        output: float `[..., T, D]`.
        cache: the longer cache, when one was given.
    """

    output: jax.Array
    cache: KVCache | None


def multi_head_attention(
    params: MultiHeadParams,
    query_inputs: jax.Array,
    key_value_inputs: jax.Array | None = None,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    rotary: tuple[jax.Array, jax.Array] | None = None,
    rotary_layout: str = "half",
    cache: KVCache | None = None,
    num_tokens: jax.Array | None = None,
    is_causal: bool = False,
    query_segment_ids: Array | None = None,
    key_value_segment_ids: Array | None = None,
    key_value_seq_lengths: Lengths | None = None,
    dropout_rate: float = 0.0,
    dropout_rng: jax.Array | None = None,
    implementation: Implementation = "auto",
) -> MultiHeadOutput:
    """Projects to heads, attends in each, and projects the merged heads back.

    Args:
        params: the four projections.
        query_inputs: float `[..., T, D]`.
        key_value_inputs: float `[..., S, D]`; query_inputs when not given (self-attention).
        bias: added to the scores, as in `dot_product_attention`.
        mask: bool, True = attend, as in `dot_product_attention`.
        num_heads: N.
        num_kv_heads: K; N when not given.
        rotary: (cos, sin) tables `[T, H/2]` or `[..., T, H/2]` for queries and keys alike
            (self-attention only).
        rotary_layout: "half" or "interleaved", as in `apply_rotary`.
        cache: earlier keys and values of this layer. The new ones are appended, and queries see
            the cached tokens up to their own (causal self-attention on `[B, T, D]`).
        num_tokens: int `[B]`, with a cache: how many of the T inputs are real in each row, the
            first ones; all when not given. Outputs of the others are those of a zero row.
        is_causal: whether a query sees only keys at or before it.
        query_segment_ids: integer `[..., T]`.
        key_value_segment_ids: integer `[..., S]`.
        key_value_seq_lengths: keys at or beyond are hidden.
        dropout_rate: of the attention weights.
        dropout_rng: PRNG key; needed when the rate is above 0.
        implementation: as in `dot_product_attention`.

    Returns:
        The output and the cache.

    Raises:
        ShapeError: an argument does not fit.

    Example:
        >>> import jax.numpy as jnp
        >>> params = MultiHeadParams(*[jnp.eye(8)] * 4)
        >>> multi_head_attention(params, jnp.ones((2, 3, 8)), num_heads=2).output.shape
        (2, 3, 8)
    """
    if cache is not None and (key_value_inputs is not None or not is_causal):
        raise ShapeError(
            "a cache is for causal self-attention, got "
            f"is_causal={is_causal}"
            + (" and key_value_inputs" if key_value_inputs is not None else "")
            + "; set is_causal=True and pass query_inputs only"
        )
    if cache is not None and key_value_seq_lengths is not None:
        raise ShapeError(
            "key_value_seq_lengths are the cache's own lengths when there is one, got both; leave "
            "them out, and pass num_tokens for rows of unequal length"
        )
    if num_tokens is not None and cache is None:
        raise ShapeError("num_tokens goes with a cache, got none; pass key_value_seq_lengths")
    if rotary is not None and key_value_inputs is not None:
        raise ShapeError("rotary tables are for self-attention, got key_value_inputs as well")
    key_value_inputs = query_inputs if key_value_inputs is None else key_value_inputs
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    for name, count in (("num_heads", num_heads), ("num_kv_heads", kv_heads)):
        if count < 1:
            raise ShapeError(f"{name} must be positive, got {count}")
    check_axes("query_inputs", query_inputs, "... T D")
    check_axes("key_value_inputs", key_value_inputs, "... S D")

    def heads(kernel: str, bias_name: str, inputs: jax.Array, count: int) -> jax.Array:
        flat = linear(inputs, getattr(params, kernel), getattr(params, bias_name), name=kernel)
        if flat.shape[-1] % count:
            raise ShapeError(
                f"{kernel} must be [D, heads * width], a multiple of {count} heads, got shape "
                f"{getattr(params, kernel).shape}"
            )
        return rearrange(flat, "... t (n h) -> ... t n h", n=count)

    query = heads("query_kernel", "query_bias", query_inputs, num_heads)
    key = heads("key_kernel", "key_bias", key_value_inputs, kv_heads)
    value = heads("value_kernel", "value_bias", key_value_inputs, kv_heads)
    if rotary is not None:
        query = apply_rotary(query, rotary, layout=rotary_layout)
        key = apply_rotary(key, rotary, layout=rotary_layout)
    query_offset = None
    if cache is not None:
        check_axes("query_inputs", query_inputs, "B T D", {"B": cache.lengths.shape[0]})
        cache = cache.append(key, value, num_tokens)
        new = query.shape[1] if num_tokens is None else num_tokens
        query_offset = cache.lengths - new
        key, value = cache.key.astype(query.dtype), cache.value.astype(query.dtype)
        key_value_seq_lengths = cache.lengths
    attended = dot_product_attention(
        query, key, value, bias, mask, is_causal=is_causal, query_offset=query_offset,
        query_seq_lengths=num_tokens, key_value_seq_lengths=key_value_seq_lengths,
        query_segment_ids=query_segment_ids, key_value_segment_ids=key_value_segment_ids,
        dropout_rate=dropout_rate, dropout_rng=dropout_rng, implementation=implementation,
    )  # fmt: skip
    merged = rearrange(attended, "... t n h -> ... t (n h)")
    return MultiHeadOutput(
        linear(merged, params.output_kernel, params.output_bias, name="output_kernel"), cache
    )
