"""The encoder-decoder: one sequence is read, another is written."""

from typing import NamedTuple

import jax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.cache import KVCache
from jaxformer.models.decoder import Cache, Decoder
from jaxformer.models.encoder import Encoder
from jaxformer.modules.block import AttentionWeights
from jaxformer.modules.embedding import Embedding
from jaxformer.modules.stack import StackOutput

__all__ = ["EncoderDecoder", "EncoderDecoderOutput"]


class EncoderDecoderOutput(NamedTuple):
    """Result of an `EncoderDecoder`.

    Args:
        logits: float32 `[B, T, V]`; those at t score the token at t + 1.
        encoder_weights: float32 `[L, B, N, S, S]` attention weights, when asked for.
        decoder_weights: self-attention `[L, B, N, T, T]` and cross-attention `[L, B, N, T, S]`,
            when asked for.
    """

    logits: jax.Array
    encoder_weights: jax.Array | None
    decoder_weights: AttentionWeights | None


class EncoderDecoder(nn.Module):
    """An encoder of the source, and a decoder whose every block attends to the encoder's output.

    The two share one embedding table, unless the source has a vocabulary of its own.

    Args:
        config: the model, of architecture "encoder_decoder"; its vocab_size must be set.

    Raises:
        ConfigError: the config is of another architecture.

    References:
        Vaswani et al., "Attention Is All You Need", 2017.

    Example:
        >>> config = ModelConfig(
        ...     architecture="encoder_decoder", vocab_size=11, max_len=8, num_layers=2, d_model=4,
        ...     num_heads=2,
        ... )
        >>> import jax.numpy as jnp
        >>> model = EncoderDecoder(config)
        >>> source, tokens = jnp.array([[4, 5, 6, 7, 8]]), jnp.array([[1, 2, 3]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), source, tokens)
        >>> jax.jit(model.apply)(variables, source, tokens).logits.shape
        (1, 3, 11)
    """

    config: ModelConfig

    def setup(self) -> None:
        """Makes the submodules."""
        config = self.config
        if config.architecture != "encoder_decoder":
            raise ConfigError(
                "an EncoderDecoder needs architecture 'encoder_decoder', got "
                f"{config.architecture!r}"
            )
        self.embedding = Embedding(config.target_embedding)
        source_embedding = self.embedding
        if config.source_vocab_size is not None:
            self.source_embedding = Embedding(config.encoder, has_output=False)
            source_embedding = self.source_embedding
        self.encoder = Encoder(config.encoder, shared_embedding=source_embedding)
        self.decoder = Decoder(config, shared_embedding=self.embedding)

    def __call__(
        self,
        source_tokens: jax.Array,
        tokens: jax.Array,
        *,
        source_lengths: jax.Array | None = None,
        lengths: jax.Array | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
    ) -> EncoderDecoderOutput:
        """Scores the next token at every position of the target.

        Args:
            source_tokens: integer `[B, S]`.
            tokens: integer `[B, T]`, the target so far, its start token first.
            source_lengths: int `[B]`, how many of the S are real in each row, the first ones; all
                when not given.
            lengths: int `[B]`, likewise of the T.
            deterministic: whether dropout is off; if not, pass `rngs={"dropout": key}`.
            return_weights: whether to return the attention weights of all layers.

        Returns:
            Logits and weights.

        Raises:
            ShapeError: tokens are not integer `[B, T]`, or longer than max_len.
        """
        encoded = self.encoder(
            source_tokens,
            lengths=source_lengths,
            deterministic=deterministic,
            return_weights=return_weights,
        )
        decoded = self.decode(
            tokens,
            encoded=encoded.hidden,
            encoded_lengths=source_lengths,
            num_tokens=lengths,
            deterministic=deterministic,
            return_weights=return_weights,
        )
        return EncoderDecoderOutput(self.logits(decoded.x), encoded.weights, decoded.weights)

    def hidden_states(
        self,
        source_tokens: jax.Array,
        tokens: jax.Array,
        *,
        source_lengths: jax.Array | None = None,
        lengths: jax.Array | None = None,
        deterministic: bool = True,
    ) -> jax.Array:
        """Computes what the logits are made from: float `[B, T, D]`; arguments as in the call."""
        encoded = self.encode(source_tokens, source_lengths, deterministic=deterministic)
        return self.decode(
            tokens, encoded=encoded, encoded_lengths=source_lengths, num_tokens=lengths,
            deterministic=deterministic,
        ).x  # fmt: skip

    def encode(
        self,
        source_tokens: jax.Array,
        source_lengths: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """Reads integer `[B, S]` sources: float `[B, S, D]`."""
        output = self.encoder(source_tokens, lengths=source_lengths, deterministic=deterministic)
        return output.hidden

    def decode(
        self,
        tokens: jax.Array,
        *,
        encoded: jax.Array | None = None,
        encoded_lengths: jax.Array | None = None,
        memory: tuple[KVCache, ...] | None = None,
        cache: Cache | None = None,
        num_tokens: jax.Array | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
    ) -> StackOutput:
        """Computes the hidden states of the target's next tokens.

        Args:
            tokens: integer `[B, T]`.
            encoded: float `[B, S, D]`, of `encode`; not needed where memory is given.
            encoded_lengths: int `[B]`, how many of the S are real.
            memory: keys and values of the encoded source, which an earlier call returned: they
                are projected once. Needs `layer_execution="loop"`.
            cache: one `KVCache` per layer, of the earlier tokens; needs `layer_execution="loop"`.
            num_tokens: int `[B]`, how many of the T tokens are real in each row.
            deterministic: whether dropout is off.
            return_weights: whether to return the attention weights of all layers.

        Returns:
            Hidden states `[B, T, D]`, the longer cache, the memory, and the weights.
        """
        return self.decoder.decode(
            tokens, encoded=encoded, encoded_lengths=encoded_lengths, memory=memory, cache=cache,
            num_tokens=num_tokens, deterministic=deterministic, return_weights=return_weights,
        )  # fmt: skip

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Scores float `[..., D]` hidden states: float32 `[..., V]`."""
        return self.embedding.logits(hidden)

    def output_table(self) -> jax.Array:
        """Returns float `[V, D]`, what hidden states are scored against."""
        return self.embedding.output_table()
