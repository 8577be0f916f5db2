"""Classifier of rows or tokens: a Transformer with a head for classes."""

from typing import Unpack

import jax
from flax import linen as nn

from jaxformer.errors import ConfigError
from jaxformer.functional.linear import linear
from jaxformer.models.encoder import Encoder
from jaxformer.models.model import Model
from jaxformer.models.transformer import Transformer, TransformerOutput
from jaxformer.models.transformer_inputs import TransformerInputs
from jaxformer.modules.initializers import bias_param, kernel_param
from jaxformer.modules.pooling import Pooler


class SequenceClassifier(Model):
    """An encoder or decoder that classifies rows by their pooled hidden states.

    With pooling "none", an encoder classifies every token, as in named entity recognition. For a
    decoder, use pooling "last": the last token of a row is the only one that attends to all.

    Takes config, block, attention_fn and position_scheme, as `Transformer` does; `config` has
    architecture "encoder" or "decoder", and num_classes.

    Raises:
        ConfigError: num_classes is not set, or the config is that of an encoder-decoder.

    References:
        Devlin et al., "BERT", 2019, section 5.3; Radford et al., "Improving Language Understanding
        by Generative Pre-Training", 2018.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxformer.config import ModelConfig
        >>> config = ModelConfig(architecture="encoder", vocab_size=11, num_classes=3, max_len=8,
        ...                      num_layers=1)
        >>> model, tokens = SequenceClassifier(config), jnp.array([[1, 2, 3], [4, 5, 0]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> jax.jit(model.apply)(variables, tokens, lengths=jnp.array([3, 2])).logits.shape
        (2, 3)
    """

    def setup(self) -> None:
        """Creates the Transformer and its head."""
        config, classes = self.config, self.config.num_classes
        if classes is None:
            raise ConfigError("num_classes must be set to build a classifier; count your labels")
        is_decoder = config.architecture == "decoder"
        if is_decoder:
            self.encoder = Transformer(config, causal=True, has_output=False, **self._parts())
            nn.share_scope(self, self.encoder)  # "stack", not "encoder/stack"
        else:
            self.encoder = Encoder(config, has_output=False, **self._parts())
        self.pooler = Pooler(config)
        axes = ("embed", "classes")
        self.class_kernel = kernel_param(
            self, "class_kernel", config, axes, lambda c: (c.d_model, classes)
        )
        # As in Hugging Face transformers, a decoder's head has neither a bias nor dropout.
        self.class_bias = self.dropout = None
        if not is_decoder:
            self.class_bias = bias_param(self, "class_bias", config, axes[1:], classes)
            self.dropout = nn.Dropout(config.dropout_rate)

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Class logits of every row, or of every token.

        Args:
            tokens: integer `[B, T]`.
            **inputs: as in `TransformerInputs`, without caches and `encoded`.

        Returns:
            Hidden states, weights and pooled vectors, and logits `[B, num_classes]`; with pooling
            "none", logits `[B, T, num_classes]` and no pooled vectors. Without a pooler, the logits
            of a row of length 0 are the bias.
        """
        output = self.encoder(tokens, **inputs)
        pooled = dropped = self.pooler(output.hidden, inputs.get("lengths"))  # [B, D] or [B, T, D]
        if self.dropout is not None:
            dropped = self.dropout(pooled, deterministic=inputs.get("deterministic", True))
        logits = linear(dropped, self.class_kernel, self.class_bias)
        return output._replace(
            pooled=None if self.config.pooling == "none" else pooled, logits=logits
        )
