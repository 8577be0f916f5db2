"""Attention by blocks of queries, in memory that grows linearly with the sequence.

A block of queries sees a run of keys that is known when the program is traced (causal, window and
lengths given as ints), so blocks that are hidden throughout are never computed. The backward pass
computes the weights again from the queries, the keys and two numbers per query (Dao et al.,
"FlashAttention", 2022; Rabe and Staats, "Self-attention Does Not Need O(n^2) Memory", 2021).
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.functional.attention.block import SAVED, attend
from jaxformer.functional.attention.inputs import AttentionInputs
from jaxformer.functional.attention.plan import Run, plan_runs, visible_keys
from jaxformer.functional.attention.visibility import Span, allowed_in, block_of, cut, zero_unseen

__all__ = ["chunked_attention"]


class _Head(NamedTuple):
    """What differs by key head, for all of them `[k, ...]` or for one; `g` query heads share it.

    Args:
        position: integer, 0 to k - 1.
        zero: integer 0. A block adds it to its first query to draw its mask: one that did not
            depend on the head would be drawn before the loop over heads, for all blocks at once,
            and be as large as the weights.
        query: float `[..., g, t, h]`.
        key: float `[..., s, h]`.
        value: float `[..., s, v]`.
        bias: float `[..., g, t, s]`, 1 where it does not vary; None where all heads share it.
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
    shape = (*inputs.query.shape[:-1], inputs.value.shape[-1])
    if 0 in shape:
        return jnp.zeros_like(inputs.query, shape=shape)
    block, heads_at_once = _block_size(inputs)
    runs = plan_runs(inputs.structure, inputs.query.shape[-3], inputs.key.shape[-3], block)
    # Numbers decide about the program, so they stay out of what is traced.
    leaves, tree = jax.tree.flatten((inputs, dropout_rng))
    numbers = tuple(None if isinstance(leaf, jax.Array) else leaf for leaf in leaves)
    arrays = [leaf if isinstance(leaf, jax.Array) else None for leaf in leaves]
    return _attend_all(tree, numbers, runs, heads_at_once, arrays)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))  # or each eager call would compile
def _attend_all(
    tree: Any,
    numbers: tuple[float | None, ...],
    runs: tuple[Run, ...],
    heads_at_once: int,
    arrays: list[jax.Array | None],
) -> jax.Array:
    """Attends from all queries in each head, a few heads at a time."""
    leaves = [a if n is None else n for a, n in zip(arrays, numbers, strict=True)]
    inputs, dropout_rng = jax.tree.unflatten(tree, leaves)
    inputs = zero_unseen(inputs, _seen_keys(inputs, runs))

    def attend_head(head: _Head) -> jax.Array:
        one = inputs._replace(
            query=head.query,
            key=head.key,
            value=head.value,
            bias=shared.bias if head.bias is None else head.bias,
            mask=shared.mask if head.mask is None else head.mask,
        )
        rng = None if dropout_rng is None else jax.random.fold_in(dropout_rng, head.position)
        return jnp.concatenate([_attend_run(one, run, rng, head.zero) for run in runs], axis=-2)

    heads, shared = _split_heads(inputs)
    output = jax.lax.map(attend_head, heads, batch_size=heads_at_once)
    return rearrange(output, "k ... g t v -> ... t (k g) v").astype(inputs.query.dtype)


