"""The encoder, and its two heads: masked language modelling and sequence classification."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.linear import linear
from jaxformer.functional.shapes import check_axes
from jaxformer.models.tokens import check_lengths, check_tokens
from jaxformer.modules.attention import AttentionContext
from jaxformer.modules.embedding import Embedding
from jaxformer.modules.initializers import kernel_init, param_dtype
from jaxformer.modules.normalization import Norm
from jaxformer.modules.positions import AddPositions, PositionBias, rotary_for
from jaxformer.modules.stack import Stack

__all__ = ["Encoder", "EncoderOutput", "MaskedLanguageModel", "SequenceClassifier"]


class EncoderOutput(NamedTuple):
    """Result of an `Encoder`, with a head or without.

    Args:
        hidden: float `[B, T, D]`, one vector per token.
        logits: float32; `[B, T, V]` of a masked language model, `[B, num_classes]` of a
            classifier, None without a head.
        weights: float32 `[L, B, N, T, T]`, the attention weights of all layers, when asked for.
    """

    hidden: jax.Array
    logits: jax.Array | None
    weights: jax.Array | None


class Encoder(nn.Module):
    """Embedding, positions, a stack of blocks that see both sides, a final norm (not post-norm).

    Args:
        config: the model, of architecture "encoder"; its vocab_size must be set.
        shared_embedding: a table that is shared with a decoder; its own when not given.

    Raises:
        ConfigError: the config is of another architecture.

    References:
        Vaswani et al., "Attention Is All You Need", 2017; Devlin et al., "BERT: Pre-training of
        Deep Bidirectional Transformers for Language Understanding", 2019.

    Example:
        >>> config = ModelConfig(
        ...     architecture="encoder", vocab_size=11, max_len=8, num_layers=2, d_model=4,
        ...     num_heads=2,
        ... )
        >>> model, tokens = Encoder(config), jnp.array([[1, 2, 3], [4, 5, 0]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> jax.jit(model.apply)(variables, tokens, lengths=jnp.array([3, 2])).hidden.shape
        (2, 3, 4)
    """

    config: ModelConfig
    shared_embedding: Embedding | None = None

    def setup(self) -> None:
        """Makes the submodules."""
        if self.config.architecture != "encoder":
            raise ConfigError(
                f"an Encoder needs architecture 'encoder', got {self.config.architecture!r}"
            )
        if self.shared_embedding is None:
            self.embedding = Embedding(self.config, has_output=self.config.num_classes is None)
        self.add_positions = AddPositions(self.config)
        self.position_bias = PositionBias(self.config)
        self.dropout = nn.Dropout(self.config.dropout_rate)
        self.stack = Stack(self.config)
        if self.config.norm_position != "post":
            self.final_norm = Norm(self.config)

    def __call__(
        self,
        tokens: jax.Array,
        *,
        lengths: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        positions: jax.Array | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
    ) -> EncoderOutput:
        """Encodes every token in the light of all others of its row.

        Args:
            tokens: integer `[B, T]`.
            lengths: int `[B]`, how many of the T are real in each row, the first ones; all when
                not given. What the others hold changes nothing.
            segment_ids: integer `[B, T]`; tokens see their own segment only.
            positions: integer `[B, T]`; counted from 0 when not given.
            deterministic: whether dropout is off; if not, pass `rngs={"dropout": key}`.
            return_weights: whether to return the attention weights of all layers.

        Returns:
            Hidden states and weights; no logits.

        Raises:
            ShapeError: tokens are not integer `[B, T]`, or longer than max_len.
        """
        sizes = check_tokens("tokens", tokens, self.config.max_len)
        check_lengths("lengths", lengths, sizes["B"])
        if positions is None:
            positions = jnp.broadcast_to(jnp.arange(sizes["T"], dtype=jnp.int32), tokens.shape)
        check_axes("positions", positions, "B T", sizes)
        x = self.add_positions(self._table()(tokens), positions)
        x = self.dropout(x, deterministic=deterministic)
        context = AttentionContext(
            rotary=rotary_for(self.config, positions),
            bias=self.position_bias(sizes["T"], sizes["T"]),
            segment_ids=segment_ids,
            num_tokens=lengths,
        )
        output = self.stack(x, context, deterministic=deterministic, return_weights=return_weights)
        x = output.x if self.config.norm_position == "post" else self.final_norm(output.x)
        weights = None if output.weights is None else output.weights.self_attention
        return EncoderOutput(x, None, weights)

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Scores float `[..., D]` hidden states: float32 `[..., V]`."""
        return self._table().logits(hidden)

    def output_table(self) -> jax.Array:
        """Returns float `[V, D]`, what hidden states are scored against."""
        return self._table().output_table()

    def _table(self) -> Embedding:
        return self.embedding if self.shared_embedding is None else self.shared_embedding


class MaskedLanguageModel(nn.Module):
    """An encoder that scores what stands at each token: a projection, GELU, a norm, and logits.

    Args:
        config: the model, of architecture "encoder", without num_classes.

    Raises:
        ConfigError: num_classes is set.

    References:
        Devlin et al., "BERT", 2019, section 3.1; the head is that of its code, without a bias.

    Example:
        >>> config = ModelConfig(
        ...     architecture="encoder", vocab_size=11, max_len=8, num_layers=2, d_model=4,
        ...     num_heads=2,
        ... )
        >>> model, tokens = MaskedLanguageModel(config), jnp.array([[1, 10, 3]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> jax.jit(model.apply)(variables, tokens).logits.shape
        (1, 3, 11)
    """

    config: ModelConfig

    def setup(self) -> None:
        """Makes the submodules."""
        config = self.config
        if config.num_classes is not None:
            raise ConfigError(
                "a masked language model predicts tokens, got num_classes="
                f"{config.num_classes}; remove it, or use a SequenceClassifier"
            )
        self.encoder = Encoder(config)
        shape = (config.d_model, config.d_model)
        self.kernel = self.param("kernel", kernel_init(config), shape, param_dtype(config))
        self.norm = Norm(config)

    def __call__(
        self,
        tokens: jax.Array,
        *,
        lengths: jax.Array | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
    ) -> EncoderOutput:
        """Scores every position; arguments as of `Encoder`."""
        output = self.encoder(
            tokens, lengths=lengths, deterministic=deterministic, return_weights=return_weights
        )
        return output._replace(logits=self.logits(self._transformed(output.hidden)))

    def hidden_states(
        self, tokens: jax.Array, *, lengths: jax.Array | None = None, deterministic: bool = True
    ) -> jax.Array:
        """Computes what the logits are made from: float `[B, T, D]`."""
        output = self.encoder(tokens, lengths=lengths, deterministic=deterministic)
        return self._transformed(output.hidden)

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Scores float `[..., D]` hidden states: float32 `[..., V]`."""
        return self.encoder.logits(hidden)

    def output_table(self) -> jax.Array:
        """Returns float `[V, D]`, what hidden states are scored against."""
        return self.encoder.output_table()

    def _transformed(self, hidden: jax.Array) -> jax.Array:
        return self.norm(nn.gelu(linear(hidden, self.kernel), approximate=False))


class SequenceClassifier(nn.Module):
    """An encoder that scores classes from the mean of a row's real tokens.

    Args:
        config: the model, of architecture "encoder", its num_classes set.

    Raises:
        ConfigError: num_classes is not set.

    Example:
        >>> config = ModelConfig(
        ...     architecture="encoder", vocab_size=11, num_classes=3, max_len=8, num_layers=2,
        ...     d_model=4, num_heads=2,
        ... )
        >>> model, tokens = SequenceClassifier(config), jnp.array([[1, 2, 3], [4, 5, 0]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> jax.jit(model.apply)(variables, tokens, lengths=jnp.array([3, 2])).logits.shape
        (2, 3)
    """

    config: ModelConfig

    def setup(self) -> None:
        """Makes the submodules."""
        config = self.config
        if config.num_classes is None:
            raise ConfigError("num_classes must be set to build a classifier; the data says it")
        self.encoder = Encoder(config)
        self.dropout = nn.Dropout(config.dropout_rate)
        shape, dtype = (config.d_model, config.num_classes), param_dtype(config)
        self.class_kernel = self.param("class_kernel", kernel_init(config), shape, dtype)
        self.class_bias = self.param("class_bias", nn.initializers.zeros, shape[1:], dtype)

    def __call__(
        self,
        tokens: jax.Array,
        *,
        lengths: jax.Array | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
    ) -> EncoderOutput:
        """Scores every row; arguments as of `Encoder`. A row of length 0 has the bias as scores."""
        output = self.encoder(
            tokens, lengths=lengths, deterministic=deterministic, return_weights=return_weights
        )
        if lengths is None:
            lengths = jnp.full(tokens.shape[:1], tokens.shape[1])
        real = (jnp.arange(tokens.shape[1])[None] < lengths[:, None])[..., None]
        total = jnp.where(real, output.hidden.astype(jnp.float32), 0).sum(axis=1)
        pooled = total / jnp.maximum(real.sum(axis=1), 1)
        pooled = self.dropout(pooled, deterministic=deterministic)
        logits = linear(pooled, self.class_kernel, self.class_bias)
        return output._replace(logits=logits)
