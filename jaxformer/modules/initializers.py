"""Initializers and dtype of module parameters."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ModelConfig

__all__ = ["kernel_init", "param_dtype", "residual_init"]


def kernel_init(config: ModelConfig) -> jax.nn.initializers.Initializer:
    """Normal with standard deviation `init_std`, for embeddings and most projections."""
    return nn.initializers.normal(config.init_std)


def residual_init(config: ModelConfig, sublayers: int) -> jax.nn.initializers.Initializer:
    """Normal with std `init_std` / sqrt(number of residual projections), for those projections.

    Each adds its variance to the residual stream (Radford et al., GPT-2, 2019, section 2.3).

    Args:
        config: the model.
        sublayers: residual projections per layer: 2, or 3 with cross-attention.
    """
    return nn.initializers.normal(config.init_std / (sublayers * config.num_layers) ** 0.5)


def param_dtype(config: ModelConfig) -> jnp.dtype:
    """Dtype of the parameters."""
    return jnp.dtype(config.param_dtype)
