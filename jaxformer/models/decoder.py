"""The decoder: a causal language model."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ShapeError
from jaxformer.functional.cache import KVCache
from jaxformer.functional.shapes import check_axes, check_dtype
from jaxformer.modules.attention import AttentionContext
from jaxformer.modules.embedding import Embedding
from jaxformer.modules.normalization import Norm
from jaxformer.modules.positions import AddPositions, PositionBias, rotary_for
from jaxformer.modules.stack import Stack

__all__ = ["Decoder", "DecoderOutput", "init_cache"]

Cache = tuple[KVCache, ...]


class DecoderOutput(NamedTuple):
    """Result of a `Decoder`.

    Args:
        logits: float32 `[B, T, V]`; those at t score the token at t + 1.
        cache: one longer `KVCache` per layer, when a cache was given.
    """

    logits: jax.Array
    cache: Cache | None


class Decoder(nn.Module):
    """Embedding, positions, a stack of causal blocks, a final norm (not for post-norm) and logits.

    Args:
        config: the model; its vocab_size must be set.

    References:
        Vaswani et al., "Attention Is All You Need", 2017; Radford et al., "Language Models are
        Unsupervised Multitask Learners", 2019.

    Example:
        >>> config = ModelConfig(vocab_size=11, max_len=8, num_layers=2, d_model=4, num_heads=2)
        >>> model, tokens = Decoder(config), jnp.array([[1, 2, 3]])
        >>> variables = model.init(jax.random.key(0), tokens)
        >>> model.apply(variables, tokens).logits.shape
        (1, 3, 11)
    """

    config: ModelConfig

    def setup(self) -> None:
        """Makes the submodules."""
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
    ) -> DecoderOutput:
        """Scores the next token at every position.

        Args:
            tokens: integer `[B, T]`.
            positions: integer `[B, T]`; counted from 0, or from the cached tokens, when not given.
                Those that are biases on the scores (alibi, relative) are counted so in any case.
            segment_ids: integer `[B, T]`; tokens see their own segment only.
            cache: one `KVCache` per layer; needs `scan_layers=False`.
            num_tokens: int `[B]`, with a cache: how many of the T tokens are real in each row.
            deterministic: whether dropout is off; if not, pass `rngs={"dropout": key}`.

        Returns:
            Logits and cache.

        Raises:
            ShapeError: tokens are not integer `[B, T]`, or longer than max_len.
        """
        hidden, cache = self.hidden_states(
            tokens,
            positions=positions,
            segment_ids=segment_ids,
            cache=cache,
            num_tokens=num_tokens,
            deterministic=deterministic,
        )
        return DecoderOutput(self.logits(hidden), cache)

    def hidden_states(
        self,
        tokens: jax.Array,
        *,
        positions: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        cache: Cache | None = None,
        num_tokens: jax.Array | None = None,
        deterministic: bool = True,
    ) -> tuple[jax.Array, Cache | None]:
        """Computes what the logits are made from: float `[B, T, D]`; arguments as in the call."""
        sizes = check_axes("tokens", tokens, "B T")
        check_dtype("tokens", tokens, "integer")
        if sizes["T"] > self.config.max_len:
            raise ShapeError(
                f"tokens [B, T] must have T of at most max_len={self.config.max_len}, got shape "
                f"{tokens.shape}; cut them into windows"
            )
        if positions is None:
            positions = jnp.arange(sizes["T"], dtype=jnp.int32)[None]
            if cache is not None:
                positions = positions + cache[0].lengths[:, None]
            positions = jnp.broadcast_to(positions, tokens.shape)
        check_axes("positions", positions, "B T", sizes)
        x = self.add_positions(self.embedding(tokens), positions)
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
        )
        x, cache = self.stack(x, context, cache=cache, deterministic=deterministic)
        return x if self.config.norm_position == "post" else self.final_norm(x), cache

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Scores float `[..., D]` hidden states: float32 `[..., V]`."""
        return self.embedding.logits(hidden)

    def output_table(self) -> jax.Array:
        """Returns float `[V, D]`, what hidden states are scored against."""
        return self.embedding.output_table()


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
