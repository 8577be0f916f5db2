"""Checksums of arrays, to compare the copies that devices hold of them."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.errors import TrainingError

__all__ = ["checksum_range", "drifted"]


def _checksum(leaf: jax.Array) -> jax.Array:
    """Sum of an array's bits as uint32; unlike floats, it compares NaNs, and 0 with -0."""
    width = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}[leaf.dtype.itemsize]
    return jax.lax.bitcast_convert_type(leaf, width).astype(jnp.uint32).sum(dtype=jnp.uint32)


def checksum_range(leaf: jax.Array, axis_names: Any) -> jax.Array:
    """Largest minus smallest checksum over mapped axes of devices; 0 where all hold the same."""
    own = _checksum(leaf)
    return jax.lax.pmax(own, axis_names) - jax.lax.pmin(own, axis_names)


def drifted() -> TrainingError:
    """Error of copies that must be the same and are not."""
    return TrainingError(
        "the devices' copies of the parameters have drifted apart; a value that differs by device "
        "was not reduced, or a device computes wrongly"
    )
