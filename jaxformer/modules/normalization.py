"""Normalization with its parameters."""

import jax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.functional.normalization import layer_norm, rms_norm
from jaxformer.modules.initializers import param_dtype

__all__ = ["Norm"]


class Norm(nn.Module):
    """Layer norm or RMS norm over the last axis, as the config says.

    Args:
        config: kind, epsilon and whether layer norm has a bias.

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
        """Normalizes float `[..., D]`; the shape and dtype stay."""
        config, shape = self.config, x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, shape, param_dtype(config))
        if config.norm == "rms_norm":
            return rms_norm(x, scale, eps=config.norm_eps)
        bias = None
        if config.use_bias:
            bias = self.param("bias", nn.initializers.zeros, shape, param_dtype(config))
        return layer_norm(x, scale, bias, eps=config.norm_eps)
