"""The token embedding, which is also the output projection where the two are tied."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.embedding import embed, unembed
from jaxformer.modules.initializers import kernel_init, param_dtype

__all__ = ["Embedding"]


class Embedding(nn.Module):
    """One vector per token, and the logits of hidden states.

    Args:
        config: vocabulary, width, scaling, tying and soft cap; its vocab_size must be set.

    Raises:
        ConfigError: vocab_size is not set.

    Example:
        >>> config = ModelConfig(vocab_size=5, max_len=8, num_layers=1, d_model=4, num_heads=2)
        >>> layer, tokens = Embedding(config), jnp.array([[1, 2, 3]])
        >>> variables = layer.init(jax.random.key(0), tokens)
        >>> layer.apply(variables, tokens).shape
        (1, 3, 4)
    """

    config: ModelConfig

    def setup(self) -> None:
        """Makes the tables."""
        config = self.config
        if config.vocab_size is None:
            raise ConfigError("vocab_size must be set to build a model; it is the tokenizer's")
        shape, init = (config.vocab_size, config.d_model), kernel_init(config)
        self.embedding = self.param("embedding", init, shape, param_dtype(config))
        if not config.tied_embeddings:
            self.output_embedding = self.param("output_embedding", init, shape, param_dtype(config))

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Looks up integer `[...]` and returns `[..., D]` in the config's dtype."""
        x = embed(self.embedding, tokens).astype(jnp.dtype(self.config.dtype))
        return x * self.config.d_model**0.5 if self.config.scale_embeddings else x

    def logits(self, x: jax.Array) -> jax.Array:
        """Scores float `[..., D]` against every token: float32 `[..., V]`."""
        return unembed(self.output_table(), x, softcap=self.config.logit_softcap)

    def output_table(self) -> jax.Array:
        """Returns float `[V, D]`, what hidden states are scored against."""
        return self.embedding if self.config.tied_embeddings else self.output_embedding
