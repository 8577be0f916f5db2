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
    """Attention, then feed-forward, each with norms and a residual sum.

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

        def residual(name: str, layer: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
            norm = Norm(config, name=f"{name}_norm")
            if config.norm_position == "post":
                return norm(x + dropout(layer(x)))
            output = layer(norm(x))
            if config.norm_position == "sandwich":
                output = Norm(config, name=f"{name}_output_norm")(output)
            return x + dropout(output)

        x = residual("attention", attend, x)
        x = residual("feed_forward", FeedForward(config, name="feed_forward"), x)
        return x, new_cache[0]
