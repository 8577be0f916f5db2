"""Normalization modules."""

import jax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.functional.dtypes import widened
from jaxformer.functional.normalization import layer_norm, rms_norm
from jaxformer.modules.initializers import bias_param, named_param


def norm_scale(module: nn.Module, name: str, config: ModelConfig, width: int) -> jax.Array:
    """Declares the scale of a norm, and returns it as float `[width]`."""
    if not config.zero_centered_norm:
        return named_param(module, name, config, ("norm",), width, init=nn.initializers.ones)
    stored = bias_param(module, name, config, ("norm",), width)
    return 1 + widened(stored)  # in bfloat16, a small number would lose its low bits


class Norm(nn.Module):
    """Layer norm or RMS norm over the last axis, depending on the config.

    Args:
        config: kind, epsilon, whether there is a scale and (layer norm only) a bias, and whether
            scales are stored minus 1.

    Example:
        >>> import jax.numpy as jnp
        >>> norm = Norm(ModelConfig(max_len=8, num_layers=1, d_model=4, num_heads=2))
        >>> variables = norm.init(jax.random.key(0), jnp.ones((2, 4)))
        >>> sorted(variables["params"])
        ['bias', 'scale']
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalizes float `[..., D]`; keeps shape and dtype."""
        config, shape = self.config, x.shape[-1:]
        scale = norm_scale(self, "scale", config, *shape) if config.norm_scale else None
        if config.norm == "rms_norm":
            return rms_norm(x, scale, eps=config.norm_eps)
        has_bias = config.has_bias("norm")
        bias = bias_param(self, "bias", config, ("norm",), *shape) if has_bias else None
        return layer_norm(x, scale, bias, eps=config.norm_eps)
