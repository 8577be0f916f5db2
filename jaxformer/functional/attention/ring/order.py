"""Ring order: the zigzag order of a sequence over the devices of ring attention.

The sequence is cut into 2n chunks for n devices; device i holds chunks i and 2n - 1 - i. In causal
attention every device then computes 2n + 1 blocks (a chunk of queries by a chunk of keys), two in
each ring step except its first, so none waits for another. In the original order, the last device
would compute 2n - 1 times as much as the first. Striped order (device i holds tokens i, i + n, ...;
Brandon et al., "Striped Attention", 2023) is as balanced, but puts a diagonal in every block: no
block can be skipped (by causality, window or segment) or computed without a mask.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.checks import Array, as_array, check_size, is_int


def to_ring_order(x: Array, num_devices: int, *, axis: int = 1) -> Array:
    """Reorders a sequence into ring order, for splitting over devices with `ring_attention`.

    Reorder tokens, labels, loss weights and segment ids of a batch once, on the host, before you
    call a model. Then no layer has to move a token to another device.

    Args:
        x: any array with a sequence axis of size T, such as tokens `[B, T]`; a NumPy array stays
            one.
        num_devices: n, size of the mesh axis that the sequence is split over.
        axis: the sequence axis.

    Returns:
        The array with that axis reordered: slice i of n has the chunks i and 2n - 1 - i of 2n.

    Raises:
        ShapeError: T is not a multiple of 2n, or the array has no such axis.

    References:
        Zhu, "ring-flash-attention", 2024 (zigzag); Dubey et al., "The Llama 3 Herd of Models",
        2024, section 3.3.2.

    Example:
        >>> to_ring_order(np.arange(8), 2, axis=0).tolist()
        [0, 1, 6, 7, 2, 3, 4, 5]
    """
    return _reordered(x, num_devices, axis, inverse=False)


def from_ring_order(x: Array, num_devices: int, *, axis: int = 1) -> Array:
    """Restores the original order of a sequence; inverse of `to_ring_order`.

    Args:
        x: any array in ring order, such as logits `[B, T, V]`.
        num_devices: n.
        axis: the sequence axis.

    Returns:
        The array with that axis in its original order.

    Raises:
        ShapeError: T is not a multiple of 2n, or the array has no such axis.

    Example:
        >>> from_ring_order(np.array([0, 1, 6, 7, 2, 3, 4, 5]), 2, axis=0).tolist()
        [0, 1, 2, 3, 4, 5, 6, 7]
    """
    return _reordered(x, num_devices, axis, inverse=True)


def ring_positions(num_tokens: int, *, axis_name: str) -> jax.Array:
    """Positions of the tokens that this device holds in ring order.

    Use them as the positions of a model that runs under a mapped axis. Outside a mapped axis, the
    positions of all tokens are `to_ring_order(np.arange(T), n, axis=0)`.

    Args:
        num_tokens: number of tokens on this device, T / n.
        axis_name: the mapped axis that the sequence is split over.

    Returns:
        int32 `[num_tokens]`.

    Raises:
        ShapeError: num_tokens is odd.
        ConfigError: there is no such mapped axis.

    Example:
        >>> jax.vmap(
        ...     lambda _: ring_positions(4, axis_name="sequence"), axis_name="sequence"
        ... )(jnp.zeros(2)).tolist()
        [[0, 1, 6, 7], [2, 3, 4, 5]]
    """
    size = mapped_size(axis_name)
    num_tokens = check_size("num_tokens", num_tokens)
    if num_tokens % 2:
        raise ShapeError(f"num_tokens must be even, for two chunks a device, got {num_tokens}")
    first = jax.lax.axis_index(axis_name) * num_tokens
    slots = first + jnp.arange(num_tokens, dtype=jnp.int32)
    return places_of_slots(slots, size * num_tokens, size)


def exchange_chunks(x: jax.Array, *, axis_name: str, back: bool = False) -> jax.Array:
    """Moves this device's slice `[B, T/n, ...]` from original order into ring order, or back."""
    size = jax.lax.axis_size(axis_name)
    # Device i holds the chunks 2i and 2i + 1 in original order, and i and 2n - 1 - i in ring order,
    # where the even one comes first if i is even.
    is_even = jax.lax.axis_index(axis_name) % 2 == 0

    def swapped_if_odd(chunks: Any) -> list[Any]:
        return [jnp.where(is_even, *pair) for pair in (chunks, chunks[::-1])]

    def send(chunk: jax.Array, parity: int) -> jax.Array:
        numbers = range(parity, 2 * size, 2)
        routes = [(i, min(number, 2 * size - 1 - number)) for i, number in enumerate(numbers)]
        routes = [route[::-1] for route in routes] if back else routes
        return jax.lax.ppermute(chunk, axis_name, routes)

    chunks = jnp.split(x, 2, axis=1)
    chunks = swapped_if_odd(chunks) if back else chunks
    chunks = [send(chunk, parity) for parity, chunk in enumerate(chunks)]
    return jnp.concatenate(chunks if back else swapped_if_odd(chunks), axis=1)


def mapped_size(axis_name: str) -> int:
    """Size of a mapped axis; ConfigError if there is none of this name."""
    try:
        if not isinstance(axis_name, str):
            raise NameError
        return jax.lax.axis_size(axis_name)
    except NameError:
        raise ConfigError(
            "axis_name must name a mapped axis, such as a mesh axis under jax.shard_map, got "
            f"{axis_name!r}, which is not mapped; sharded_ring_attention maps global arrays itself"
        ) from None


def places_of_slots(slots: Array, num_tokens: int, size: int) -> Any:
    """Places in the original order of the tokens at these slots of ring order."""
    length = num_tokens // (2 * size)
    chunk, within = slots // length, slots % length
    return chunk_number(chunk // 2, chunk % 2, size) * length + within


def chunk_number(device: Any, half: Any, size: int) -> Any:
    """Index, 0 to 2n - 1, of the chunk that a device holds as its half 0 or 1."""
    return device + half * (2 * size - 1 - 2 * device)


def _reordered(x: Array, num_devices: int, axis: int, *, inverse: bool) -> Array:
    num_devices = check_size("num_devices", num_devices)
    x = x if isinstance(x, np.ndarray) else as_array("x", x)
    if not is_int(axis) or not -x.ndim <= axis < x.ndim:
        raise ShapeError(f"axis must be one of x, of shape {x.shape}, got {axis!r}")
    length = x.shape[axis]
    if length % (2 * num_devices):
        raise ShapeError(
            f"x must have a multiple of {2 * num_devices} tokens on axis {axis}, two chunks for "
            f"each of num_devices={num_devices}, got shape {x.shape}; pad it"
        )
    order = places_of_slots(np.arange(length), length, num_devices)
    order = np.argsort(order) if inverse else order
    return x[(slice(None),) * (axis % x.ndim) + (order,)]
