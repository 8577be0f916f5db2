"""Checksums of arrays, to compare copies on several devices."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.errors import TrainingError

__all__ = ["checksum_range", "drifted"]


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


def drifted() -> TrainingError:
    """Error raised when copies on several devices differ."""
    return TrainingError(
        "the devices' copies of the parameters have drifted apart; either a value that differs "
        "between devices was not reduced, or a device computes wrongly"
    )
