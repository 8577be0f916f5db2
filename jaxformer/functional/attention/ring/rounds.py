"""The algorithm of ring attention: what a device computes while keys and values go round.

In round s, every device attends from its own queries to the keys of the device s places before it,
merges the result by the log-sum-exp of the scores, and passes the keys on. The backward pass goes
round once more; gradients of keys and values travel with them. So a device never holds more than
its own share and one in transit. Differentiating through the loop would keep the keys and values of
every round, which is the whole sequence. The price: the backward pass recomputes the output of
every block, not only its weights.

A block is a chunk of queries by a chunk of keys. Chunks are numbered 0 to 2n - 1 in the original
order; the positions of their tokens follow.
Axes: `2` the chunks of a device, `t` tokens of a chunk; N, K, H and Hv as in `dot_product.py`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange

from jaxformer.functional.attention.dense import Attended
from jaxformer.functional.attention.inputs import AttentionInputs
from jaxformer.functional.attention.program import attention_program
from jaxformer.functional.attention.ring.order import chunk_number
from jaxformer.functional.dtypes import at_least, widened
from jaxformer.functional.masks.base import And, Mask, Moved, all_rules
from jaxformer.functional.masks.parts import MaskParts, mask_parts
from jaxformer.functional.masks.rules import Window
from jaxformer.functional.positions.biases import PositionBias

Keys = tuple[jax.Array, jax.Array]
"""Keys `[2, ..., t, K, H]` and values `[2, ..., t, K, Hv]` of the chunks of a device."""
BlockFunction = Callable[..., Attended]
"""Attention of a block: of query `[..., t, N, H]`, key, value and bias, in float32 or 64."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend_rounds(axis_name: str, inputs: AttentionInputs) -> jax.Array:
    """Attention of the queries `[2, ..., t, N, H]`: float32 or 64 `[2, ..., t, N, Hv]`.

    Keys and values have an axis of 2 chunks in front, too; the mask is that of the whole sequence.
    """
    return _forward(axis_name, inputs)[0]


def _forward(axis_name: str, inputs: AttentionInputs) -> tuple[jax.Array, Any]:
    def merge(attend_block: BlockFunction, query_half: Any, key_half: Any) -> tuple[Attended, None]:
        (query, merged), (keys, _) = query_half, key_half
        part = attend_block(query, *keys, inputs.position_bias)
        residual = jnp.logaddexp(merged.residual, part.residual)
        shares = [_share(attended.residual, residual) for attended in (merged, part)]
        return Attended(merged.output * shares[0] + part.output * shares[1], residual), None

    query, keys = inputs.query, (inputs.key, inputs.value)
    rows, dtype = query.shape[:-1], at_least(query.dtype, jnp.float32)
    # Made from the query, so that they vary over the same mesh axes.
    nothing = Attended(
        output=jnp.zeros_like(query, dtype, (*rows, inputs.value.shape[-1])),
        residual=jnp.full_like(query, -jnp.inf, dtype, rows),
    )
    attended, _ = _go_round(axis_name, inputs, merge, query, keys, nothing, None)
    return attended.output, (inputs, attended)


def _backward(axis_name: str, saved: Any, cotangent: jax.Array) -> tuple[AttentionInputs]:
    inputs, (output, residual) = saved
    query, keys, bias = inputs.query, (inputs.key, inputs.value), inputs.position_bias
    # The whole output is the sum over blocks b of exp(r_b - r) O_b. With G the cotangent,
    #   dO_b = exp(r_b - r) G  and  dr_b = exp(r_b - r) (rowsum(G * O_b) - rowsum(G * O)).
    upstream = cotangent, (cotangent * output).sum(axis=-1), residual

    def add(attend_block: BlockFunction, query_half: Any, key_half: Any) -> tuple[Any, tuple]:
        ((query, upstream), sums), (keys, key_sums) = query_half, key_half
        cotangent, weighted, residual = upstream
        part, pull = jax.vjp(attend_block, query, *keys, bias)
        share = _share(part.residual, residual)
        along = (cotangent * part.output).sum(axis=-1) - weighted
        query_bar, *key_bars, bias_bar = pull(Attended(share * cotangent, share[..., 0] * along))
        sums = jax.tree.map(jnp.add, sums, (query_bar, bias_bar))
        return sums, jax.tree.map(jnp.add, key_sums, tuple(key_bars))

    # Each half of the queries has a sum for the bias.
    bias_halves = jax.tree.map(lambda x: jnp.stack([x, x]), bias)
    zeros = jax.tree.map(lambda x: jnp.zeros_like(x, output.dtype), ((query, bias_halves), keys))
    sums = _go_round(axis_name, inputs, add, (query, upstream), keys, *zeros)
    (query_bar, bias_bar), key_bars = sums
    arrays = jax.tree.map(lambda x: x.astype(query.dtype), (query_bar, *key_bars))
    cotangents: Any = dict(zip(("query", "key", "value"), arrays, strict=True))
    cotangents["position_bias"] = jax.tree.map(lambda x: x.sum(axis=0), bias_bar)
    return (dataclasses.replace(inputs, **cotangents, mask=None, dropout_rng=None),)


