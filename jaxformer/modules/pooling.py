"""Pooling of a sequence to one vector, with an optional projection."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.functional.dtypes import widened
from jaxformer.functional.feed_forward import activation_function
from jaxformer.functional.linear import linear
from jaxformer.functional.pooling import pool
from jaxformer.modules.initializers import bias_param, kernel_param
from jaxformer.modules.normalization import Norm


class Pooler(nn.Module):
    """Pools the hidden states of each row, then projects the result if the config has a pooler.

    Args:
        config: pooling, the pooler's activation, and whether it has a bias (`head_bias`).

    References:
        Devlin et al., "BERT", 2019 (tanh); Sanh et al., "DistilBERT", 2019 (relu); Clark et al.,
        "ELECTRA", 2020 (gelu); Warner et al., "ModernBERT", 2024 (gelu_norm).

    Example:
        >>> config = ModelConfig(architecture="encoder", max_len=8, d_model=8, pooler="tanh")
        >>> pooler, hidden = Pooler(config), jnp.ones((2, 3, 8))
        >>> variables = pooler.init(jax.random.key(0), hidden)
        >>> pooler.apply(variables, hidden).shape
        (2, 8)
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, hidden: jax.Array, lengths: jax.Array | None = None) -> jax.Array:
        """Maps float `[B, T, D]` with lengths int `[B]` to float32 or float64 `[B, D]`.

        With pooling "none" the result is `[B, T, D]`.
        """
        config = self.config
        if config.pooling == "none":  # one vector per token
            pooled = widened(hidden)  # [B, T, D]
        else:
            pooled = pool(hidden, lengths, pooling=config.pooling)  # [B, D]
        if config.pooler is None:
            return pooled
        axes, has_bias = ("embed", None), config.head_bias
        kernel = kernel_param(self, "kernel", config, axes, lambda c: (c.d_model, c.d_model))
        bias = bias_param(self, "bias", config, axes[1:], config.d_model) if has_bias else None
        projected = linear(pooled, kernel, bias)  # [B, D]
        if config.pooler == "tanh":
            return jnp.tanh(projected)
        activated = activation_function(config.pooler.removesuffix("_norm"))(projected)
        return Norm(config, name="norm")(activated) if config.pooler == "gelu_norm" else activated
