"""One round of ring attention: the blocks that a device visits, and what each computes."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

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
from jaxformer.functional.dtypes import at_least


class Ring(NamedTuple):
    """Options known at trace time; `size` is the number of devices on the axis, n."""

    axis_name: str
    size: int
    window: tuple[int | None, int | None]
    static: StaticOptions
    implementation: Implementation


class Queries(NamedTuple):
    """Queries of a device, `[2, ..., t, N, H]`, and their segments, `[2, ..., t]`.

    The leading axis of 2 is its chunks i and 2n - 1 - i.
    """

    query: jax.Array
    ids: jax.Array | None


class Keys(NamedTuple):
    """Keys `[2, ..., t, K, H]`, values `[2, ..., t, K, Hv]` and segments, which go round."""

    key: jax.Array
    value: jax.Array
    ids: jax.Array | None


class Shared(NamedTuple):
    """Arrays that are the same on all devices of the ring.

    Lengths are int, or int32 `[...]`, in tokens of the whole sequence; None = all are real.
    """

    query_lengths: int | jax.Array | None
    key_lengths: int | jax.Array | None
    rng: jax.Array | None


Chunks = tuple[jax.Array, jax.Array]
"""Indices of a chunk of queries and a chunk of keys, 0 to 2n - 1."""


def go_round(
    ring: Ring, shared: Shared, queries: Queries, keys: Keys, fixed: Any, own: Any, travelling: Any,
    compute: Callable[..., tuple[Any, Any]],
) -> tuple[Any, Any]:  # fmt: skip
    """Visits all blocks of this device's queries while the keys go round the ring once.

    `fixed` (which blocks read) and `own` (which they update) are trees of arrays with the leading
    axis of queries; `travelling` is one that goes round with the keys and is updated. `compute`
    gets a block kind, the indices of its chunks, and one half each of queries, keys, fixed, own and
    travelling, and returns the updated halves of own and travelling. It must not communicate,
    because other devices compute something else. Returns own and travelling, back on its device.
    """
    device, length = jax.lax.axis_index(ring.axis_name), keys.key.shape[-3]
    table = block_kinds(2 * ring.size, length, ring.window)
    kinds = sorted({HIDDEN, *table.tolist()})
    branches = [functools.partial(compute, kind) for kind in kinds[1:]]
    branch_of = jnp.asarray([kinds.index(kind) for kind in table.tolist()])

    def skip(
        chunks: Any, queries: Any, keys: Any, fixed: Any, own: Any, travelling: Any
    ) -> tuple[Any, Any]:
        return own, travelling

    def step(state: Any, distance: jax.Array) -> tuple[Any, None]:
        keys, own, travelling = state
        source = (device - distance) % ring.size

        def visit(state: Any, halves: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
            own, travelling = state
            mine, theirs = halves
            chunks = (
                chunk_number(device, mine, ring.size),
                chunk_number(source, theirs, ring.size),
            )
            own_queries, passing_keys = _half(queries, mine), _half(keys, theirs)
            visible = _any_visible(chunks, length, own_queries.ids, passing_keys.ids, shared)
            branch = branch_of[chunks[0] - chunks[1] + 2 * ring.size - 1]
            changed_own, changed_travelling = jax.lax.switch(
                jnp.where(visible, branch, 0), [skip, *branches],
                chunks, own_queries, passing_keys, _half(fixed, mine),
                _half(own, mine), _half(travelling, theirs),
            )  # fmt: skip
            own = _with_half(own, changed_own, mine)
            return (own, _with_half(travelling, changed_travelling, theirs)), None

        pairs = jnp.array([0, 0, 1, 1]), jnp.array([0, 1, 0, 1])
        (own, travelling), _ = jax.lax.scan(visit, (own, travelling), pairs)
        # Passing the keys on does not depend on the blocks, so the two can overlap. After the last
        # step the keys are back home.
        onward = [(i, (i + 1) % ring.size) for i in range(ring.size)]
        keys, travelling = jax.lax.ppermute((keys, travelling), ring.axis_name, onward)
        return (keys, own, travelling), None

    (_, own, travelling), _ = jax.lax.scan(step, (keys, own, travelling), jnp.arange(ring.size))
    return own, travelling


def _any_visible(
    chunks: Chunks, length: int, query_ids: jax.Array | None, key_ids: jax.Array | None,
    shared: Shared,
) -> bool | jax.Array:  # fmt: skip
    """Whether lengths and segments may leave a part of a block visible; never wrongly False."""
    visible: bool | jax.Array = True
    for chunk, lengths in zip(chunks, (shared.query_lengths, shared.key_lengths), strict=True):
        if lengths is not None:
            visible &= jnp.any(chunk * length < lengths)
    if query_ids is not None and key_ids is not None:
        overlap = query_ids.min(axis=-1) <= key_ids.max(axis=-1)
        visible &= jnp.any(overlap & (key_ids.min(axis=-1) <= query_ids.max(axis=-1)))
    return visible


def block_attention(
    ring: Ring, kind: int, chunks: Chunks, queries: Queries, keys: Keys, shared: Shared
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Attention of one block, with its residual, as a function of query, key and value."""
    query_chunk, key_chunk = chunks
    length, static = keys.key.shape[-3], ring.static
    rng = shared.rng
    if rng is not None:
        rng = jax.random.fold_in(rng, query_chunk * 2 * ring.size + key_chunk)

    def within(lengths: jax.Array | int | None, chunk: jax.Array) -> jax.Array | None:
        return None if lengths is None else lengths - chunk * length

    return functools.partial(
        _attention_with_residual,
        scale=static.scale,
        # The int 0 lets attention skip what lies above the diagonal.
        query_offset=0 if kind == DIAGONAL else (query_chunk - key_chunk) * length,
        query_seq_lengths=within(shared.query_lengths, query_chunk),
        key_value_seq_lengths=within(shared.key_lengths, key_chunk),
        local_window_size=None if kind == WHOLE else ring.window,
        query_segment_ids=queries.ids,
        key_value_segment_ids=keys.ids,
        softcap=static.softcap,
        dropout_rate=static.dropout_rate,
        dropout_rng=rng,
        implementation=ring.implementation,
    )


