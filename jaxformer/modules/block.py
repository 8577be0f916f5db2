"""One Transformer block: attention and feed-forward, each with a residual and a norm."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.functional.cache import KVCache
from jaxformer.modules.attention import (
    NO_CONTEXT,
    AttentionContext,
    CrossAttention,
    MultiHeadAttention,
)
from jaxformer.modules.feed_forward import FeedForward
from jaxformer.modules.normalization import Norm

__all__ = ["AttentionWeights", "Block", "BlockOutput"]


class AttentionWeights(NamedTuple):
    """The attention weights of a block, or of all blocks of a stack with a leading layer axis.

    Args:
        self_attention: float32 `[B, N, T, S]`.
        cross_attention: float32 `[B, N, T, S]`, S tokens of the encoder; None without it.
    """

    self_attention: jax.Array
    cross_attention: jax.Array | None


class BlockOutput(NamedTuple):
    """Result of a `Block`.

    Args:
        x: float `[B, T, D]`.
        cache: the longer cache, when one was given.
        memory: keys and values of the encoder's output, in a decoder with cross-attention.
        weights: when they were asked for.
    """

    x: jax.Array
    cache: KVCache | None
    memory: KVCache | None
    weights: AttentionWeights | None


class Block(nn.Module):
    """Attention, then feed-forward, each with norms and a residual sum.

    In the decoder of an encoder-decoder, cross-attention stands between the two.

    - "pre": `x + f(norm(x))` (Xiong et al., "On Layer Normalization in the Transformer
      Architecture", 2020).
    - "post": `norm(x + f(x))` (Vaswani et al., 2017).
    - "sandwich": `x + output_norm(f(norm(x)))` (Ding et al., "CogView", 2021; Gemma Team,
      "Gemma 2", 2024).

    Dropout is the last that is done to what is added to x.

    Args:
        config: the model.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(max_len=8, num_layers=1, d_model=4, num_heads=2)
        >>> block, x = Block(config), jnp.ones((2, 3, 4))
        >>> block.apply(block.init(jax.random.key(0), x), x).x.shape
        (2, 3, 4)
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        context: AttentionContext = NO_CONTEXT,
        *,
        cache: KVCache | None = None,
        memory: KVCache | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
    ) -> BlockOutput:
        """Maps float `[B, T, D]` to `[B, T, D]`; the arguments are those of the attention."""
        config = self.config
        dropout = nn.Dropout(config.dropout_rate, deterministic=deterministic)
        options = {"deterministic": deterministic, "return_weights": return_weights}
        seen: dict[str, jax.Array | None] = {}

        def attend(inputs: jax.Array) -> jax.Array:
            nonlocal cache
            layer = MultiHeadAttention(config, name="attention")
            result = layer(inputs, context, cache=cache, **options)
            cache, seen["self"] = result.cache, result.weights
            return result.output

        def attend_to_encoder(inputs: jax.Array) -> jax.Array:
            nonlocal memory
            layer = CrossAttention(config, name="cross_attention")
            result, memory = layer(inputs, context, memory=memory, **options)
            seen["cross"] = result.weights
            return result.output

        def residual(name: str, layer: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
            norm = Norm(config, name=f"{name}_norm")
            if config.norm_position == "post":
                return norm(x + dropout(layer(x)))
            output = layer(norm(x))
            if config.norm_position == "sandwich":
                output = Norm(config, name=f"{name}_output_norm")(output)
            return x + dropout(output)

        x = residual("attention", attend, x)
        if config.architecture == "encoder_decoder":
            x = residual("cross_attention", attend_to_encoder, x)
        x = residual("feed_forward", FeedForward(config, name="feed_forward"), x)
        weights = None
        if seen["self"] is not None:
            weights = AttentionWeights(seen["self"], seen.get("cross"))
        return BlockOutput(x, cache, memory, weights)
