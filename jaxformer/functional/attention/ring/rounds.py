"""The algorithm of ring attention: what a device computes while keys and values go round.

In round s, every device attends from its own queries to the keys of the device s places before it,
merges the result by the log-sum-exp of the scores, and passes the keys on. The backward pass goes
round once more; gradients of keys and values travel with them. So a device never holds more than
its own share and one in transit. Differentiating through the loop would keep the keys and values of
every round, which is the whole sequence. The price: the backward pass recomputes the output of
every block, not only its weights.

Axes: `2` the chunks of a device, `t` tokens of a chunk; N, K, H and Hv as in `dot_product.py`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.functional.attention.block import Attended, StaticOptions
from jaxformer.functional.attention.inputs import AttentionInputs, Implementation
from jaxformer.functional.attention.program import attention_program
from jaxformer.functional.attention.ring.blocks import BlockKind, mask_of_block, plan_blocks
from jaxformer.functional.attention.ring.order import chunk_number
from jaxformer.functional.dtypes import at_least, widened
from jaxformer.functional.masks.parts import MaskParts
from jaxformer.functional.positions.biases import PositionBias


class Ring(NamedTuple):
    """Options known at trace time."""

    axis_name: str
    size: int  # number of devices on the axis, n
    static: StaticOptions  # with the residual
    implementation: Implementation


class Keys(NamedTuple):
    """Keys and values of the chunks of a device, or their gradients."""

    key: jax.Array  # [2, ..., t, K, H]
    value: jax.Array  # [2, ..., t, K, Hv]


class Shared(NamedTuple):
    """What all devices have: the mask of the whole sequence, and the PRNG key of dropout."""

    mask: MaskParts
    rng: jax.Array | None


BlockFunction = Callable[..., Attended]
"""Attention of a block: of query `[..., t, N, H]`, key, value and bias, in float32 or 64."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(
    ring: Ring, query: jax.Array, keys: Keys, bias: PositionBias | None, shared: Shared
) -> jax.Array:
    """Attention of the queries `[2, ..., t, N, H]`: float32 or 64 `[2, ..., t, N, Hv]`."""
    return _forward(ring, query, keys, bias, shared)[0]


def _forward(
    ring: Ring, query: jax.Array, keys: Keys, bias: PositionBias | None, shared: Shared
) -> tuple[jax.Array, Any]:
    def merge(attend_block: BlockFunction, here: Any, passing: Any) -> tuple[Attended, None]:
        (query, so_far), (keys, _) = here, passing
        part = attend_block(query, *keys, bias)
        residual = jnp.logaddexp(so_far.residual, part.residual)
        shares = [_share(attended.residual, residual) for attended in (so_far, part)]
        return Attended(so_far.output * shares[0] + part.output * shares[1], residual), None

    rows, dtype = query.shape[:-1], at_least(query.dtype, jnp.float32)
    # Made from the query, so that they vary over the same mesh axes.
    nothing = Attended(
        output=jnp.zeros_like(query, dtype, (*rows, keys.value.shape[-1])),
        residual=jnp.full_like(query, -jnp.inf, dtype, rows),
    )
    attended, _ = _go_round(ring, shared, merge, query, keys, nothing, None)
    return attended.output, (query, keys, bias, shared, attended)


def _backward(ring: Ring, saved: Any, cotangent: jax.Array) -> tuple[Any, ...]:
    query, keys, bias, shared, (output, residual) = saved
    # The whole output is the sum over blocks b of exp(r_b - r) O_b. With G the cotangent,
    #   dO_b = exp(r_b - r) G  and  dr_b = exp(r_b - r) (rowsum(G * O_b) - rowsum(G * O)).
    upstream = cotangent, (cotangent * output).sum(axis=-1), residual

    def add(attend_block: BlockFunction, here: Any, passing: Any) -> tuple[Any, Keys]:
        ((query, upstream), sums), (keys, key_sums) = here, passing
        cotangent, weighted, residual = upstream
        part, pull = jax.vjp(attend_block, query, *keys, bias)
        share = _share(part.residual, residual)
        along = (cotangent * part.output).sum(axis=-1) - weighted
        query_bar, *key_bars, bias_bar = pull(Attended(share * cotangent, share[..., 0] * along))
        sums = jax.tree.map(jnp.add, sums, (query_bar, bias_bar))
        return sums, jax.tree.map(jnp.add, key_sums, Keys(*key_bars))

    # Each half of the queries has a sum for the bias.
    bias_halves = jax.tree.map(lambda x: jnp.stack([x, x]), bias)
    zeros = jax.tree.map(lambda x: jnp.zeros_like(x, output.dtype), ((query, bias_halves), keys))
    (query_bar, bias_bar), key_bars = _go_round(ring, shared, add, (query, upstream), keys, *zeros)
    query_bar, key_bars = jax.tree.map(lambda x: x.astype(query.dtype), (query_bar, key_bars))
    return query_bar, key_bars, jax.tree.map(lambda x: x.sum(axis=0), bias_bar), None


