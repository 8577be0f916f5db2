"""Scaled dot-product attention, its weights, and its mask.

Axes: `B` batch, `T` query length, `S` key/value length, `N` query heads, `K` key/value heads,
`H` query and key width, `Hv` value width.
"""

from typing import Literal, Unpack, get_args, overload

import jax

from jaxformer.functional.attention.dense import dense_weights
from jaxformer.functional.attention.inputs import (
    AttentionKeywords,
    Bias,
    Implementation,
    MaskKeywords,
    WindowSize,
    prepare_attention,
)
from jaxformer.functional.attention.program import attention_program
from jaxformer.functional.checks import Array, check_choice, check_keywords
from jaxformer.functional.masks.base import AnyMask
from jaxformer.functional.masks.checks import Integers

Stage = Literal["scores", "capped", "biased", "masked", "softmax"]


@overload
def dot_product_attention(
    query: Array, key: Array, value: Array, bias: Bias | None = ..., mask: AnyMask | None = ...,
    *, return_residual: Literal[False] = ..., **options: Unpack[AttentionKeywords],
) -> jax.Array: ...  # fmt: skip


@overload
def dot_product_attention(
    query: Array, key: Array, value: Array, bias: Bias | None = ..., mask: AnyMask | None = ...,
    *, return_residual: Literal[True], **options: Unpack[AttentionKeywords],
) -> tuple[jax.Array, jax.Array]: ...  # fmt: skip


def dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Bias | None = None,
    mask: AnyMask | None = None,
    *,
    scale: float | jax.Array | None = None,
    is_causal: bool = False,
    query_offset: Integers | None = None,
    query_seq_lengths: Integers | None = None,
    key_value_seq_lengths: Integers | None = None,
    local_window_size: WindowSize | None = None,
    query_segment_ids: Array | None = None,
    key_value_segment_ids: Array | None = None,
    softcap: float | None = None,
    dropout_rate: float = 0.0,
    dropout_rng: jax.Array | None = None,
    precision: jax.lax.PrecisionLike = None,
    implementation: Implementation = "auto",
    return_residual: bool = False,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    r"""Scaled dot-product attention, with grouped heads and structural masks.

    $$\mathrm{softmax}(\mathrm{cap}(\mathrm{scale} \cdot Q K^T) + \mathrm{bias}) V$$

    The softmax runs over the visible keys. A key is visible if the mask and the structure (causal,
    window, lengths, segments) allow it and its bias is not -inf. Argument names and order follow
    `jax.nn.dot_product_attention`.

    - A query without visible keys gives exactly 0, with gradients of exactly 0.
    - NaNs and Infs in keys and values that no query sees do not affect any result or gradient. Nor
      do those in queries without visible keys ("splash": in queries beyond their length).
    - Scores, softmax and the product with the values are computed in float32 (float64 for float64
      inputs). On GPU and TPU, float32 products follow `jax.default_matmul_precision`, and "dense"
      and "chunked" round operands of products to bfloat16 for bfloat16 inputs, as fused kernels do.

    Args:
        query: float `[..., T, N, H]`, with any number of leading axes.
        key: float `[..., S, K, H]`, same leading axes; query head n reads key head n // (N / K).
        value: float `[..., S, K, Hv]`.
        bias: float, added to the capped scores: `[T, S]`, or of the rank of `[..., N, T, S]` and
            broadcastable to it. -inf hides a key. Or an `AlibiBias` or a `RelativeBias`,
            which depend on query_offset, and which chunked attention computes block by block. Or
            a pair (array, one of these): both are added.
        mask: bool, True = attend; shaped like an array bias. Or a rule such as `Prefix`, which
            takes no T x S memory in chunked attention, and whose hidden blocks are skipped.
        scale: factor of the scores, a number or an array of size 1; 1 / sqrt(H) when not given.
            A traced one multiplies the query.
        is_causal: whether query i, at position `query_offset + i`, attends only to keys at or
            before that position.
        query_offset: int, or integer array that broadcasts to the leading axes; between -2**30 and
            2**30. Required by is_causal, local_window_size and a position bias if T differs from
            S: 0 aligns the first query with the first key, S - T the last with the last. Ignored
            without them.
        query_seq_lengths: number of real queries in each row, integers that broadcast to the
            leading axes; the outputs of the others are 0.
        key_value_seq_lengths: number of real keys, likewise; the others are hidden.
        local_window_size: (left, right) around the query's position, None = unbounded; an int
            means both.
        query_segment_ids: integer `[..., T]`; a query attends to the keys of its own segment.
        key_value_segment_ids: integer `[..., S]`.
        softcap: c in c * tanh(scores / c), known when traced.
        dropout_rate: fraction of the weights set to 0 (the rest are scaled up), in [0, 1).
        dropout_rng: PRNG key; required if the rate is above 0.
        precision: of the products with keys and values, as in `jax.lax.dot_general`; None = that of
            `jax.default_matmul_precision`.
        implementation: "dense" holds all `[..., N, T, S]` weights (None and "xla" mean the same).
            "chunked" computes them in blocks, in memory linear in T and S, and skips blocks hidden
            by causality, window or lengths given as ints. "cudnn" is NVIDIA's fused kernel (forward
            and reverse mode only, weights rounded to the query's dtype). "splash" is JAX's kernel
            for TPUs (likewise; the scaled query, and in gradients the weights, are rounded to the
            query's dtype); it may be traced anywhere, but compiled only for a TPU. "auto" picks
            what `attention_implementation` reports for the platform the program is compiled for (a
            CPU beside an accelerator runs the same dense or chunked program as that); on
            a TPU this may be "splash": pass "chunked" for forward mode or second derivatives. They
            draw different dropout masks. On CPU, chunked computes a few heads at a time, so split
            heads with shard_map, not with jit alone. Under `jax.export` every size except H may be
            symbolic; a symbolic T or S needs dense.
        return_residual: whether to return (output, residual). The residual is the log-sum-exp of
            the scores, log(sum(exp(score))) over the visible keys of each query, or -inf if there
            are none. It merges attention over parts of the keys: if r is the residual of a part,
            the total output is the sum over all parts of output * exp(r - logsumexp(all r)).
            Dropout does not affect it. Unlike in `jax.nn`, it has gradients and is not rounded to
            half precision.

    Returns:
        float `[..., T, N, Hv]`, in the query's dtype; with return_residual, (output, residual), the
        residual float32 (float64 for float64) `[..., T, N]`.

    Raises:
        ShapeError: an argument does not fit; the message names it, its axes and the remedy.
        ConfigError: an option is invalid, or the requested implementation does not support the
            call.

    References:
        Vaswani et al., "Attention Is All You Need", 2017; Ainslie et al., "GQA", 2023 (grouped
        heads); Gemma Team, "Gemma 2", 2024 (soft cap); Dao et al., "FlashAttention", 2022
        (chunked); Dao, "FlashAttention-2", 2023, section 3.1 (residual).

    Example:
        >>> import jax.numpy as jnp
        >>> query, key = jnp.ones((2, 5, 4, 8)), jnp.ones((2, 5, 2, 8))
        >>> value = jnp.ones((2, 5, 2, 3))
        >>> dot_product_attention(query, key, value, is_causal=True).shape
        (2, 5, 4, 3)
        >>> _, residual = dot_product_attention(query, key, value, return_residual=True)
        >>> residual.shape
        (2, 5, 4)
    """
    inputs = prepare_attention(
        query, key, value, bias, mask, scale=scale, softcap=softcap, dropout_rate=dropout_rate,
        dropout_rng=dropout_rng, precision=precision, implementation=implementation,
        return_residual=return_residual, is_causal=is_causal, query_offset=query_offset,
        query_seq_lengths=query_seq_lengths, key_value_seq_lengths=key_value_seq_lengths,
        local_window_size=local_window_size, query_segment_ids=query_segment_ids,
        key_value_segment_ids=key_value_segment_ids,
    )  # fmt: skip
    output, residual = attention_program(inputs)(inputs)
    return output if residual is None else (output, residual)


