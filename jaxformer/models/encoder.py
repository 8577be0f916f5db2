"""The encoder, and its two heads: masked language modelling and sequence classification."""

from collections.abc import Callable, Mapping
from typing import Unpack

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import freeze

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.attention import dot_product_attention
from jaxformer.functional.linear import linear
from jaxformer.models.inputs import TransformerInputs
from jaxformer.models.transformer import AttentionFunctions, Transformer, TransformerOutput
from jaxformer.modules.block import Block
from jaxformer.modules.initializers import kernel_init, param_dtype
from jaxformer.modules.normalization import Norm
from jaxformer.modules.positions import Positions

__all__ = ["Encoder", "MaskedLanguageModel", "SequenceClassifier"]


class Encoder(Transformer):
    """A `Transformer` whose tokens attend to all others of their row; it has no logits.

    Args:
        config: the model, of architecture "encoder"; its vocab_size must be set.
        causal: True hides later tokens.
        cross_attention: not of an encoder.
        block: makes the block of all layers.
        attention_fn: what computes self-attention, in all layers or by name.
        position_scheme: the model's positions, in place of `config.positions`.
        shared_embedding: a table that is shared with another model; its own when not given.
        has_output: whether hidden states are ever scored against the vocabulary.

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

    has_output: bool = False

    def setup(self) -> None:
        """Makes the submodules."""
        if self.config.architecture != "encoder":
            raise ConfigError(
                f"an Encoder needs architecture 'encoder', got {self.config.architecture!r}"
            )
        super().setup()


class _EncoderHead(nn.Module):
    """An encoder under a head.

    Args:
        config: the model, of architecture "encoder".
        block: as of `Encoder`.
        attention_fn: as of `Encoder`.
        position_scheme: as of `Encoder`.
    """

    config: ModelConfig
    block: Callable[..., nn.Module] = Block
    attention_fn: AttentionFunctions = dot_product_attention
    position_scheme: Positions | None = None

    def __post_init__(self) -> None:
        """Makes the module hashable, which a dict of functions would not be."""
        if isinstance(self.attention_fn, Mapping):
            self.attention_fn = freeze(dict(self.attention_fn))
        super().__post_init__()

    def _make_encoder(self, *, has_output: bool) -> Encoder:
        scheme = self.position_scheme
        return Encoder(
            self.config,
            block=self.block,
            attention_fn=self.attention_fn,
            position_scheme=None if scheme is None else scheme.clone(parent=None, name=None),
            has_output=has_output,
        )


class MaskedLanguageModel(_EncoderHead):
    """An encoder that scores what stands at each token: a projection, GELU, a norm, and logits.

    Args:
        config: the model, of architecture "encoder", without num_classes.
        block: makes the block of all layers.
        attention_fn: what computes self-attention, in all layers or by name.
        position_scheme: the model's positions, in place of `config.positions`.

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

    def setup(self) -> None:
        """Makes the submodules."""
        config = self.config
        if config.num_classes is not None:
            raise ConfigError(
                "a masked language model predicts tokens, got num_classes="
                f"{config.num_classes}; remove it, or use a SequenceClassifier"
            )
        self.encoder = self._make_encoder(has_output=True)
        shape = (config.d_model, config.d_model)
        self.kernel = self.param("kernel", kernel_init(config), shape, param_dtype(config))
        self.norm = Norm(config)

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Scores every position.

        Args:
            tokens: integer `[B, T]`.
            **inputs: lengths, positions, segment_ids, mask, bias, deterministic and
                return_weights, as in `Transformer.hidden_states`.

        Returns:
            The encoder's hidden states and weights, and logits `[B, T, V]`.
        """
        output = self.encoder(tokens, **inputs)
        return output._replace(logits=self.logits(self._transformed(output.hidden)))

    def hidden_states(
        self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]
    ) -> TransformerOutput:
        """What logits are made from: the encoder's hidden states, transformed by the head.

        Args:
            tokens: integer `[B, T]`.
            **inputs: as in the call.

        Returns:
            Hidden states `[B, T, D]` and weights.
        """
        output = self.encoder(tokens, **inputs)
        return output._replace(hidden=self._transformed(output.hidden))

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Scores float `[..., D]` hidden states: float32 `[..., V]`."""
        return self.encoder.logits(hidden)

    def output_table(self) -> jax.Array:
        """Returns float `[V, D]`, what hidden states are scored against."""
        return self.encoder.output_table()

    def _transformed(self, hidden: jax.Array) -> jax.Array:
        return self.norm(nn.gelu(linear(hidden, self.kernel), approximate=False))


class SequenceClassifier(_EncoderHead):
    """An encoder that scores classes from the mean of a row's real tokens.

    Args:
        config: the model, of architecture "encoder", its num_classes set.
        block: makes the block of all layers.
        attention_fn: what computes self-attention, in all layers or by name.
        position_scheme: the model's positions, in place of `config.positions`.

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

    def setup(self) -> None:
        """Makes the submodules."""
        config = self.config
        if config.num_classes is None:
            raise ConfigError("num_classes must be set to build a classifier; the data says it")
        self.encoder = self._make_encoder(has_output=False)
        self.dropout = nn.Dropout(config.dropout_rate)
        shape, dtype = (config.d_model, config.num_classes), param_dtype(config)
        self.class_kernel = self.param("class_kernel", kernel_init(config), shape, dtype)
        self.class_bias = self.param("class_bias", nn.initializers.zeros, shape[1:], dtype)

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Scores every row.

        Args:
            tokens: integer `[B, T]`.
            **inputs: lengths, positions, segment_ids, mask, bias, deterministic and
                return_weights, as in `Transformer.hidden_states`.

        Returns:
            Hidden states and weights, and logits `[B, num_classes]`. A row of length 0 has the
            bias as logits.
        """
        output = self.encoder(tokens, **inputs)
        lengths = inputs.get("lengths")
        if lengths is None:
            lengths = jnp.full(tokens.shape[:1], tokens.shape[1])
        real = (jnp.arange(tokens.shape[1])[None] < lengths[:, None])[..., None]
        total = jnp.where(real, output.hidden.astype(jnp.float32), 0).sum(axis=1)
        pooled = total / jnp.maximum(real.sum(axis=1), 1)
        pooled = self.dropout(pooled, deterministic=inputs.get("deterministic", True))
        logits = linear(pooled, self.class_kernel, self.class_bias)
        return output._replace(logits=logits)
