"""The algorithm of ring attention: what a device computes while keys and values go round.

In step s, every device attends from its own queries to the keys of the device s places before it,
merges the result by the log-sum-exp of the scores, and passes the keys on. The backward pass goes
round once more; gradients of keys and values travel with them. So a device never holds more than
its own share and one in transit. Differentiating through the loop would keep the keys and values of
every step, which is the whole sequence. The price: the backward pass recomputes the output of every
block, not only its weights.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jaxformer.functional.attention.block import StaticOptions
from jaxformer.functional.attention.dot_product import dot_product_attention
from jaxformer.functional.attention.inputs import Implementation
from jaxformer.functional.attention.ring.order import (
    DIAGONAL,
    HIDDEN,
    WHOLE,
    block_kinds,
    chunk_number,
)
from jaxformer.functional.dtypes import at_least, widened

Resident = TypeVar("Resident")
Travelling = TypeVar("Travelling")
Tree = TypeVar("Tree")


class Ring(NamedTuple):
    """Options known at trace time; `size` is the number of devices on the axis, n."""

    axis_name: str
    size: int
    window: tuple[int | None, int | None]
    static: StaticOptions
    implementation: Implementation


class Queries(NamedTuple):
    """Queries `[2, ..., t, N, H]` of a device's two chunks, or their gradient; a block has one."""

    query: jax.Array
    ids: jax.Array | None = None


class Keys(NamedTuple):
    """Keys `[2, ..., t, K, H]`, values `[2, ..., t, K, Hv]`, or their gradients, and segments."""

    key: jax.Array
    value: jax.Array
    ids: jax.Array | None = None


class Shared(NamedTuple):
    """Lengths in the whole sequence, int or int32 `[...]`, None = all are real; the dropout key."""

    query_lengths: int | jax.Array | None
    key_lengths: int | jax.Array | None
    rng: jax.Array | None


class Attended(NamedTuple):
    """Output `[2, ..., t, N, Hv]` and log-sum-exp `[2, ..., t, N]` over the keys so far."""

    output: jax.Array
    residual: jax.Array


class _Upstream(NamedTuple):
    """Cotangent G of the output O, with rowsum(G * O) and the log-sum-exp over all keys."""

    cotangent: jax.Array
    weighted: jax.Array
    residual: jax.Array


class _Block(NamedTuple):
    """One chunk of this device's queries and one of the passing keys; chunks are 0 to 2n - 1."""

    query_half: jax.Array
    query_chunk: jax.Array
    key_chunk: jax.Array
    queries: Queries
    keys: Keys


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(ring: Ring, queries: Queries, keys: Keys, shared: Shared) -> jax.Array:
    """Attention in halves: float32 or float64 `[2, ..., t, N, Hv]`."""
    return _forward(ring, queries, keys, shared)[0]


def _forward(
    ring: Ring, queries: Queries, keys: Keys, shared: Shared
) -> tuple[jax.Array, tuple[Queries, Keys, Shared, Attended]]:
    rows, width = queries.query.shape[:-1], keys.value.shape[-1]
    dtype = at_least(queries.query.dtype, jnp.float32)
    # Made from the query, so that they vary over the same mesh axes.
    nothing = Attended(
        output=jnp.zeros_like(queries.query, dtype, (*rows, width)),
        residual=jnp.full_like(queries.query, -jnp.inf, dtype, rows),
    )

    def merge(
        kind: int, block: _Block, resident: Attended, travelling: None
    ) -> tuple[Attended, None]:
        part = _block_attention(ring, kind, block, shared)(*_wide(block))
        total = jnp.logaddexp(resident.residual, part.residual)
        shares = _share(resident.residual, total), _share(part.residual, total)
        return Attended(resident.output * shares[0] + part.output * shares[1], total), None

    attended, _ = _go_round(ring, queries, keys, shared, nothing, None, merge)
    return attended.output, (queries, keys, shared, attended)


def _backward(
    ring: Ring, saved: tuple[Queries, Keys, Shared, Attended], cotangent: jax.Array
) -> tuple[Queries, Keys, None]:
    queries, keys, shared, (output, residual) = saved
    # The whole output is the sum over blocks b of exp(r_b - r) O_b. With G the cotangent,
    #   dO_b = exp(r_b - r) G  and  dr_b = exp(r_b - r) (rowsum(G * O_b) - rowsum(G * O)).
    upstream = _Upstream(cotangent, (cotangent * output).sum(axis=-1), residual)

    def add(kind: int, block: _Block, resident: Queries, travelling: Keys) -> tuple[Queries, Keys]:
        cotangent, weighted, residual = _half(upstream, block.query_half)
        part, pull = jax.vjp(_block_attention(ring, kind, block, shared), *_wide(block))
        share = _share(part.residual, residual)
        along = (cotangent * part.output).sum(axis=-1) - weighted
        query, key, value = pull(Attended(share * cotangent, share[..., 0] * along))
        return Queries(resident.query + query), Keys(travelling.key + key, travelling.value + value)

    query, key, value = (
        jnp.zeros_like(x, output.dtype) for x in (queries.query, keys.key, keys.value)
    )
    gradients = _go_round(ring, queries, keys, shared, Queries(query), Keys(key, value), add)
    return (*jax.tree.map(lambda x: x.astype(queries.query.dtype), gradients), None)


attend.defvjp(_forward, _backward)