def _split_heads(inputs: AttentionInputs) -> tuple[_Head, AttentionInputs]:
    """Moves key heads to the front, in float32 or wider; bias and mask stay where they are shared.

    Wide before the loops, so that gradients are summed over blocks before they are rounded.
    """
    kv_heads = inputs.key.shape[-2]
    wide = jnp.promote_types(inputs.query.dtype, jnp.float32)
    bias, mask = inputs.bias, inputs.mask
    if bias is not None and 1 in bias.shape[-3:-1]:
        bias = bias.astype(wide)

    def by_head(array: jax.Array | None) -> jax.Array | None:
        if array is None or array.shape[-3] == 1:
            return None
        return rearrange(array, "... (k g) t s -> k ... g t s", k=kv_heads)

    heads = _Head(
        position=jnp.arange(kv_heads),
        zero=jnp.zeros(kv_heads, jnp.int32),
        query=rearrange(inputs.query, "... t (k g) h -> k ... g t h", k=kv_heads).astype(wide),
        key=rearrange(inputs.key, "... s k h -> k ... s h").astype(wide),
        value=rearrange(inputs.value, "... s k v -> k ... s v").astype(wide),
        bias=by_head(bias),
        mask=by_head(mask),
    )
    return heads, inputs._replace(bias=bias)


def _attend_run(
    inputs: AttentionInputs, run: Run, rng: jax.Array | None, zero: jax.Array
) -> jax.Array:
    """Attends in one head from the queries of a run: `[..., g, n*t, v]`."""
    query, key, value = inputs.query, inputs.key, inputs.value
    num_blocks = len(run.first_keys)
    if run.num_keys == 0:
        shape = (*query.shape[:-2], num_blocks * run.num_queries, value.shape[-1])
        return jnp.zeros_like(query, shape=shape)

    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names(*SAVED))
    def attend_block(first_query: int | jax.Array, first_key: int | jax.Array) -> jax.Array:
        queries, keys = (first_query, run.num_queries), (first_key, run.num_keys)
        bias = keep = None
        if inputs.bias is not None:
            bias = block_of(inputs.bias, queries, keys).astype(query.dtype)
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
            allowed_in(inputs, (first_query + zero, run.num_queries), keys),
            keep,
        )

    if num_blocks == 1:
        return attend_block(run.first_query, run.first_keys[0])
    output = jax.lax.map(lambda starts: attend_block(*starts), _starts(run))
    return rearrange(output, "n ... g t v -> ... g (n t) v")


def _starts(run: Run) -> tuple[jax.Array, jax.Array]:
    """First query and first key of each block: two integer `[n]`."""
    first_queries = run.first_query + run.num_queries * jnp.arange(len(run.first_keys))
    return first_queries, jnp.asarray(run.first_keys)


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


def _seen_keys(inputs: AttentionInputs, runs: tuple[Run, ...]) -> jax.Array | None:
    """Finds the keys that some query sees: bool `[..., N, S]`, or None where all are.

    What the runs leave out is not looked at.
    """
    num_keys = inputs.key.shape[-3]
    limits = (inputs.bias, inputs.mask, *inputs.structure)
    if not any(isinstance(limit, jax.Array) for limit in limits):
        first, last = visible_keys(inputs.structure, num_keys, 0, inputs.query.shape[-3])
        if (first, last) == (0, num_keys):
            return None
        keys = jnp.arange(num_keys)
        seen = (keys >= first) & (keys < last)
        return jnp.expand_dims(seen, tuple(range(inputs.query.ndim - 2)))
    seen = _seen_by(inputs, (0, 0), (0, num_keys))  # by nobody, for its shape
    seen = jnp.broadcast_to(seen, (*seen.shape[:-1], num_keys))

    def look(
        run: Run, seen: jax.Array, starts: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, None]:
        first_query, first_key = starts
        keys = (first_key, run.num_keys)
        both = cut(seen, keys, axis=-1) | _seen_by(inputs, (first_query, run.num_queries), keys)
        return jax.lax.dynamic_update_slice_in_dim(seen, both, first_key, axis=-1), None

    for run in runs:
        if run.num_keys:
            seen, _ = jax.lax.scan(functools.partial(look, run), seen, _starts(run))
    return seen


def _seen_by(inputs: AttentionInputs, queries: Span, keys: Span) -> jax.Array:
    """Finds the keys that one of these queries sees: bool `[..., N, s]`, 1 where it is the same."""
    allowed = allowed_in(inputs, queries, keys)
    return jnp.ones((1,) * (inputs.query.ndim - 1), bool) if allowed is None else allowed.any(-2)
