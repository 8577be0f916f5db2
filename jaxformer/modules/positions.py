"""Positions that are added to the embeddings, and the tables of those that rotate the heads."""

import jax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.functional.embedding import embed
from jaxformer.functional.positions import rotary_tables, sinusoidal_positions
from jaxformer.modules.initializers import kernel_init, param_dtype

__all__ = ["AddPositions", "rotary_for"]


class AddPositions(nn.Module):
    """Adds learned or sinusoidal positions; returns x as it is for kinds that act elsewhere.

    Args:
        config: kind, width and max_len.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(
        ...     max_len=8, num_layers=1, d_model=4, num_heads=2, positions="sinusoidal"
        ... )
        >>> AddPositions(config).apply({}, jnp.zeros((1, 3, 4)), jnp.arange(3)[None]).shape
        (1, 3, 4)
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Adds the encoding of integer `[B, T]` to float `[B, T, D]`.

        A position outside a learned table gives NaN, never another position's row.
        """
        config = self.config
        if config.positions == "learned":
            shape = (config.max_len, config.d_model)
            table = self.param("embedding", kernel_init(config), shape, param_dtype(config))
            return x + embed(table, positions).astype(x.dtype)
        if config.positions == "sinusoidal":
            return x + sinusoidal_positions(positions, config.d_model).astype(x.dtype)
        return x


def rotary_for(config: ModelConfig, positions: jax.Array) -> tuple[jax.Array, jax.Array] | None:
    """Computes the rotary tables of all layers at once.

    Args:
        config: kind of positions, head width and base.
        positions: integer `[B, T]`.

    Returns:
        (cos, sin), float32 `[B, T, H/2]`; None when the model's positions are of another kind.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(max_len=8, num_layers=1, d_model=4, num_heads=2)
        >>> [table.shape for table in rotary_for(config, jnp.arange(3)[None])]
        [(1, 3, 1), (1, 3, 1)]
    """
    if config.positions != "rotary":
        return None
    return rotary_tables(positions, config.key_dim, base=config.rotary_base)
