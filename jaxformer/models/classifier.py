"""Classifiers of rows and of tokens: a Transformer with a head for classes."""

from typing import Unpack

import jax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.linear import linear
from jaxformer.models.encoder import Encoder
from jaxformer.models.model import Model
from jaxformer.models.transformer import Transformer, TransformerOutput
from jaxformer.models.transformer_inputs import TransformerInputs
from jaxformer.modules.initializers import bias_param, kernel_param
from jaxformer.modules.pooling import Pooler


class ClassHead(nn.Module):
    """Pooling, dropout, and a projection to the logits of classes.

    That of a decoder has neither dropout nor a bias, as in Hugging Face transformers.

    Args:
        config: architecture, pooling and pooler, dropout rate, and num_classes.

    Raises:
        ConfigError: num_classes is not set.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, output: TransformerOutput, inputs: TransformerInputs) -> TransformerOutput:
        """Adds pooled vectors `[B, D]` and logits `[B, C]` to hidden states `[B, T, D]`.

        With pooling "none", both are those of each token, `[B, T, D]` and `[B, T, C]`.
        """
        config, classes = self.config, self.config.num_classes
        if classes is None:
            raise ConfigError("num_classes must be set to build a classifier; count your labels")
        pooled = Pooler(config, name="pooler")(output.hidden, inputs.get("lengths"))
        is_encoder, dropped = config.architecture == "encoder", pooled
        if is_encoder:
            dropout = nn.Dropout(config.dropout_rate, name="dropout")
            dropped = dropout(pooled, deterministic=inputs.get("deterministic", True))
        axes = ("embed", "classes")
        kernel = kernel_param(self, "class_kernel", config, axes, lambda c: (c.d_model, classes))
        bias = bias_param(self, "class_bias", config, axes[1:], classes) if is_encoder else None
        return output._replace(pooled=pooled, logits=linear(dropped, kernel, bias))


class SequenceClassifier(Model):
    """An encoder that classifies rows by their pooled hidden states.

    Takes config, block, attention_fn and position_scheme, as `Transformer` does; `config`
    has architecture "encoder" and num_classes.

    Raises:
        ConfigError: num_classes is not set.

    Example:
        >>> import jax.numpy as jnp
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
        """Creates the encoder and its head."""
        self._check_pooling()
        self.encoder = Encoder(self.config, **self._parts(), has_output=False)
        self.head = ClassHead(self.config)
        nn.share_scope(self, self.head)  # "class_kernel", not "head/class_kernel"

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Class logits of every row.

        Args:
            tokens: integer `[B, T]`.
            **inputs: as in `TransformerInputs`, without caches and `encoded`.

        Returns:
            Hidden states, weights and pooled vectors, and logits `[B, num_classes]`. Without
            a pooler, the logits of a row of length 0 are the bias.
        """
        return self.head(self.encoder(tokens, **inputs), inputs)

    def _check_pooling(self) -> None:
        if self.config.pooling == "none":
            raise ConfigError(
                "a SequenceClassifier classifies rows, got pooling='none'; choose another pooling, "
                "or use a TokenClassifier"
            )


class TokenClassifier(SequenceClassifier):
    """An encoder that classifies every token, as in named entity recognition.

    Takes config, block, attention_fn and position_scheme, as `Transformer` does; `config`
    has architecture "encoder", num_classes and pooling "none".

    Raises:
        ConfigError: num_classes is not set, or pooling is not "none".

    References:
        Devlin et al., "BERT", 2019, section 5.3.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(
        ...     architecture="encoder", vocab_size=11, num_classes=3, pooling="none", max_len=8,
        ...     num_layers=2, d_model=4, num_heads=2,
        ... )
        >>> model, tokens = TokenClassifier(config), jnp.array([[1, 2, 3], [4, 5, 0]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> jax.jit(model.apply)(variables, tokens, lengths=jnp.array([3, 2])).logits.shape
        (2, 3, 3)
    """

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Class logits of every token.

        Args:
            tokens: integer `[B, T]`.
            **inputs: as in `SequenceClassifier`.

        Returns:
            Hidden states and weights, and logits `[B, T, num_classes]`; ignore those of padding.
        """
        return super().__call__(tokens, **inputs)._replace(pooled=None)

    def _check_pooling(self) -> None:
        if self.config.pooling != "none":
            raise ConfigError(
                "a TokenClassifier classifies tokens, got pooling="
                f"{self.config.pooling!r}; set pooling='none', or use a SequenceClassifier"
            )


class DecoderClassifier(Transformer):
    """A causal `Transformer` that classifies rows by their pooled hidden states.

    Takes the arguments of `Transformer`; `config` has architecture "decoder" and num_classes.
    Pooling "last" classifies by the last token of a row, the only one that attends to all.

    Raises:
        ConfigError: the config has another architecture, or num_classes is not set.

    References:
        Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(
        ...     vocab_size=11, num_classes=3, pooling="last", max_len=8, num_layers=2, d_model=4,
        ...     num_heads=2,
        ... )
        >>> model, tokens = DecoderClassifier(config), jnp.array([[1, 2, 3], [4, 5, 0]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> jax.jit(model.apply)(variables, tokens, lengths=jnp.array([3, 2])).logits.shape
        (2, 3)
    """

    causal: bool = True
    has_output: bool = False

    def setup(self) -> None:
        """Checks the architecture, and creates the submodules and the head."""
        self._require_architecture("decoder", "a Decoder")
        super().setup()
        self.head = ClassHead(self.config)
        nn.share_scope(self, self.head)

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Class logits of every row.

        Args:
            tokens: integer `[B, T]`.
            **inputs: as in `TransformerInputs`, without caches and `encoded`.

        Returns:
            Hidden states, weights and pooled vectors, and logits `[B, num_classes]`.
        """
        return self.head(self.hidden_states(tokens, **inputs), inputs)