def _attention_with_residual(
    query: jax.Array, key: jax.Array, value: jax.Array, **options: Any
) -> tuple[jax.Array, jax.Array]:
    return dot_product_attention(query, key, value, return_residual=True, **options)


def wide(queries: Queries, keys: Keys) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Query, key and value in float32 or float64, so that no block rounds its part of a sum."""
    dtype = at_least(queries.query.dtype, jnp.float32)
    return queries.query.astype(dtype), keys.key.astype(dtype), keys.value.astype(dtype)


def share_of(part: jax.Array, total: jax.Array) -> jax.Array:
    """Weight `[..., 1]` of a part in a merged output, from the log-sum-exp of both; 0 for -inf."""
    # If nothing is visible, -inf - -inf would be NaN.
    return jnp.where(total == -jnp.inf, 0, jnp.exp(part - total))[..., None]


def _half(tree: Any, index: jax.Array) -> Any:
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, index, keepdims=False), tree)


def _with_half(tree: Any, half: Any, index: jax.Array) -> Any:
    return jax.tree.map(
        lambda x, part: jax.lax.dynamic_update_index_in_dim(x, part, index, 0), tree, half
    )


def varying(ring: Ring, tree: Any) -> Any:
    """Marks all arrays as varying over every mesh axis that one of them, or the ring index, is.

    Under jax.shard_map, loops and branches need the same marks on inputs and outputs. Values do
    not change; the gradient of an array that was the same everywhere is summed.
    """
    index = jax.lax.axis_index(ring.axis_name)
    axes = frozenset().union(*map(_varies_over, jax.tree.leaves((tree, index))))

    def mark(array: jax.Array) -> jax.Array:
        missing = tuple(sorted(axes - _varies_over(array)))
        return jax.lax.pcast(array, missing, to="varying") if missing else array

    return jax.tree.map(mark, tree)


def _varies_over(array: jax.Array) -> frozenset[str]:
    """Mesh axes over which an array is marked as varying; none if JAX does not track it."""
    return jax.typeof(array).manual_axis_type.varying
