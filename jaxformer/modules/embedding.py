"""Token embedding and output projection, which may share one table."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import PartitionSpec

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.embedding import table_rows, unembed
from jaxformer.functional.linear import DEFAULT_PRODUCTS, Products, linear
from jaxformer.modules.initializers import bias_param, kernel_param, table_param


def in_dtype(config: ModelConfig, vectors: jax.Array) -> jax.Array:
    """Casts vectors to the dtype that a model computes in: float64 stays, else the config's."""
    return vectors if vectors.dtype == jnp.float64 else vectors.astype(jnp.dtype(config.dtype))


class Embedding(nn.Module):
    """Token embedding, and output projection of hidden states to logits.

    If the table is not as wide as the model, a learned projection follows it, and another one
    precedes the logits if the table is tied.

    Args:
        config: vocabulary, widths, tying and freezing; scale of the embeddings; scale, bias and
            soft cap of the logits. Its vocab_size must be set.
        has_output: whether there are logits; False = no output table.
        products: precision and function of the matrix products.

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
    products: Products = DEFAULT_PRODUCTS

    def setup(self) -> None:
        """Creates the tables."""
        config, width = self.config, self.config.table_dim
        if config.vocab_size is None:
            raise ConfigError("vocab_size must be set to build a model; take the tokenizer's")
        columns = "embed" if width == config.d_model else "table"
        axes = ("vocab", columns)
        self.table = table_param(self, "embedding", config, axes, config.vocab_size, width)
        if width != config.d_model:
            self.projection_kernel = kernel_param(
                self, "projection_kernel", config, ("table", "embed"),
                lambda c: (c.table_dim, c.d_model),
            )  # fmt: skip
        if self.has_output and not config.tied_embeddings:
            shape = config.vocab_size, config.d_model
            self.output_embedding = table_param(
                self, "output_embedding", config, ("vocab", "embed"), *shape
            )
        self.narrows = self.has_output and config.tied_embeddings and width != config.d_model
        if self.narrows:
            self.output_projection_kernel = kernel_param(
                self, "output_projection_kernel", config, ("embed", "table"),
                lambda c: (c.d_model, c.table_dim),
            )  # fmt: skip
        if self.has_output and config.output_bias:
            self.bias = bias_param(self, "output_bias", config, ("vocab",), config.vocab_size)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Embeds integer `[...]` as `[..., D]`; unknown ids give NaN.

        The dtype, in which all layers compute, is the config's, or float64 if the table is float64.
        """
        config = self.config
        x = in_dtype(config, table_rows(self._whole_rows(), tokens))  # [..., table_dim]
        if config.table_dim != config.d_model:
            x = linear(x, self.projection_kernel, products=self.products)  # [..., D]
        return x * config.embedding_factor

    def narrowed(self, x: jax.Array) -> jax.Array:
        """Projects hidden states `[..., D]` to the width of the output table."""
        if not self.narrows:
            return x
        return linear(x, self.output_projection_kernel, products=self.products)

    def logits(self, x: jax.Array) -> jax.Array:
        """Logits float32 `[..., V]` of float `[..., D]` from `narrowed`."""
        factor, softcap = self.config.logit_factor, self.config.logit_softcap
        x = x if factor is None else x * factor
        return unembed(
            self.output_table(), x, self.output_bias(), softcap=softcap, products=self.products
        )

    def output_table(self) -> jax.Array:
        """Output table, float `[V, D]`: logits are products of hidden states with its rows.

        Raises:
            ConfigError: has_output is False.
        """
        if not self.has_output:
            raise ConfigError(
                "this embedding makes no logits, got has_output=False: it belongs to a classifier, "
                "or to a source with its own vocabulary"
            )
        return self._whole_rows() if self.config.tied_embeddings else self.output_embedding

    def output_bias(self) -> jax.Array | None:
        """Bias of the logits, float `[V]`; None without `config.output_bias`."""
        return self.bias if self.has_output and self.config.output_bias else None

    def _whole_rows(self) -> jax.Array:
        """The table `[V, table_dim]`; on a mesh, XLA splits its vocabulary but no token vector."""
        return nn.with_logical_constraint(self.table, (PartitionSpec.UNCONSTRAINED, "embed"))
