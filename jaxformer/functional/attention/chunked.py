"""Attention by blocks of queries, in memory that grows linearly with the sequence.

A block of queries sees a run of keys that is known when the program is traced (causal, window and
lengths given as ints), so blocks that are hidden throughout are never computed. The backward pass
computes the weights again from the queries, the keys and two numbers per query (Dao et al.,
"FlashAttention", 2022; Rabe and Staats, "Self-attention Does Not Need O(n^2) Memory", 2021).
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.functional.attention.block import SAVED, attend
from jaxformer.functional.attention.inputs import (
    AttentionInputs,
    Structure,
    allowed_in,
    block_of,
    cut,
    zero_unseen,
)

__all__ = ["chunked_attention"]

_MAX_RUNS = 8  # each is compiled by itself


class _Run(NamedTuple):
    """Blocks that one loop computes, because they have the same size.

    Args:
        first_query: of the first block.
        num_queries: of each block.
        first_keys: one for each block.
        num_keys: of each block; 0 = nothing to see.
    """

    first_query: int
    num_queries: int
    first_keys: tuple[int, ...]
    num_keys: int


class _Heads(NamedTuple):
    """What differs by key head, heads first; `k` key heads of `g` query heads each.

    Args:
        position: integer `[k]`, 0 to k - 1.
        zero: integer `[k]`, all 0: a mask that did not depend on the head would be drawn once,
            for all blocks together, and be as large as the weights.
        query: float `[k, ..., g, t, h]`.
        key: float `[k, ..., s, h]`.
        value: float `[k, ..., s, v]`.
        bias: float `[k, ..., g, t, s]`, 1 where it does not vary; None where all heads share it.
        mask: bool, likewise.
    """

    position: jax.Array
    zero: jax.Array
    query: jax.Array
    key: jax.Array
    value: jax.Array
    bias: jax.Array | None
    mask: jax.Array | None


def chunked_attention(inputs: AttentionInputs, dropout_rng: jax.Array | None) -> jax.Array:
    """Computes `dot_product_attention` block by block.

    Args:
        inputs: as prepared.
        dropout_rng: PRNG key; None = no dropout.

    Returns:
        float `[..., T, N, Hv]`, in the query's dtype.
    """
    assert inputs.value is not None
    block, heads_at_once = _block_size(inputs)
    runs = _plan(inputs.structure, inputs.query.shape[-3], inputs.key.shape[-3], block)
    inputs = zero_unseen(inputs, _seen_keys(inputs, block))
    kv_heads = inputs.key.shape[-2]
    # Wide before the loops, so that gradients are summed over the blocks before they are rounded.
    wide = jnp.promote_types(inputs.query.dtype, jnp.float32)

    def by_head(array: jax.Array | None) -> jax.Array | None:
        if array is None or array.shape[-3] == 1:
            return None
        return rearrange(array, "... (k g) t s -> k ... g t s", k=kv_heads)

    by_heads = _Heads(
        position=jnp.arange(kv_heads),
        zero=jnp.zeros(kv_heads, jnp.int32),
        query=rearrange(inputs.query, "... t (k g) h -> k ... g t h", k=kv_heads).astype(wide),
        key=rearrange(inputs.key, "... s k h -> k ... s h").astype(wide),
        value=rearrange(inputs.value, "... s k v -> k ... s v").astype(wide),
        bias=by_head(inputs.bias),
        mask=by_head(inputs.mask),
    )

    def attend_head(heads: _Heads) -> jax.Array:
        one = inputs._replace(
            query=heads.query,
            key=heads.key,
            value=heads.value,
            bias=inputs.bias if heads.bias is None else heads.bias,
            mask=inputs.mask if heads.mask is None else heads.mask,
        )
        rng = None if dropout_rng is None else jax.random.fold_in(dropout_rng, heads.position)
        return jnp.concatenate([_attend_run(one, run, rng, heads.zero) for run in runs], axis=-2)

    output = jax.lax.map(attend_head, by_heads, batch_size=heads_at_once)
    return rearrange(output, "k ... g t v -> ... t (k g) v").astype(inputs.query.dtype)


def _attend_run(
    inputs: AttentionInputs, run: _Run, rng: jax.Array | None, zero: jax.Array
) -> jax.Array:
    """Attends from the queries of a run: `[..., g, n*t, v]`."""
    query, key, value = inputs.query, inputs.key, inputs.value
    assert value is not None
    num_blocks = len(run.first_keys)
    if run.num_keys == 0:
        shape = (*query.shape[:-2], num_blocks * run.num_queries, value.shape[-1])
        return jnp.zeros(shape, value.dtype)

    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names(*SAVED))
    def attend_block(first_query: int | jax.Array, first_key: int | jax.Array) -> jax.Array:
        queries, keys = (first_query, run.num_queries), (first_key, run.num_keys)
        bias = None if inputs.bias is None else block_of(inputs.bias, queries, keys)
        allowed = allowed_in(
            inputs, (first_query + zero, run.num_queries), (first_key + zero, run.num_keys)
        )
        keep = None
        if rng is not None:
            shape = (*query.shape[:-2], run.num_queries, run.num_keys)
            block_rng = jax.random.fold_in(rng, first_query)
            keep = jax.random.bernoulli(block_rng, 1 - inputs.options.dropout_rate, shape)
        return attend(
            inputs.options,
            cut(query, queries, axis=-2),
            cut(key, keys, axis=-2),
            cut(value, keys, axis=-2),
            bias,
            allowed,
            keep,
        )

    if num_blocks == 1:
        return attend_block(run.first_query, run.first_keys[0])
    first_queries = run.first_query + run.num_queries * jnp.arange(num_blocks)
    blocks = (first_queries, jnp.asarray(run.first_keys))
    output = jax.lax.map(lambda block: attend_block(*block), blocks)
    return rearrange(output, "n ... g t v -> ... g (n t) v")


def _block_size(inputs: AttentionInputs) -> tuple[int, int]:
    """Chooses how many queries, and how many key heads, one step computes the weights of."""
    *leading, num_queries, num_heads, _ = inputs.query.shape
    num_keys, kv_heads = inputs.key.shape[-3:-1]
    # On CPU the weights of a step stay in the cache; elsewhere more work at once is faster.
    weights = 2**19 if jax.default_backend() == "cpu" else 2**26
    per_query = max(1, math.prod(leading) * num_heads // kv_heads * num_keys)
    wanted = 2 ** round(math.log2(weights / per_query)) if weights > per_query else 1
    block = max(1, min(num_queries, max(64, min(512, wanted))))
    return block, max(1, min(kv_heads, weights // (block * per_query)))


def _plan(structure: Structure, num_queries: int, num_keys: int, size: int) -> list[_Run]:
    """Cuts the queries into blocks, finds the keys that each may see, and joins equal blocks."""
    (left, right), offset = structure.window, structure.offset
    last_key = structure.key_lengths if isinstance(structure.key_lengths, int) else num_keys
    last_query = (
        structure.query_lengths if isinstance(structure.query_lengths, int) else num_queries
    )

    def visible(start: int, stop: int) -> tuple[int, int]:
        first, last = 0, last_key
        if isinstance(offset, int):
            first = first if left is None else max(first, start + offset - left)
            last = last if right is None else min(last, stop + offset + right)
        return (0, 0) if start >= last_query or last <= first else (first, last)

    num_full, rest = divmod(num_queries, size)
    seen = [visible(i * size, (i + 1) * size) for i in range(num_full)]
    step = max(1, -(-num_full // _MAX_RUNS))
    runs: list[_Run] = []
    for i in range(0, num_full, step):
        group = seen[i : i + step]
        width = max(last - first for first, last in group)
        firsts = tuple(min(first, num_keys - width) for first, _ in group)
        if runs and runs[-1].num_keys == width:
            runs[-1] = runs[-1]._replace(first_keys=runs[-1].first_keys + firsts)
        else:
            runs.append(_Run(i * size, size, firsts, width))
    if rest or not runs:
        first, last = visible(num_queries - rest, num_queries)
        runs.append(_Run(num_queries - rest, rest, (first,), last - first))
    return runs


def _seen_keys(inputs: AttentionInputs, size: int) -> jax.Array | None:
    """Finds the keys that some query sees, block by block: bool `[..., N, S]`, 1 for no change."""
    num_queries, num_keys = inputs.query.shape[-3], inputs.key.shape[-3]

    def seen_by(first_query: int | jax.Array, count: int) -> jax.Array | None:
        allowed = allowed_in(inputs, (first_query, count), (0, num_keys))
        return None if allowed is None else allowed.any(axis=-2)

    num_full, rest = divmod(num_queries, size)
    seen = seen_by(num_queries - rest, rest)
    if seen is None:
        return None
    starts = size * jnp.arange(num_full)
    return seen | jax.lax.map(lambda start: seen_by(start, size), starts).any(axis=0)
