"""The token embedding, and the output projection, which may be the same table."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import PartitionSpec

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.embedding import table_rows, unembed
from jaxformer.functional.linear import linear
from jaxformer.modules.initializers import kernel_init, param_dtype

__all__ = ["FROZEN_EMBEDDING", "Embedding", "in_dtype"]

FROZEN_EMBEDDING = "frozen_embedding"
"""Parameter name of an embedding table that is neither trained nor decayed."""


def in_dtype(config: ModelConfig, vectors: jax.Array) -> jax.Array:
    """Vectors in the dtype that a model computes in: float64 if they are, else the config's."""
    return vectors if vectors.dtype == jnp.float64 else vectors.astype(jnp.dtype(config.dtype))


class Embedding(nn.Module):
    """Token embedding, and output projection of hidden states to logits.

    Where the table is not as wide as the model, a learned projection follows it; and another one
    is before the logits, where the same table makes them.

    Args:
        config: vocabulary, widths, tying and freezing; scale of the embeddings; scale, bias and
            soft cap of the logits. Its vocab_size must be set.
        has_output: whether there are logits; if not, there is no output table.

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
    has_output: bool = True

    def setup(self) -> None:
        """Creates the tables."""
        config, init, dtype = self.config, kernel_init(self.config), param_dtype(self.config)
        if config.vocab_size is None:
            raise ConfigError("vocab_size must be set to build a model; it is the tokenizer's")
        width = config.table_dim
        name = FROZEN_EMBEDDING if config.frozen_embeddings else "embedding"
        self.table = self.param(name, init, (config.vocab_size, width), dtype)
        if width != config.d_model:
            shape = (width, config.d_model)
            self.projection_kernel = self.param("projection_kernel", init, shape, dtype)
        if self.has_output and not config.tied_embeddings:
            shape = (config.vocab_size, config.d_model)
            self.output_embedding = self.param("output_embedding", init, shape, dtype)
        self.narrows = self.has_output and config.tied_embeddings and width != config.d_model
        if self.narrows:
            shape = (config.d_model, width)
            self.output_projection_kernel = self.param(
                "output_projection_kernel", init, shape, dtype
            )
        if self.has_output and config.output_bias:
            zeros = nn.initializers.zeros
            self.bias = self.param("output_bias", zeros, (config.vocab_size,), dtype)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Embeds integer `[...]` as `[..., D]`; unknown ids as NaN.

        In the config's dtype, which all layers compute in; in float64 where the table is float64.
        """
        config = self.config
        x = in_dtype(config, table_rows(self._table(), tokens))
        if config.table_dim != config.d_model:
            x = linear(x, self.projection_kernel)
        return x * config.embedding_factor

    def narrowed(self, x: jax.Array) -> jax.Array:
        """Hidden states `[..., D]` as wide as the table that they are scored against."""
        return linear(x, self.output_projection_kernel) if self.narrows else x

    def logits(self, x: jax.Array) -> jax.Array:
        """Scores float `[..., D]`, as `narrowed` gives them: float32 `[..., V]`."""
        config = self.config
        return unembed(
            self.output_table(), x, self.output_bias(), scale=config.logit_scale,
            softcap=config.logit_softcap,
        )  # fmt: skip

    def output_table(self) -> jax.Array:
        """Returns float `[V, D]`, what hidden states are scored against.

        Raises:
            ConfigError: has_output is False.
        """
        if not self.has_output:
            raise ConfigError(
                "nothing is scored against this embedding, got has_output=False: a classifier's, "
                "or that of a source with a vocabulary of its own"
            )
        return self._table() if self.config.tied_embeddings else self.output_embedding

    def output_bias(self) -> jax.Array | None:
        """Returns float `[V]`, what is added to the scores; None without `config.output_bias`."""
        return self.bias if self.has_output and self.config.output_bias else None

    def _table(self) -> jax.Array:
        table = jax.lax.stop_gradient(self.table) if self.config.frozen_embeddings else self.table
        # On a mesh: whole rows, as the vectors of tokens are not split; XLA splits the vocabulary.
        return nn.with_logical_constraint(table, (PartitionSpec.UNCONSTRAINED, "embed"))
