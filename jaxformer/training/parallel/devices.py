"""The devices of a runner: their memory, and checksums that compare their copies."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.memory import device_memory

__all__ = ["checksum_range", "least_memory", "num_hosts", "one_at_a_time"]


def num_hosts(devices: Sequence[jax.Device]) -> int:
    """Number of hosts that the devices are on."""
    return len({device.process_index for device in devices})


def least_memory(devices: Sequence[jax.Device]) -> int:
    """Bytes of memory per device of a host; virtual CPU devices share the host's memory."""
    shared = len(devices) if devices[0].platform == "cpu" else 1
    return min(map(device_memory, devices)) // shared


def one_at_a_time(devices: Sequence[jax.Device]) -> Callable[[Any], Any]:
    """Function to call on each program's result; it blocks if programs could deadlock.

    Virtual CPU devices share one thread pool, where a device at a collective waits for the others.
    Two programs in flight, such as two evaluation batches, can fill the pool with waiting devices:
    a deadlock. So with several such devices, each program must finish before the next.
    """
    if len(devices) > 1 and devices[0].platform == "cpu":
        return jax.block_until_ready
    return lambda result: result


def _checksum(leaf: jax.Array) -> jax.Array:
    """Sum of hashes of an array's bits and positions; so NaNs can be equal, and 0 differs from -0.

    In a plain sum of the bits, flipped signs, doublings and exchanged rows could cancel. The hash
    is the finalizer of MurmurHash3 (Appleby, 2011), in which every bit depends on every bit.
    """
    if jnp.iscomplexobj(leaf):
        leaf = jnp.stack([leaf.real, leaf.imag])
    if leaf.dtype == bool:
        leaf = leaf.astype(jnp.uint8)
    words = {1: jnp.uint8, 2: jnp.uint16}.get(leaf.dtype.itemsize, jnp.uint32)  # two for 8 bytes
    bits = jax.lax.bitcast_convert_type(leaf, words).astype(jnp.uint32).ravel()
    bits ^= jnp.arange(bits.size, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ (bits >> shift)) * jnp.uint32(factor)
    return (bits ^ (bits >> 16)).sum(dtype=jnp.uint32)


def checksum_range(leaf: jax.Array, axis_names: Any) -> jax.Array:
    """Largest minus smallest checksum over mapped axes of devices; 0 if all hold the same."""
    own = _checksum(leaf)
    return jax.lax.pmax(own, axis_names) - jax.lax.pmin(own, axis_names)
