"""Encoder-decoder: generates a target sequence from a source sequence."""

from typing import NamedTuple, TypedDict, Unpack

import jax
import numpy as np
from flax import linen as nn

from jaxformer.functional.checks import check_keywords
from jaxformer.functional.masks.base import Mask
from jaxformer.functional.taps import Taps, check_taps
from jaxformer.models.model import Model
from jaxformer.models.transformer import Transformer, TransformerOutput
from jaxformer.models.transformer_inputs import TransformerInputs
from jaxformer.modules.block import AttentionWeights
from jaxformer.modules.embedding import Embedding


class EncoderDecoderOutput(NamedTuple):
    """Result of an `EncoderDecoder`.

    Args:
        hidden: float `[B, T, D]`, one vector per target token.
        logits: float32 `[B, T, V]`; those at t predict the token at t + 1. None from
            `hidden_states`.
        encoder_weights: float32 `[L, B, N, S, S]` attention weights, if requested.
        decoder_weights: self-attention `[L, B, N, T, T]` and cross-attention `[L, B, N, T, S]`,
            if requested.
        taps: what `taps` reads, by place, stacked over layers `[L, ...]`; None without taps.
    """

    hidden: jax.Array
    logits: jax.Array | None
    encoder_weights: jax.Array | None
    decoder_weights: AttentionWeights | None
    taps: dict[str, jax.Array] | None = None


class EncoderDecoderInputs(TypedDict, total=False):
    """The keyword arguments of an `EncoderDecoder`; all may be left out.

    Args:
        source_lengths: int `[B]`, number of real source tokens at the start of each row; S when not
            given.
        lengths: int `[B]`, likewise for the target; T when not given.
        source_mask: bool, True = attend; broadcasts to `[B, N, S, S]`, for the encoder's
            self-attention, as in `TransformerInputs`.
        source_bias: float, added to the scores of the encoder's self-attention.
        mask: bool, likewise `[B, N, T, T]`, for the decoder's self-attention.
        bias: float, likewise.
        cross_mask: bool, likewise `[B, N, T, S]`, for the cross-attention.
        deterministic: whether dropout is off (the default); if not, pass `rngs={"dropout": key}`.
        return_weights: whether to return the attention weights of all layers.
        taps: what to read and edit inside the layers; "encoder/hidden" is the encoder's, and
            "hidden" the decoder's.
    """

    source_lengths: jax.Array | None
    lengths: jax.Array | None
    source_mask: jax.Array | Mask | None
    source_bias: jax.Array | None
    mask: jax.Array | Mask | None
    bias: jax.Array | None
    cross_mask: jax.Array | Mask | None
    deterministic: bool
    return_weights: bool
    taps: Taps | None


class EncoderDecoder(Model):
    """An encoder of the source, and a decoder whose blocks attend to the encoder's output.

    Both share one embedding table, unless the source has its own vocabulary. Each is a
    `Transformer`; decoding with a cache calls `model.decoder.hidden_states` directly.

    Takes config, block, attention_fn and position_scheme, as `Transformer` does, for
    encoder and decoder; `config` has architecture "encoder_decoder".

    Raises:
        ConfigError: the config has another architecture.

    References:
        Vaswani et al., "Attention Is All You Need", 2017.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxformer.config import ModelConfig
        >>> config = ModelConfig(architecture="encoder_decoder", vocab_size=11, max_len=8,
        ...                      num_layers=1)
        >>> model = EncoderDecoder(config)
        >>> source, tokens = jnp.array([[4, 5, 6, 7, 8]]), jnp.array([[1, 2, 3]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), source, tokens)
        >>> jax.jit(model.apply)(variables, source, tokens).logits.shape
        (1, 3, 11)
    """

    def setup(self) -> None:
        """Checks the architecture, and creates encoder, decoder and embeddings."""
        config = self.config
        self._require_architecture("encoder_decoder", "an EncoderDecoder")
        self.embedding = Embedding(config.target_embedding)
        source_embedding = self.embedding
        if config.source_vocab_size is not None:
            self.source_embedding = Embedding(config.encoder, has_output=False)
            source_embedding = self.source_embedding

        self.encoder = Transformer(
            config.encoder, **self._parts(), shared_embedding=source_embedding
        )
        self.decoder = Transformer(
            config, causal=True, **self._parts(), shared_embedding=self.embedding
        )

    def __call__(
        self, source_tokens: jax.Array, tokens: jax.Array, **inputs: Unpack[EncoderDecoderInputs]
    ) -> EncoderDecoderOutput:
        """Logits `[B, T, V]` of the next token at every position of the target.

        Args:
            source_tokens: integer `[B, S]`.
            tokens: integer `[B, T]`, the target so far, from its start token on.
            **inputs: as in `EncoderDecoderInputs`.
        """
        output = self.hidden_states(source_tokens, tokens, **inputs)
        return output._replace(logits=self.logits(output.hidden))

    def hidden_states(
        self, source_tokens: jax.Array, tokens: jax.Array, **inputs: Unpack[EncoderDecoderInputs]
    ) -> EncoderDecoderOutput:
        """Hidden states of the target before the logits; arguments as in the call.

        Raises:
            ShapeError: tokens are not integer `[B, T]`, or longer than max_len; or another array
                does not fit.
        """
        check_keywords("hidden_states", inputs, EncoderDecoderInputs)
        taps, source_lengths = inputs.get("taps"), inputs.get("source_lengths")
        check_taps(taps)
        in_encoder, in_decoder = (None, None) if taps is None else taps.split("encoder/")
        deterministic = inputs.get("deterministic", True)
        return_weights = inputs.get("return_weights", False)
        encoded = self.encode(
            source_tokens, lengths=source_lengths, mask=inputs.get("source_mask"),
            bias=inputs.get("source_bias"), deterministic=deterministic,
            return_weights=return_weights, taps=in_encoder,
        )  # fmt: skip
        decoded = self.decoder(
            tokens, lengths=inputs.get("lengths"), mask=inputs.get("mask"),
            bias=inputs.get("bias"), encoded=encoded.hidden, encoded_lengths=source_lengths,
            encoded_mask=inputs.get("cross_mask"), deterministic=deterministic,
            return_weights=return_weights, taps=in_decoder,
        )  # fmt: skip
        weights = None if encoded.weights is None else encoded.weights.self_attention
        values = decoded.taps
        if values is not None and encoded.taps is not None:
            values = values | {f"encoder/{place}": x for place, x in encoded.taps.items()}
        return EncoderDecoderOutput(decoded.hidden, None, weights, decoded.weights, values)

    def encode(
        self, source_tokens: jax.Array, **inputs: Unpack[TransformerInputs]
    ) -> TransformerOutput:
        """Hidden states of integer `[B, S]` sources; inputs as in `Transformer.hidden_states`."""
        return self.encoder(source_tokens, **inputs)

    @nn.nowrap
    def _smallest_inputs(self) -> tuple[np.ndarray, ...]:
        """Tokens `[1, 1]` of the source and of the target."""
        return 2 * super()._smallest_inputs()

    def output_embedding(self) -> Embedding:
        """The embedding of the target."""
        return self.embedding