attend_rounds.defvjp(_forward, _backward)


def _go_round(
    axis_name: str, inputs: AttentionInputs,
    update: Callable[[BlockFunction, Any, Any], tuple[Any, Any]],
    queries: Any, keys: Keys, query_sums: Any, key_sums: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Updates both sums by each block while the keys go round the ring once.

    `query_sums` stay here as the queries do, `key_sums` go round with the keys; all have an axis of
    2 chunks in front. For a block, `update` gets one chunk of (queries, query_sums) and one of
    (keys, key_sums), and returns the new chunks of the sums.
    """
    device, size = jax.lax.axis_index(axis_name), jax.lax.axis_size(axis_name)
    mask, length = mask_parts(inputs.mask), inputs.key.shape[-3]
    kinds, branch_of = plan_blocks(mask, 2 * size, length)

    def skip(chunks: Any, query_half: Any, key_half: Any) -> Any:
        return query_half[1], key_half[1]

    def compute(kind: _BlockKind, chunks: Any, query_half: Any, key_half: Any) -> Any:
        # In float32 or 64, so that no block rounds its part of a sum.
        query_half, key_half = jax.tree.map(widened, (query_half, key_half))
        starts, rng = [chunk * length for chunk in chunks], inputs.dropout_rng
        if rng is not None:
            rng = jax.random.fold_in(rng, chunks[0] * 2 * size + chunks[1])
        block = dataclasses.replace(
            inputs, mask=_mask_of_block(mask, kind, *starts), offset=starts[0] - starts[1],
            dropout_rng=rng,
        )  # fmt: skip
        return update(functools.partial(_attend_chunks, block), query_half, key_half)

    # Devices are in different branches at a time, so that these must not communicate.
    branches: list[Any] = [skip, *(functools.partial(compute, kind) for kind in kinds)]

    def ring_step(state: Any, distance: jax.Array) -> tuple[Any, None]:
        keys, *sums = state
        source = (device - distance) % size  # whose keys are here

        def block_step(sums: Any, halves: Any) -> tuple[Any, None]:
            (query_sums, key_sums), (i, j) = sums, halves
            chunks = chunk_number(device, i, size), chunk_number(source, j, size)
            query_half, key_half = _half((queries, query_sums), i), _half((keys, key_sums), j)
            new = jax.lax.switch(branch_of[chunks], branches, chunks, query_half, key_half)
            return (_with_half(query_sums, new[0], i), _with_half(key_sums, new[1], j)), None

        pairs = jnp.array([0, 0, 1, 1]), jnp.array([0, 1, 0, 1])
        (query_sums, key_sums), _ = jax.lax.scan(block_step, tuple(sums), pairs)
        # Passing the keys on does not depend on the blocks, so the two can overlap. After the last
        # round the keys are back home.
        onward = [(i, (i + 1) % size) for i in range(size)]
        keys, key_sums = jax.lax.ppermute((keys, key_sums), axis_name, onward)
        return (keys, query_sums, key_sums), None

    state, _ = jax.lax.scan(ring_step, (keys, query_sums, key_sums), jnp.arange(size))
    return state[1:]


def _attend_chunks(
    inputs: AttentionInputs, query: jax.Array, key: jax.Array, value: jax.Array,
    bias: PositionBias | None,
) -> Attended:  # fmt: skip
    """Attention of one chunk of queries to one of keys."""
    inputs = dataclasses.replace(inputs, query=query, key=key, value=value, position_bias=bias)
    attended: Any = attention_program(inputs)(inputs)
    return Attended(*attended)


def _share(part: jax.Array, total: jax.Array) -> jax.Array:
    """Weight `[..., 1]` of a part in a merged output, from the log-sum-exp of both; 0 for -inf."""
    # If nothing is visible, -inf - -inf would be NaN.
    return jnp.where(total == -jnp.inf, 0, jnp.exp(part - total))[..., None]


def _half(tree: Any, index: jax.Array) -> Any:
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, index, keepdims=False), tree)


def _with_half(tree: Any, half: Any, index: jax.Array) -> Any:
    update = jax.lax.dynamic_update_index_in_dim
    return jax.tree.map(lambda x, part: update(x, part, index, 0), tree, half)


class _BlockKind(NamedTuple):
    """What the mask of a block needs, as far as ints tell; blocks of a kind share a program."""

    window: bool  # whether the window hides a part of the block
    rules: bool  # whether the other rules may
    is_diagonal: bool  # whether the offset of the window is known: that of equal positions


def plan_blocks(
    mask: MaskParts, num_chunks: int, length: int
) -> tuple[list[_BlockKind], jax.Array]:
    """The kinds of blocks; and of each block, int `[2n, 2n]`, 0 if hidden, or 1 + its kind."""
    kinds: dict[_BlockKind, int] = {}
    numbers = np.zeros((num_chunks, num_chunks), np.int32)
    window, rules = mask.window, _other_rules(mask)
    for chunks in np.ndindex(*numbers.shape):
        queries, keys = (range(chunk * length, (chunk + 1) * length) for chunk in chunks)
        if all(And((window, rules)).visible_part(queries, keys)):
            is_cut = _cuts(window, queries, keys)
            kind = _BlockKind(is_cut, bool(rules.rules), is_cut and queries == keys)
            numbers[chunks] = kinds.setdefault(kind, len(kinds) + 1)
    return [*kinds], jnp.where(_may_be_visible(mask, num_chunks, length), numbers, 0)


def _cuts(window: Window, queries: range, keys: range) -> bool:
    """Whether a window may hide a part of a block."""
    if not isinstance(window.offset, int):
        return True
    least, most = keys.start - queries[-1] - window.offset, keys[-1] - queries.start - window.offset
    return (window.left is not None and least < -window.left) or (
        window.right is not None and most > window.right
    )


def _mask_of_block(
    mask: MaskParts, kind: _BlockKind, first_query: jax.Array, first_key: jax.Array
) -> Mask | None:
    """The rule of a block whose queries and keys start at these positions."""
    # An int lets attention skip what lies above the diagonal.
    offset = mask.window.offset + (0 if kind.is_diagonal else first_query - first_key)
    window = Window(mask.window.left, mask.window.right, offset) if kind.window else None
    rules = Moved(_other_rules(mask), first_query, first_key) if kind.rules else None
    return all_rules(window, rules)


def _other_rules(mask: MaskParts) -> And:
    """All rules but the window."""
    segments = () if mask.segments is None else (mask.segments,)
    are_all_real = mask.lengths.queries is None and mask.lengths.keys is None
    return And((*(() if are_all_real else (mask.lengths,)), *segments, *mask.rules))


def _may_be_visible(mask: MaskParts, num_chunks: int, length: int) -> jax.Array:
    """Whether lengths and segments, also traced, leave a part of a block: bool `[2n, 2n]`."""
    starts, lengths = length * jnp.arange(num_chunks), (mask.lengths.queries, mask.lengths.keys)
    visible = jnp.ones((num_chunks, num_chunks), bool)
    for numbers, pattern in zip(lengths, ("c -> c 1", "c -> 1 c"), strict=True):
        if numbers is not None:
            visible &= rearrange(starts < jnp.max(jnp.asarray(numbers), initial=0), pattern)
    if mask.segments is None:
        return visible
    ids = mask.segments.query_ids, mask.segments.key_ids
    query, key = (rearrange(jnp.asarray(x), "... (c t) -> ... c t", t=length) for x in ids)
    query, key = query[..., :, None, :], key[..., None, :, :]  # [..., 2n, 1, t], [..., 1, 2n, t]
    overlaps = (query.min(-1) <= key.max(-1)) & (key.min(-1) <= query.max(-1))
    return visible & overlaps.any(axis=range(overlaps.ndim - 2))
