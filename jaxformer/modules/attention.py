"""Multi-head attention with its parameters, and what all layers of a stack share."""

from typing import NamedTuple

import jax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.functional.cache import KVCache
from jaxformer.functional.multi_head import MultiHeadOutput, MultiHeadParams, multi_head_attention
from jaxformer.modules.initializers import kernel_init, param_dtype, residual_init

__all__ = ["NO_CONTEXT", "AttentionContext", "MultiHeadAttention"]


class AttentionContext(NamedTuple):
    """What every layer must know of the sequence, made once per forward pass: a pytree.

    Args:
        rotary: (cos, sin), float32 `[B, T, H/2]`, for the positions of the tokens.
        bias: float `[1, N, T, S]` or `[B, N, T, S]`, added to the scores; with a cache, S is its
            capacity.
        segment_ids: integer `[B, T]`; tokens see their own segment only.
        num_tokens: int `[B]`, with a cache: how many of the T tokens are real in each row.
    """

    rotary: tuple[jax.Array, jax.Array] | None = None
    bias: jax.Array | None = None
    segment_ids: jax.Array | None = None
    num_tokens: jax.Array | None = None


NO_CONTEXT = AttentionContext()


class MultiHeadAttention(nn.Module):
    """Causal self-attention: the parameters of `functional.multi_head_attention`, and its call.

    Args:
        config: widths, heads, biases, norms, rotary layout, window, soft cap, dropout rate and
            implementation.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(max_len=8, num_layers=1, d_model=4, num_heads=2)
        >>> layer, x = MultiHeadAttention(config), jnp.ones((2, 3, 4))
        >>> variables = layer.init(jax.random.key(0), x)
        >>> layer.apply(variables, x).output.shape
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
    ) -> MultiHeadOutput:
        """Attends from every token to those before it.

        Args:
            x: float `[B, T, D]`.
            context: what all layers share.
            cache: earlier keys and values of this layer.
            deterministic: whether dropout is off.

        Returns:
            output `[B, T, D]` and the longer cache.
        """
        config = self.config
        query_width = config.num_heads * config.key_dim
        key_width = config.kv_heads * config.key_dim
        value_width = config.kv_heads * config.value_dim
        merged_width = config.num_heads * config.value_dim
        init, dtype = kernel_init(config), param_dtype(config)

        def bias(name: str, width: int) -> jax.Array | None:
            if not config.use_bias:
                return None
            return self.param(name, nn.initializers.zeros, (width,), dtype)

        def norm_scale(name: str) -> jax.Array | None:
            if not config.qk_norm:
                return None
            return self.param(name, nn.initializers.ones, (config.key_dim,), dtype)

        params = MultiHeadParams(
            query_kernel=self.param("query_kernel", init, (x.shape[-1], query_width), dtype),
            key_kernel=self.param("key_kernel", init, (x.shape[-1], key_width), dtype),
            value_kernel=self.param("value_kernel", init, (x.shape[-1], value_width), dtype),
            output_kernel=self.param(
                "output_kernel", residual_init(config), (merged_width, config.d_model), dtype
            ),
            query_bias=bias("query_bias", query_width),
            key_bias=bias("key_bias", key_width),
            value_bias=bias("value_bias", value_width),
            output_bias=bias("output_bias", config.d_model),
            query_norm_scale=norm_scale("query_norm_scale"),
            key_norm_scale=norm_scale("key_norm_scale"),
        )
        window = None if config.local_window_size is None else (config.local_window_size, 0)
        dropping = config.dropout_rate > 0 and not deterministic
        return multi_head_attention(
            params,
            x,
            bias=context.bias,
            num_heads=config.num_heads,
            num_kv_heads=config.kv_heads,
            norm_eps=config.norm_eps,
            rotary=context.rotary,
            rotary_layout=config.rotary_layout,
            cache=cache,
            num_tokens=context.num_tokens,
            is_causal=True,
            local_window_size=window,
            softcap=config.attention_softcap,
            query_segment_ids=context.segment_ids,
            key_value_segment_ids=context.segment_ids,
            dropout_rate=config.dropout_rate if dropping else 0.0,
            dropout_rng=self.make_rng("dropout") if dropping else None,
            implementation="auto" if cache is not None else config.attention_implementation,
        )
