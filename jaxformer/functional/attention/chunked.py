"""Chunked attention: blocks of queries, in memory that grows linearly with the sequence.

The keys visible to a block of queries are known at trace time (causal, window and lengths given as
ints), so ranges that are hidden entirely are never computed. The backward pass recomputes the
weights from the queries, the keys and two numbers per query (Dao et al.,
"FlashAttention", 2022; Rabe and Staats, "Self-attention Does Not Need O(n^2) Memory", 2021).
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.functional.attention.block import SAVED, BlockInputs, zero_hidden_keys
from jaxformer.functional.attention.dense import attend_block, dense_attention
from jaxformer.functional.attention.inputs import AttentionInputs
from jaxformer.functional.attention.plan import BlockLoop, plan_loops
from jaxformer.functional.checks import Array, is_symbolic
from jaxformer.functional.dtypes import at_least, widened
from jaxformer.functional.masks.base import ArrayMask, arrays_of, map_rules
from jaxformer.functional.masks.parts import mask_parts
from jaxformer.functional.masks.tiles import slice_axis
from jaxformer.functional.positions.biases import PositionBias


class BlockSizes(NamedTuple):
    """Queries in a block, and key heads whose blocks are computed at once."""

    queries: int
    heads: int


_OutputAndResidual = tuple[jax.Array, jax.Array | None]
"""Output of attention, and the log-sum-exp of the scores if requested."""


class _Head(NamedTuple):
    """Inputs of one key head and the `g` query heads that share it, or of all heads: `[k, ...]`."""

    number: jax.Array
    # Depends on the head, so that XLA does not hoist every block's mask out of the head loop, where
    # together they would be as large as the weights.
    zero: jax.Array
    query: jax.Array
    key: jax.Array
    value: jax.Array
    bias: jax.Array | None  # None also if all heads share it
    position_bias: PositionBias | None
    masks: tuple[jax.Array | None, ...]  # arrays of the mask, likewise


def why_not_chunked(inputs: AttentionInputs) -> str | None:
    """Reason why chunked attention does not support a call, or None if it does."""
    num_queries, num_keys = inputs.query.shape[-3], inputs.key.shape[-3]
    if is_symbolic(num_queries, num_keys):
        return f"it cuts lengths that are known into blocks, got T={num_queries} and S={num_keys}"
    return None


def chunked_attention(
    inputs: AttentionInputs, *, blocks: BlockSizes, operands: str | None = None
) -> _OutputAndResidual:
    """`dot_product_attention` by blocks of queries; T and S may not be symbolic."""
    static = dataclasses.replace(inputs.static, operands=operands)
    inputs = dataclasses.replace(inputs, static=static)
    if 0 in (*inputs.query.shape, inputs.value.shape[-1]):
        return dense_attention(inputs, operands)  # blocks and heads are not empty
    num_queries, num_keys = inputs.query.shape[-3], inputs.key.shape[-3]
    loops = plan_loops(inputs.mask, num_queries, num_keys, blocks.queries)
    return _attend_heads(inputs, loops, blocks.heads)


# Its loops close over arrays: without jit, every eager call would recompile.
@functools.partial(jax.jit, static_argnums=(1, 2))
def _attend_heads(
    inputs: AttentionInputs, loops: tuple[BlockLoop, ...], heads_at_once: int
) -> _OutputAndResidual:
    """Computes attention in all heads, a few of them at a time."""
    bias, rng = inputs.bias, inputs.dropout_rng
    # A bias that heads or queries share has a gradient that is summed over them, before it is
    # rounded; another would only take more memory.
    if bias is not None and 1 in bias.shape[-3:-1]:
        bias = bias.astype(at_least(inputs.query.dtype, jnp.float32))

    def attend_head(head: _Head) -> _OutputAndResidual:
        masks = iter(head.masks)

        def with_array_of_head(rule: ArrayMask) -> ArrayMask:
            array = next(masks)
            return rule if array is None else ArrayMask(array)

        head_inputs = dataclasses.replace(
            inputs,
            query=head.query,
            key=head.key,
            value=head.value,
            bias=bias if head.bias is None else head.bias,
            position_bias=head.position_bias,
            mask=map_rules(ArrayMask, with_array_of_head, inputs.mask),
            dropout_rng=None if rng is None else jax.random.fold_in(rng, head.number),
        )
        outputs, residuals = zip(
            *[_attend_blocks(head_inputs, loop, head.zero) for loop in loops], strict=True
        )
        output = jnp.concatenate(outputs, axis=-2)
        return output, jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=-1), *residuals)

    heads = _split_heads(inputs, bias)
    # Loops over heads, so that a block's weights are held for only a few heads.
    output, residual = jax.lax.map(attend_head, heads, batch_size=heads_at_once)
    output = rearrange(output, "k ... g t v -> ... t (k g) v").astype(inputs.query.dtype)
    by_query = functools.partial(rearrange, pattern="k ... g t -> ... t (k g)")
    return output, jax.tree.map(by_query, residual)


def _split_heads(inputs: AttentionInputs, bias: jax.Array | None) -> _Head:
    """Inputs of all heads, with key heads in front."""
    kv_heads = inputs.key.shape[-2]

    def by_head(array: Array | None) -> jax.Array | None:
        if array is None or array.shape[-3] == 1:
            return None
        return rearrange(array, "... (k g) t s -> k ... g t s", k=kv_heads)

    # Widened before the loops, so that gradients are summed over blocks before rounding.
    return _Head(
        number=jnp.arange(kv_heads),
        zero=jnp.zeros(kv_heads, jnp.int32),
        query=widened(rearrange(inputs.query, "... t (k g) h -> k ... g t h", k=kv_heads)),
        key=widened(rearrange(inputs.key, "... s k h -> k ... s h")),
        value=widened(rearrange(inputs.value, "... s k v -> k ... s v")),
        bias=by_head(bias),
        position_bias=jax.tree.map(
            lambda numbers: rearrange(numbers, "... (k g) -> k ... g", k=kv_heads),
            inputs.position_bias,
        ),
        masks=tuple(map(by_head, arrays_of(inputs.mask))),
    )


def _attend_blocks(inputs: AttentionInputs, loop: BlockLoop, zero: jax.Array) -> _OutputAndResidual:
    """Attention of one key head for the queries of a loop: `[..., g, n*t, v]`, `[..., g, n*t]`."""
    query, key, value = inputs.query, inputs.key, inputs.value
    num_blocks = len(loop.first_keys)
    if loop.num_keys == 0:
        return _nothing(inputs, (*query.shape[:-2], num_blocks * loop.num_queries))

    # The backward pass computes a block's slices, mask, position bias and dropout mask again: those
    # of all blocks would take T x S.
    remat = functools.partial(
        jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names(*SAVED)
    )

    def attend_at(first_query: int | jax.Array, first_key: int | jax.Array) -> _OutputAndResidual:
        queries, keys = (first_query, loop.num_queries), (first_key, loop.num_keys)
        keep = None
        if inputs.dropout_rng is not None:
            # Drawn per block, so that no [T, S] dropout mask is ever held.
            shape = (*query.shape[:-2], loop.num_queries, loop.num_keys)
            block_rng = jax.random.fold_in(inputs.dropout_rng, first_query)
            keep = jax.random.bernoulli(block_rng, 1 - inputs.static.dropout_rate, shape)
        mask = inputs.mask_of((first_query + zero, loop.num_queries), keys)
        block = BlockInputs(
            slice_axis(query, queries, axis=-2),
            slice_axis(key, keys, axis=-2),
            zero_hidden_keys(slice_axis(value, keys, axis=-2), mask),
            inputs.bias_of(queries, keys, zero),
            mask,
            keep,
        )
        output, residual = attend_block(inputs.static, block)
        return output, residual if inputs.static.return_residual else None

    # Outside a loop, starts stay ints and slices static. As arguments of remat, ints are traced.
    if num_blocks == 1:
        return remat(functools.partial(attend_at, loop.first_query, loop.first_keys[0]))()
    output, residual = jax.lax.map(lambda starts: remat(attend_at)(*starts), loop.starts)
    output = rearrange(output, "n ... g t v -> ... g (n t) v")
    return output, None if residual is None else rearrange(residual, "n ... g t -> ... g (n t)")


def _nothing(inputs: AttentionInputs, rows: tuple[int, ...]) -> _OutputAndResidual:
    """Attention of queries without visible keys: outputs 0, residuals -inf."""
    dtype = at_least(inputs.query.dtype, jnp.float32)
    output = jnp.zeros_like(inputs.query, shape=(*rows, inputs.value.shape[-1]), dtype=dtype)
    if not inputs.static.return_residual:
        return output, None
    return output, jnp.full_like(inputs.query, -jnp.inf, shape=rows, dtype=dtype)


def block_sizes(inputs: AttentionInputs, platform: str) -> BlockSizes:
    """Block sizes of chunked attention on a platform; leading axes of symbolic size count as 1."""
    *leading, num_queries, num_heads, _ = inputs.query.shape
    num_keys, kv_heads = inputs.key.shape[-3:-1]
    rows = math.prod(size for size in leading if not is_symbolic(size))
    rows_per_head = max(1, rows * num_heads // kv_heads)  # of one key head and one query position
    window = mask_parts(inputs.mask).window
    left, right = window.left, window.right
    # On CPUs as many weights as caches hold, in a block and in heads computed at once, which are
    # several only if blocks are small; elsewhere, more is faster.
    weights_in_block, weights_at_once = (2**21, 2**19) if platform == "cpu" else (2**26, 2**26)
    by_weights = 2 ** max(0, round(math.log2(weights_in_block / max(1, rows_per_head * num_keys))))
    # At most 512 queries, because in causal attention half of each diagonal block is wasted, and in
    # a window as much as a block is wide.
    most = 512
    if platform == "cpu" and left is not None and right is not None:
        most = left + right + 1
    elif platform == "cpu" and (left is not None or right is not None):
        most = num_keys // 4
    most = 2 ** int(math.log2(max(64, min(512, most))))
    # At least 64, for large matrix products.
    queries = max(1, min(num_queries, max(64, min(most, by_weights))))
    if left is not None and right is not None:
        num_keys = min(num_keys, left + right + queries)
    heads = max(1, min(kv_heads, weights_at_once // max(1, queries * rows_per_head * num_keys)))
    return BlockSizes(queries, heads)
