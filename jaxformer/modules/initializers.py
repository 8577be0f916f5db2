"""Initializers and dtype of module parameters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.functional.dtypes import at_least


def normal_init(config: ModelConfig) -> jax.nn.initializers.Initializer:
    """Normal with standard deviation `init_std`, for embeddings."""
    return _normal(config.init_std)


def _normal(std: float) -> jax.nn.initializers.Initializer:
    draw = nn.initializers.normal(std)

    # Drawn in float32 or wider, then rounded: draws in bfloat16 have 128 different values, with a
    # mean of -0.012 standard deviations.
    def init(
        key: jax.Array, shape: Any, dtype: Any = jnp.float32, out_sharding: Any = None
    ) -> jax.Array:
        wide = at_least(dtype, jnp.float32)
        return draw(key, shape, wide, out_sharding=out_sharding).astype(dtype)

    return init


def kernel_param(
    module: nn.Module,
    name: str,
    config: ModelConfig,
    shape: Callable[[ModelConfig], tuple[int, ...]],
    *,
    sublayers: int | None = None,
) -> jax.Array:
    """Declares a kernel `[..., in, out]`, of shape `shape(config)`; normal with std `init_std`."""
    # With μP, that is the std in the base model: for an input that is r times as wide, it is
    # divided by sqrt(r), or by r if the output does not grow (Yang et al., 2022, tables 3 and 8).
    sizes, base = shape(config), shape(config.base)
    ratio = sizes[-2] / base[-2]
    std = config.init_std / (ratio if sizes[-1] == base[-1] else ratio**0.5)
    if sublayers is not None:
        # Each projection into the residual stream adds its variance (GPT-2, section 2.3).
        std /= (sublayers * config.num_layers) ** 0.5
    return module.param(name, _normal(std), sizes, param_dtype(config))


def bias_param(module: nn.Module, name: str, config: ModelConfig, *shape: int) -> jax.Array:
    """Declares a bias in a module, 0 at first, and returns its value."""
    return module.param(name, nn.initializers.zeros, shape, param_dtype(config))


def param_dtype(config: ModelConfig) -> jnp.dtype:
    """Dtype of the parameters."""
    return jnp.dtype(config.param_dtype)