attend.defvjp(_forward, _backward)


def _go_round(
    ring: Ring, shared: Shared,
    update: Callable[[BlockFunction, Any, Any], tuple[Any, Any]],
    queries: Any, keys: Keys, resident: Any, travelling: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Updates `resident` and `travelling` by each block while the keys go round the ring once.

    `resident` stays here as the queries do, `travelling` goes round with the keys; all have an axis
    of 2 chunks in front. For a block, `update` gets one chunk of (queries, resident) and one of
    (keys, travelling), and returns the new chunks of `resident` and `travelling`.
    """
    device, size = jax.lax.axis_index(ring.axis_name), ring.size
    kinds, branch_of = plan_blocks(shared.mask, 2 * size, keys.key.shape[-3])

    def skip(chunks: Any, here: Any, passing: Any) -> Any:
        return here[1], passing[1]

    def compute(kind: BlockKind, chunks: Any, here: Any, passing: Any) -> Any:
        here, passing = jax.tree.map(widened, (here, passing))  # no block rounds its part of a sum
        return update(functools.partial(_attend_block, ring, shared, kind, chunks), here, passing)

    # Devices are in different branches at a time, so that these must not communicate.
    branches: list[Any] = [skip, *(functools.partial(compute, kind) for kind in kinds)]

    def one_round(state: Any, distance: jax.Array) -> tuple[Any, None]:
        keys, resident, travelling = state
        source = (device - distance) % size  # whose keys are here

        def one_block(sums: Any, halves: Any) -> tuple[Any, None]:
            (resident, travelling), (mine, theirs) = sums, halves
            chunks = chunk_number(device, mine, size), chunk_number(source, theirs, size)
            here, passing = _half((queries, resident), mine), _half((keys, travelling), theirs)
            new = jax.lax.switch(branch_of[chunks], branches, chunks, here, passing)
            resident = _with_half(resident, new[0], mine)
            return (resident, _with_half(travelling, new[1], theirs)), None

        pairs = jnp.array([0, 0, 1, 1]), jnp.array([0, 1, 0, 1])
        (resident, travelling), _ = jax.lax.scan(one_block, (resident, travelling), pairs)
        # Passing the keys on does not depend on the blocks, so the two can overlap. After the last
        # round the keys are back home.
        onward = [(i, (i + 1) % size) for i in range(size)]
        keys, travelling = jax.lax.ppermute((keys, travelling), ring.axis_name, onward)
        return (keys, resident, travelling), None

    state, _ = jax.lax.scan(one_round, (keys, resident, travelling), jnp.arange(size))
    return state[1:]


def _attend_block(
    ring: Ring, shared: Shared, kind: BlockKind, chunks: tuple[jax.Array, jax.Array],
    query: jax.Array, key: jax.Array, value: jax.Array, bias: PositionBias | None,
) -> Attended:  # fmt: skip
    """Attention of one chunk of queries to one of keys; chunks are their numbers, 0 to 2n - 1."""
    query_start, key_start = (chunk * query.shape[-3] for chunk in chunks)
    mask, rng = mask_of_block(shared.mask, kind, query_start, key_start), shared.rng
    if rng is not None:
        rng = jax.random.fold_in(rng, chunks[0] * 2 * ring.size + chunks[1])
    offset = query_start - key_start
    inputs = AttentionInputs(query, key, value, None, bias, mask, offset, ring.static)
    attended: Any = attention_program(ring.implementation, inputs)(inputs, rng)
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
