"""Dtypes in which results are computed."""

import jax
import jax.numpy as jnp


def at_least(dtype: jax.typing.DTypeLike, least: jax.typing.DTypeLike) -> jnp.dtype:
    """Dtype that holds all values of two dtypes."""
    # Also under `jax.numpy_dtype_promotion("strict")`, since this promotion is explicit.
    with jax.numpy_dtype_promotion("standard"):
        return jnp.promote_types(dtype, least)


def as_int32(array: jax.Array) -> jax.Array:
    """Integers as int32; those beyond its range become the nearest in it, instead of wrapping."""
    source, target = jnp.iinfo(array.dtype), jnp.iinfo(jnp.int32)
    lowest, highest = max(source.min, target.min), min(source.max, target.max)
    return array.clip(lowest, highest).astype(jnp.int32)


def widened(x: jax.Array) -> jax.Array:
    """`x` in float32, or unchanged if it is float64."""
    return x.astype(at_least(x.dtype, jnp.float32))
