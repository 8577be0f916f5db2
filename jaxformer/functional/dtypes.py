"""Dtypes for computing results."""

import jax
import jax.numpy as jnp

__all__ = ["at_least"]


def at_least(dtype: jax.typing.DTypeLike, least: jax.typing.DTypeLike) -> jnp.dtype:
    """Promotes a dtype to one that also holds all values of `least`.

    `jnp.promote_types` by the standard rules, even under `jax.numpy_dtype_promotion("strict")`:
    this promotion is explicit.

    Args:
        dtype: dtype of an array.
        least: such as float32, for the statistics of a norm.

    Returns:
        A dtype.

    Example:
        >>> [at_least(dtype, jnp.float32).name for dtype in ("bfloat16", "float32", "float64")]
        ['float32', 'float32', 'float64']
    """
    with jax.numpy_dtype_promotion("standard"):
        return jnp.promote_types(dtype, least)
