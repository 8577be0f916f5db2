"""Copies of parameters on several devices, compared by checksums."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from jaxformer.errors import TrainingError


def check_replicas(leaves: Sequence[jax.Array], run: Callable[..., Any]) -> None:
    """Raises TrainingError if copies on a mesh differ in any bit; `run` calls a program."""
    shardings: list[Any] = [leaf.sharding for leaf in leaves]
    specs = tuple(sharding.spec for sharding in shardings)
    if np.asarray(run(_checksum_ranges(shardings[0].mesh, specs), leaves)).any():
        raise TrainingError(
            "the devices' copies of the parameters have drifted apart; either a value that "
            "differs between devices was not reduced, or a device computes wrongly"
        )


@functools.cache
def _checksum_ranges(mesh: Mesh, specs: tuple[PartitionSpec, ...]) -> Callable[..., jax.Array]:
    """Compiled function of leaves: range of the checksums over devices with the same part."""

    def ranges(leaves: Sequence[jax.Array]) -> jax.Array:
        spans = []
        for leaf, spec in zip(leaves, specs, strict=True):
            checksum = _checksum(leaf)
            shared = tuple(axis for axis in mesh.axis_names if axis not in spec)
            spans.append(jax.lax.pmax(checksum, shared) - jax.lax.pmin(checksum, shared))
        # Along the other axes are other parts, which may differ, too.
        return jax.lax.pmax(jnp.stack(spans), mesh.axis_names)

    return jax.jit(
        jax.shard_map(
            ranges, mesh=mesh, in_specs=(list(specs),), out_specs=PartitionSpec(), check_vma=False
        )
    )


def _checksum(leaf: jax.Array) -> jax.Array:
    """Sum of hashes of bits and their positions: NaNs can be equal, and 0 differs from -0."""
    # In a plain sum of the bits, flipped signs, doublings and exchanged rows could cancel. The hash
    # is the finalizer of MurmurHash3 (Appleby, 2011), in which every bit depends on every bit.
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