def _go_round(
    ring: Ring, queries: Queries, keys: Keys, shared: Shared,
    resident: Resident, travelling: Travelling,
    compute: Callable[[int, _Block, Resident, Travelling], tuple[Resident, Travelling]],
) -> tuple[Resident, Travelling]:  # fmt: skip
    """Visits all blocks of this device's queries while the keys go round the ring once."""
    # `resident`, in halves as the queries, stays here; `travelling` goes round with the keys.
    # `compute` updates a half of both. It must not communicate: devices compute different kinds.
    device, size, length = jax.lax.axis_index(ring.axis_name), ring.size, keys.key.shape[-3]
    # One branch for each kind of block that occurs, the first for those that are skipped. The kind
    # of a block depends on the device, which is known only while the program runs.
    table = block_kinds(2 * size, length, ring.window)
    kinds = sorted({HIDDEN, *table.tolist()})
    branch_of = jnp.asarray([kinds.index(kind) for kind in table.tolist()])
    branches = [lambda block, resident, travelling: (resident, travelling)]
    branches += [functools.partial(compute, kind) for kind in kinds[1:]]

    def step(state: tuple[Keys, Resident, Travelling], distance: jax.Array) -> tuple[Any, None]:
        keys, resident, travelling = state
        source = (device - distance) % size

        def visit(state: tuple[Resident, Travelling], halves: tuple[Any, Any]) -> tuple[Any, None]:
            resident, travelling = state
            mine, theirs = halves
            block = _Block(
                mine, chunk_number(device, mine, size), chunk_number(source, theirs, size),
                _half(queries, mine), _half(keys, theirs),
            )  # fmt: skip
            branch = branch_of[block.query_chunk - block.key_chunk + 2 * size - 1]
            branch = jnp.where(_any_visible(block, shared), branch, 0)
            changed = _half(resident, mine), _half(travelling, theirs)
            changed = jax.lax.switch(branch, branches, block, *changed)
            resident = _with_half(resident, changed[0], mine)
            return (resident, _with_half(travelling, changed[1], theirs)), None

        pairs = jnp.array([0, 0, 1, 1]), jnp.array([0, 1, 0, 1])
        (resident, travelling), _ = jax.lax.scan(visit, (resident, travelling), pairs)
        # Passing the keys on does not depend on the blocks, so the two can overlap. After the last
        # step the keys are back home.
        onward = [(i, (i + 1) % size) for i in range(size)]
        keys, travelling = jax.lax.ppermute((keys, travelling), ring.axis_name, onward)
        return (keys, resident, travelling), None

    (_, resident, travelling), _ = jax.lax.scan(
        step, (keys, resident, travelling), jnp.arange(size)
    )
    return resident, travelling


def _any_visible(block: _Block, shared: Shared) -> bool | jax.Array:
    """Whether lengths and segments may leave a part of a block visible; never wrongly False."""
    visible: bool | jax.Array = True
    length, query_ids, key_ids = block.keys.key.shape[-3], block.queries.ids, block.keys.ids
    if shared.query_lengths is not None:
        visible &= jnp.any(block.query_chunk * length < shared.query_lengths)
    if shared.key_lengths is not None:
        visible &= jnp.any(block.key_chunk * length < shared.key_lengths)
    if query_ids is not None and key_ids is not None:
        overlap = query_ids.min(axis=-1) <= key_ids.max(axis=-1)
        visible &= jnp.any(overlap & (key_ids.min(axis=-1) <= query_ids.max(axis=-1)))
    return visible


def _block_attention(
    ring: Ring, kind: int, block: _Block, shared: Shared
) -> Callable[..., Attended]:
    """Attention of one block as a function of query, key and value."""
    length, rng = block.keys.key.shape[-3], shared.rng
    if rng is not None:
        rng = jax.random.fold_in(rng, block.query_chunk * 2 * ring.size + block.key_chunk)

    def within(lengths: jax.Array | int | None, chunk: jax.Array) -> jax.Array | None:
        return None if lengths is None else lengths - chunk * length

    def attend_block(query: jax.Array, key: jax.Array, value: jax.Array) -> Attended:
        return Attended(*dot_product_attention(
            query, key, value,
            scale=ring.static.scale,
            # The int 0 lets attention skip what lies above the diagonal.
            query_offset=0 if kind == DIAGONAL else (block.query_chunk - block.key_chunk) * length,
            query_seq_lengths=within(shared.query_lengths, block.query_chunk),
            key_value_seq_lengths=within(shared.key_lengths, block.key_chunk),
            local_window_size=None if kind == WHOLE else ring.window,
            query_segment_ids=block.queries.ids,
            key_value_segment_ids=block.keys.ids,
            softcap=ring.static.softcap,
            dropout_rate=ring.static.dropout_rate,
            dropout_rng=rng,
            implementation=ring.implementation,
            return_residual=True,
        ))  # fmt: skip

    return attend_block


def _wide(block: _Block) -> list[jax.Array]:
    """Query, key and value in float32 or float64, so that no block rounds its part of a sum."""
    return [widened(x) for x in (block.queries.query, block.keys.key, block.keys.value)]


def _share(part: jax.Array, total: jax.Array) -> jax.Array:
    """Weight `[..., 1]` of a part in a merged output, from the log-sum-exp of both; 0 for -inf."""
    # If nothing is visible, -inf - -inf would be NaN.
    return jnp.where(total == -jnp.inf, 0, jnp.exp(part - total))[..., None]


def _half(tree: Tree, index: jax.Array) -> Tree:
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, index, keepdims=False), tree)


def _with_half(tree: Tree, half: Tree, index: jax.Array) -> Tree:
    update = jax.lax.dynamic_update_index_in_dim
    return jax.tree.map(lambda x, part: update(x, part, index, 0), tree, half)
