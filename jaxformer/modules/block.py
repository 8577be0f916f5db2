"""One Transformer block: self-attention and feed-forward, each with a residual and a norm."""

from collections.abc import Callable

import jax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.functional.cache import KVCache
from jaxformer.functional.multi_head import MultiHeadOutput
from jaxformer.modules.attention import NO_CONTEXT, AttentionContext, MultiHeadAttention
from jaxformer.modules.feed_forward import FeedForward
from jaxformer.modules.normalization import Norm

__all__ = ["Block"]


class Block(nn.Module):
    """Attention, then feed-forward; the norm before each ("pre") or after its sum ("post").

    Pre-norm: `x + f(norm(x))` (Xiong et al., "On Layer Normalization in the Transformer
    Architecture", 2020); post-norm: `norm(x + f(x))` (Vaswani et al., 2017).

    Args:
        config: the model.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(max_len=8, num_layers=1, d_model=4, num_heads=2)
        >>> block, x = Block(config), jnp.ones((2, 3, 4))
        >>> output, _ = block.apply(block.init(jax.random.key(0), x), x)
        >>> output.shape
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
        deterministic: bool = True,
    ) -> tuple[jax.Array, KVCache | None]:
        """Maps float `[B, T, D]` to `[B, T, D]`; the arguments are those of the attention."""
        config = self.config
        dropout = nn.Dropout(config.dropout_rate, deterministic=deterministic)
        new_cache: list[KVCache | None] = []

        def attend(inputs: jax.Array) -> jax.Array:
            result: MultiHeadOutput = MultiHeadAttention(config, name="attention")(
                inputs, context, cache=cache, deterministic=deterministic
            )
            new_cache.append(result.cache)
            return result.output

        def residual(
            x: jax.Array, layer: Callable[[jax.Array], jax.Array], norm: Norm
        ) -> jax.Array:
            if config.norm_position == "pre":
                return x + dropout(layer(norm(x)))
            return norm(x + dropout(layer(x)))

        x = residual(x, attend, Norm(config, name="attention_norm"))
        x = residual(
            x, FeedForward(config, name="feed_forward"), Norm(config, name="feed_forward_norm")
        )
        return x, new_cache[0]
