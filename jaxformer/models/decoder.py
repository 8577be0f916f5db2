"""The decoder: a causal language model."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.cache import KVCache
from jaxformer.functional.shapes import check_axes
from jaxformer.models.tokens import check_lengths, check_tokens
from jaxformer.modules.attention import AttentionContext
from jaxformer.modules.block import AttentionWeights
from jaxformer.modules.embedding import Embedding
from jaxformer.modules.normalization import Norm
from jaxformer.modules.positions import AddPositions, PositionBias, rotary_for
from jaxformer.modules.stack import Stack, StackOutput

__all__ = ["Decoder", "DecoderOutput", "init_cache"]

Cache = tuple[KVCache, ...]


class DecoderOutput(NamedTuple):
    """Result of a `Decoder`.

    Args:
        logits: float32 `[B, T, V]`; those at t score the token at t + 1.
        cache: one longer `KVCache` per layer, when a cache was given.
        weights: attention weights of all layers, `[L, B, N, T, T]`, when asked for.
    """

    logits: jax.Array
    cache: Cache | None
    weights: AttentionWeights | None


class Decoder(nn.Module):
    """Embedding, positions, a stack of causal blocks, a final norm (not for post-norm) and logits.

    Args:
        config: the model; its vocab_size must be set. With architecture "encoder_decoder" it is
            the decoder of one, whose blocks attend to an encoder's output as well.
        shared_embedding: a table that is shared with an encoder; its own when not given.

    Raises:
        ConfigError: the config is of an encoder.

    References:
        Vaswani et al., "Attention Is All You Need", 2017; Radford et al., "Language Models are
        Unsupervised Multitask Learners", 2019.

    Example:
        >>> config = ModelConfig(vocab_size=11, max_len=8, num_layers=2, d_model=4, num_heads=2)
        >>> model, tokens = Decoder(config), jnp.array([[1, 2, 3]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> model.apply(variables, tokens).logits.shape
        (1, 3, 11)
    """

    config: ModelConfig
    shared_embedding: Embedding | None = None

    def setup(self) -> None:
        """Makes the submodules."""
        if self.config.architecture == "encoder":
            raise ConfigError("a Decoder needs architecture 'decoder', got 'encoder'")
        if self.shared_embedding is None:
            self.embedding = Embedding(self.config)
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
        positions: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        cache: Cache | None = None,
        num_tokens: jax.Array | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
    ) -> DecoderOutput:
        """Scores the next token at every position.

        Args:
            tokens: integer `[B, T]`.
            positions: integer `[B, T]`; counted from 0, or from the cached tokens, when not given.
                Those that are biases on the scores (alibi, relative) are counted so in any case.
            segment_ids: integer `[B, T]`; tokens see their own segment only.
            cache: one `KVCache` per layer; needs `layer_execution="loop"`.
            num_tokens: int `[B]`, how many of the T tokens are real in each row, the first ones.
            deterministic: whether dropout is off; if not, pass `rngs={"dropout": key}`.
            return_weights: whether to return the attention weights of all layers.

        Returns:
            Logits, cache and weights.

        Raises:
            ShapeError: tokens are not integer `[B, T]`, or longer than max_len.
        """
        output = self.decode(
            tokens,
            positions=positions,
            segment_ids=segment_ids,
            cache=cache,
            num_tokens=num_tokens,
            deterministic=deterministic,
            return_weights=return_weights,
        )
        return DecoderOutput(self.logits(output.x), output.cache, output.weights)

    def decode(
        self,
        tokens: jax.Array,
        *,
        positions: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        encoded: jax.Array | None = None,
        encoded_lengths: jax.Array | None = None,
        memory: tuple[KVCache, ...] | None = None,
        cache: Cache | None = None,
        num_tokens: jax.Array | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
    ) -> StackOutput:
        """Computes the hidden states that logits are made from.

        Args:
            tokens: integer `[B, T]`.
            positions: as in the call.
            segment_ids: as in the call.
            encoded: float `[B, S, D]`, an encoder's output, for architecture "encoder_decoder".
            encoded_lengths: int `[B]`, how many of its S are real.
            memory: keys and values of the encoded, which an earlier call returned, in its place;
                needs `layer_execution="loop"`.
            cache: as in the call.
            num_tokens: as in the call.
            deterministic: as in the call.
            return_weights: as in the call.

        Returns:
            Hidden states `[B, T, D]`, the longer cache, the memory, and the weights.

        Raises:
            ShapeError: as in the call; or what the decoder is to attend to is missing, given
                twice, of another shape, or for an architecture that does not attend to it.
        """
        sizes = check_tokens("tokens", tokens, self.config.max_len)
        check_lengths("num_tokens", num_tokens, sizes["B"])
        self._check_encoded(sizes["B"], encoded, encoded_lengths, memory)
        if positions is None:
            positions = jnp.arange(sizes["T"], dtype=jnp.int32)[None]
            if cache is not None:
                positions = positions + cache[0].lengths[:, None]
            positions = jnp.broadcast_to(positions, tokens.shape)
        check_axes("positions", positions, "B T", sizes)
        x = self.add_positions(self._table()(tokens), positions)
        x = self.dropout(x, deterministic=deterministic)
        num_keys: int = sizes["T"]
        offset: int | jax.Array = 0
        if cache is not None:
            num_keys, offset = cache[0].capacity, cache[0].lengths
        context = AttentionContext(
            rotary=rotary_for(self.config, positions),
            # By index, though positions restart with every packed document: a bias is a function
            # of the distance, and within one document indices differ as positions do.
            bias=self.position_bias(sizes["T"], num_keys, offset),
            segment_ids=segment_ids,
            num_tokens=num_tokens,
            encoded=encoded,
            encoded_lengths=encoded_lengths,
        )
        output: StackOutput = self.stack(
            x, context, cache=cache, memory=memory, deterministic=deterministic,
            return_weights=return_weights,
        )  # fmt: skip
        if self.config.norm_position == "post":
            return output
        return output._replace(x=self.final_norm(output.x))

    def hidden_states(
        self,
        tokens: jax.Array,
        *,
        positions: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        deterministic: bool = True,
    ) -> jax.Array:
        """Computes what the logits are made from: float `[B, T, D]`; arguments as in the call."""
        return self.decode(
            tokens, positions=positions, segment_ids=segment_ids, deterministic=deterministic
        ).x

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Scores float `[..., D]` hidden states: float32 `[..., V]`."""
        return self._table().logits(hidden)

    def output_table(self) -> jax.Array:
        """Returns float `[V, D]`, what hidden states are scored against."""
        return self._table().output_table()

    def _check_encoded(
        self,
        batch: int,
        encoded: jax.Array | None,
        encoded_lengths: jax.Array | None,
        memory: tuple[KVCache, ...] | None,
    ) -> None:
        """Raises where the encoder's output would be ignored, or does not fit."""
        arguments = {"encoded": encoded, "encoded_lengths": encoded_lengths, "memory": memory}
        given = [name for name, value in arguments.items() if value is not None]
        if given and self.config.architecture != "encoder_decoder":
            raise ShapeError(
                f"{given[0]} is for the architecture 'encoder_decoder', got architecture="
                f"{self.config.architecture!r}; leave it out"
            )
        if memory is not None and len(given) > 1:
            raise ShapeError(
                f"memory stands in place of {given[0]}, got both; leave {given[0]} out"
            )
        if encoded is not None:
            check_axes("encoded", encoded, "B S D", {"B": batch, "D": self.config.d_model})
        check_lengths("encoded_lengths", encoded_lengths, batch)

    def _table(self) -> Embedding:
        return self.embedding if self.shared_embedding is None else self.shared_embedding


def init_cache(config: ModelConfig, batch_size: int, capacity: int) -> Cache:
    """Makes an empty cache for every layer of a model, in its dtype.

    Args:
        config: the model.
        batch_size: B.
        capacity: the most tokens that a row can hold.

    Returns:
        num_layers caches.

    Example:
        >>> config = ModelConfig(max_len=8, num_layers=2, d_model=4, num_heads=2)
        >>> len(init_cache(config, batch_size=3, capacity=8))
        2
    """
    return tuple(
        KVCache.init(
            batch_size,
            capacity,
            num_kv_heads=config.kv_heads,
            head_dim=config.key_dim,
            value_head_dim=config.value_dim,
            dtype=jnp.dtype(config.dtype),
        )
        for _ in range(config.num_layers)
    )