def attention_weights(
    query: Array,
    key: Array,
    bias: Bias | None = None,
    mask: AnyMask | None = None,
    *,
    stage: Stage = "softmax",
    scale: float | jax.Array | None = None,
    softcap: float | None = None,
    **structure: Unpack[MaskKeywords],
) -> jax.Array:
    """Attention weights of `dot_product_attention`, or its scores at an earlier stage.

    Needs T x S memory per head.

    Args:
        query: float `[..., T, N, H]`.
        key: float `[..., S, K, H]`.
        bias: as in `dot_product_attention`.
        mask: True = attend, as in `dot_product_attention`.
        stage: what to return: the scaled "scores", then "capped", then "biased" (all three before
            masking), "masked" (-inf where the query may not attend), or the weights after
            "softmax", before dropout.
        scale: as in `dot_product_attention`.
        softcap: likewise.
        **structure: is_causal, query_offset, query_seq_lengths, key_value_seq_lengths,
            local_window_size, query_segment_ids and key_value_segment_ids, likewise. Queries
            beyond their length have weights 0.

    Returns:
        float32 (float64 for float64) `[..., N, T, S]`. After "softmax" each row sums to 1, or is 0
        if no key is visible.

    Raises:
        ShapeError: an argument does not fit.
        ConfigError: an option is invalid.

    Example:
        >>> import jax.numpy as jnp
        >>> attention_weights(jnp.ones((2, 1, 4)), jnp.ones((2, 1, 4)), is_causal=True)[0].tolist()
        [[1.0, 0.0], [0.5, 0.5]]
    """
    check_choice("stage", stage, get_args(Stage))
    check_keywords("attention_weights", structure, MaskKeywords)
    # The weights do not depend on the values, so pass the keys in their place.
    inputs = prepare_attention(
        query, key, key, bias, mask, scale=scale, softcap=softcap, **structure
    )
    return dense_weights(inputs, stage)


def attention_mask(
    query: Array,
    key: Array,
    mask: AnyMask | None = None,
    *,
    bias: Bias | None = None,
    **structure: Unpack[MaskKeywords],
) -> jax.Array | None:
    """Boolean attention mask that `dot_product_attention` applies for these arguments.

    Combines the mask, the structure (causal, window, lengths, segments) and -inf in the bias into
    one mask, so your own attention function need not handle each. You still have to add a finite
    bias to the scores, and a row of the mask may be all False. The mask is a full array;
    `dot_product_attention` itself never builds more than blocks of it. Arguments that do not affect
    the mask (scale, soft cap, dropout, implementation) are not accepted, so a function that
    forwards `**structure` rejects those that it does not handle, instead of ignoring them.

    Args:
        query: float `[..., T, N, H]`; only its shape and dtype are used.
        key: float `[..., S, K, H]`, likewise.
        mask: bool, True = attend; broadcasts to `[..., N, T, S]` with that rank, or is `[T, S]`. Or
            a rule.
        bias: as in `dot_product_attention`; -inf in an array hides a key.
        **structure: is_causal, query_offset, query_seq_lengths, key_value_seq_lengths,
            local_window_size, query_segment_ids and key_value_segment_ids, as in
            `dot_product_attention`. Queries beyond their length attend to nothing.

    Returns:
        bool, broadcastable to `[..., N, T, S]` and of that rank; None if every query attends to
        every key.

    Raises:
        ShapeError: an argument does not fit.
        ConfigError: is_causal is not a bool.

    References:
        Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023 (the example:
        a score of 0 in the softmax that has no value).

    Example:
        >>> import jax.numpy as jnp
        >>> def attention_with_sink(query, key, value, mask=None, **structure):
        ...     mask = attention_mask(query, key, mask, **structure)
        ...     scores = jnp.einsum("...tnh,...snh->...nts", query, key) / query.shape[-1] ** 0.5
        ...     scores = scores if mask is None else jnp.where(mask, scores, -jnp.inf)
        ...     sink = jnp.zeros_like(scores[..., :1])
        ...     weights = jax.nn.softmax(jnp.concatenate([scores, sink], axis=-1))[..., :-1]
        ...     return jnp.einsum("...nts,...snh->...tnh", weights, value)
        >>> query = key = value = jnp.ones((3, 1, 4))
        >>> attention_mask(query, key, is_causal=True)[0].astype(int).tolist()
        [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
        >>> output = attention_with_sink(query, key, value, is_causal=True)
        >>> [f"{row:.2f}" for row in output[:, 0, 0]]
        ['0.88', '0.94', '0.96']
    """
    check_keywords("attention_mask", structure, MaskKeywords)
    return prepare_attention(query, key, key, bias, mask, **structure).mask_of()
