"""Encoder, and encoders that predict masked tokens or pool each row to one vector."""

from typing import Unpack

import jax
from flax import linen as nn

from jaxformer.errors import ConfigError
from jaxformer.functional.linear import linear
from jaxformer.models.model import Model
from jaxformer.models.transformer import Transformer, TransformerOutput
from jaxformer.models.transformer_inputs import TransformerInputs
from jaxformer.modules.initializers import bias_param, kernel_param
from jaxformer.modules.normalization import Norm
from jaxformer.modules.pooling import Pooler


class Encoder(Transformer):
    """A bidirectional `Transformer` without logits: every token attends to all tokens of its row.

    Takes the arguments of `Transformer`; `config` has architecture "encoder".

    Raises:
        ConfigError: the config has another architecture.

    References:
        Vaswani et al., "Attention Is All You Need", 2017; Devlin et al., "BERT: Pre-training of
        Deep Bidirectional Transformers for Language Understanding", 2019.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxformer.config import ModelConfig
        >>> config = ModelConfig(architecture="encoder", vocab_size=11, max_len=8, num_layers=1)
        >>> model, tokens = Encoder(config), jnp.array([[1, 2, 3], [4, 5, 0]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> jax.jit(model.apply)(variables, tokens, lengths=jnp.array([3, 2])).hidden.shape
        (2, 3, 128)
    """

    has_output: bool = False

    def setup(self) -> None:
        """Checks the architecture, and creates the submodules."""
        self._require_architecture("encoder", "an Encoder")
        super().setup()


class MaskedLanguageModel(Model):
    """An encoder that predicts masked tokens; its head is a projection, GELU, a norm, and logits.

    Takes config, block, attention_fn and position_scheme, as `Transformer` does; `config`
    has architecture "encoder" and no num_classes.

    Raises:
        ConfigError: num_classes is set.

    References:
        Devlin et al., "BERT", 2019, section 3.1; the head follows its code, whose biases are
        `config.head_bias` and `config.output_bias`.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxformer.config import ModelConfig
        >>> config = ModelConfig(architecture="encoder", vocab_size=11, max_len=8, num_layers=1)
        >>> model, tokens = MaskedLanguageModel(config), jnp.array([[1, 10, 3]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> jax.jit(model.apply)(variables, tokens).logits.shape
        (1, 3, 11)
    """

    def setup(self) -> None:
        """Creates the encoder and its head."""
        config = self.config
        if config.num_classes is not None:
            raise ConfigError(
                "a masked language model predicts tokens, got num_classes="
                f"{config.num_classes}; remove it, or use a SequenceClassifier"
            )
        self.encoder = Encoder(config, **self._parts(), has_output=True)
        axes, width, has_bias = ("embed", None), config.d_model, config.head_bias
        self.kernel = kernel_param(self, "kernel", config, axes, lambda c: (c.d_model, c.d_model))
        self.bias = bias_param(self, "bias", config, axes[1:], width) if has_bias else None
        self.norm = Norm(config)

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Logits `[B, T, V]` of the token at every position, with the encoder's hidden states.

        Args:
            tokens: integer `[B, T]`.
            **inputs: as in `TransformerInputs`, without caches and `encoded`.
        """
        output = self.encoder(tokens, **inputs)
        return output._replace(logits=self.logits(self._transformed(output.hidden)))

    def hidden_states(
        self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]
    ) -> TransformerOutput:
        """Hidden states before the logits: the encoder's, transformed by the head."""
        output = self.encoder(tokens, **inputs)
        return output._replace(hidden=self._transformed(output.hidden))

    def _transformed(self, hidden: jax.Array) -> jax.Array:
        projected = linear(hidden, self.kernel, self.bias)  # [B, T, D]
        return self.norm(nn.gelu(projected, approximate=False))


class PooledEncoder(Model):
    """An encoder that pools each row to one vector, such as a sentence embedding.

    Takes config, block, attention_fn and position_scheme, as `Transformer` does; `config`
    has architecture "encoder". Its pooling and pooler define the vector.

    References:
        Devlin et al., "BERT", 2019; Reimers and Gurevych, "Sentence-BERT", 2019.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxformer.config import ModelConfig
        >>> config = ModelConfig(architecture="encoder", vocab_size=11, max_len=8,
        ...                      num_layers=1, pooler="tanh")
        >>> model, tokens = PooledEncoder(config), jnp.array([[1, 2, 3], [4, 5, 0]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> jax.jit(model.apply)(variables, tokens, lengths=jnp.array([3, 2])).pooled.shape
        (2, 128)
    """

    def setup(self) -> None:
        """Creates the encoder and its pooler."""
        self.encoder = Encoder(self.config, **self._parts(), has_output=False)
        self.pooler = Pooler(self.config)

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Pooled vectors `[B, D]` of the rows, with the hidden states `[B, T, D]`.

        Args:
            tokens: integer `[B, T]`.
            **inputs: as in `TransformerInputs`, without caches and `encoded`.
        """
        output = self.encoder(tokens, **inputs)
        return output._replace(pooled=self.pooler(output.hidden, inputs.get("lengths")))
