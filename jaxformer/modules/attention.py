"""Multi-head attention with its parameters, and what all layers of a stack share."""

from typing import Any, NamedTuple

import jax
from flax import linen as nn

from jaxformer.config import ModelConfig, RotaryConfig
from jaxformer.errors import ShapeError
from jaxformer.functional.cache import KVCache
from jaxformer.functional.multi_head import (
    MultiHeadOutput,
    MultiHeadParams,
    multi_head_attention,
    project_memory,
)
from jaxformer.modules.initializers import kernel_init, param_dtype, residual_init

__all__ = ["NO_CONTEXT", "AttentionContext", "CrossAttention", "MultiHeadAttention"]


class AttentionContext(NamedTuple):
    """What every layer must know of the sequence, made once per forward pass: a pytree.

    Args:
        rotary: (cos, sin), float32 `[B, T, H/2]`, for the positions of the tokens.
        bias: float `[1, N, T, S]` or `[B, N, T, S]`, added to the scores; with a cache, S is its
            capacity.
        segment_ids: integer `[B, T]`; tokens see their own segment only.
        num_tokens: int `[B]`, how many of the T tokens are real in each row, the first ones.
        encoded: float `[B, S, D]`, what cross-attention looks at.
        encoded_lengths: int `[B]`, how many of its S are real, the first ones.
    """

    rotary: tuple[jax.Array, jax.Array] | None = None
    bias: jax.Array | None = None
    segment_ids: jax.Array | None = None
    num_tokens: jax.Array | None = None
    encoded: jax.Array | None = None
    encoded_lengths: jax.Array | None = None


NO_CONTEXT = AttentionContext()


class MultiHeadAttention(nn.Module):
    """Self-attention: the parameters of `functional.multi_head_attention`, and its call.

    Tokens see those before them and themselves; in an encoder, all.

    Args:
        config: architecture, widths, heads, biases, norms, rotary layout, window, soft cap,
            dropout rate and implementation.

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
        return_weights: bool = False,
    ) -> MultiHeadOutput:
        """Attends from every token to those that it may see.

        Args:
            x: float `[B, T, D]`.
            context: what all layers share.
            cache: earlier keys and values of this layer.
            deterministic: whether dropout is off.
            return_weights: whether the attention weights are returned as well.

        Returns:
            output `[B, T, D]`, the longer cache, and the weights.
        """
        config, scheme = self.config, self.config.positions
        causal = config.architecture != "encoder"
        window = config.local_window_size
        dropping = config.dropout_rate > 0 and not deterministic
        return multi_head_attention(
            _make_params(self, config),
            x,
            bias=context.bias,
            num_heads=config.num_heads,
            num_kv_heads=config.kv_heads,
            norm_eps=config.norm_eps,
            rotary=context.rotary,
            rotary_layout=scheme.layout if isinstance(scheme, RotaryConfig) else "half",
            cache=cache,
            num_tokens=None if cache is None else context.num_tokens,
            return_weights=return_weights,
            is_causal=causal,
            query_seq_lengths=context.num_tokens if cache is None else None,
            key_value_seq_lengths=context.num_tokens if cache is None else None,
            local_window_size=None if window is None else (window, 0 if causal else window),
            softcap=config.attention_softcap,
            query_segment_ids=context.segment_ids,
            key_value_segment_ids=context.segment_ids,
            dropout_rate=config.dropout_rate if dropping else 0.0,
            dropout_rng=self.make_rng("dropout") if dropping else None,
            implementation="auto" if cache is not None else config.attention_implementation,
        )


class CrossAttention(nn.Module):
    """Attention from the tokens of a decoder to the encoder's output, which has no positions.

    Args:
        config: widths, heads, biases, norms, soft cap, dropout rate and implementation.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(max_len=8, num_layers=1, d_model=4, num_heads=2)
        >>> context = AttentionContext(encoded=jnp.ones((2, 5, 4)))
        >>> layer, x = CrossAttention(config), jnp.ones((2, 3, 4))
        >>> variables = layer.init(jax.random.key(0), x, context)
        >>> result, memory = layer.apply(variables, x, context)
        >>> result.output.shape, memory.key.shape
        ((2, 3, 4), (2, 5, 2, 2))
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        context: AttentionContext = NO_CONTEXT,
        *,
        memory: KVCache | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
    ) -> tuple[MultiHeadOutput, KVCache]:
        """Attends from every token to all of the encoder's.

        Args:
            x: float `[B, T, D]`.
            context: what all layers share; its encoded must be set where memory is not given.
            memory: keys and values of the encoder's output, as an earlier call returned them.
            deterministic: whether dropout is off.
            return_weights: whether the attention weights are returned as well.

        Returns:
            output `[B, T, D]` with the weights, and the memory.

        Raises:
            ShapeError: there is neither an encoder's output nor memory.
        """
        config, params = self.config, _make_params(self, self.config)
        heads: dict[str, Any] = {
            "num_heads": config.num_heads,
            "num_kv_heads": config.kv_heads,
            "norm_eps": config.norm_eps,
        }
        decoding = memory is not None
        if memory is None:
            if context.encoded is None:
                raise ShapeError(
                    "cross-attention needs the encoder's output or memory of it, got neither; "
                    "pass encoded"
                )
            memory = project_memory(params, context.encoded, context.encoded_lengths, **heads)
        dropping = config.dropout_rate > 0 and not deterministic
        result = multi_head_attention(
            params,
            x,
            **heads,
            memory=memory,
            return_weights=return_weights,
            query_seq_lengths=context.num_tokens,
            softcap=config.attention_softcap,
            dropout_rate=config.dropout_rate if dropping else 0.0,
            dropout_rng=self.make_rng("dropout") if dropping else None,
            implementation="auto" if decoding else config.attention_implementation,
        )
        return result, memory


def _make_params(module: nn.Module, config: ModelConfig) -> MultiHeadParams:
    """Makes, or finds, the parameters of an attention layer in its module."""
    init, dtype, width = kernel_init(config), param_dtype(config), config.d_model
    query_width = config.num_heads * config.key_dim
    key_width = config.kv_heads * config.key_dim
    value_width = config.kv_heads * config.value_dim
    merged_width = config.num_heads * config.value_dim

    def bias(name: str, width: int) -> jax.Array | None:
        return module.param(name, nn.initializers.zeros, (width,), dtype)

    def norm_scale(name: str) -> jax.Array | None:
        return module.param(name, nn.initializers.ones, (config.key_dim,), dtype)

    kernels = {
        "query_kernel": module.param("query_kernel", init, (width, query_width), dtype),
        "key_kernel": module.param("key_kernel", init, (width, key_width), dtype),
        "value_kernel": module.param("value_kernel", init, (width, value_width), dtype),
        "output_kernel": module.param(
            "output_kernel", residual_init(config), (merged_width, width), dtype
        ),
    }
    params = MultiHeadParams(**kernels)
    if config.use_bias:
        params = params._replace(
            query_bias=bias("query_bias", query_width),
            key_bias=bias("key_bias", key_width),
            value_bias=bias("value_bias", value_width),
            output_bias=bias("output_bias", width),
        )
    if config.qk_norm:
        params = params._replace(
            query_norm_scale=norm_scale("query_norm_scale"),
            key_norm_scale=norm_scale("key_norm_scale"),
        )
    return params
