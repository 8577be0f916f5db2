"""Multi-head self-attention and cross-attention modules, and their context."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ShapeError
from jaxformer.functional.attention import Bias, dot_product_attention
from jaxformer.functional.linear import DEFAULT_PRODUCTS, Products
from jaxformer.functional.masks.base import Mask
from jaxformer.functional.multi_head import (
    AttentionFunction,
    KVCache,
    MultiHeadOutput,
    MultiHeadParams,
    Rotation,
    WindowCache,
    multi_head_attention,
    project_memory,
)
from jaxformer.functional.taps import LayerTaps
from jaxformer.modules.initializers import (
    AxisNames,
    KernelShape,
    bias_param,
    kernel_param,
    table_param,
)
from jaxformer.modules.normalization import norm_scale


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class AttentionContext:
    """Masks, biases and functions for the attention of a layer; built once per forward pass.

    Layers with the same settings share one. It is a pytree whose first four fields are static.
    `rotation` may close over traced arrays, so pass a context to layers by closure, never as an
    argument of a jitted function or a scan.

    Args:
        is_causal: whether tokens attend only to themselves and earlier tokens.
        local_window_size: (left, right): how many tokens before and after itself a token attends
            to, None = all.
        attention_fn: self-attention function with the signature of `dot_product_attention`.
        rotation: function that rotates queries and keys.
        bias: added to the scores of self-attention, as in `dot_product_attention`: float
            `[B or 1, N or 1, T, S]`, an `AlibiBias` or `RelativeBias`, or a pair of both. With a
            cache, S is its capacity, or, for a `WindowCache`, its slots plus the new tokens.
        mask: bool `[B or 1, N or 1, T, S]`, likewise; True = attend.
        segment_ids: integer `[B, T]`; tokens attend only to their own segment. 0 is padding.
        lengths: int `[B]`, number of real tokens at the start of each row.
        order: int `[T]`, place of each token in its row, where they are in ring order; else None.
        encoded: float `[B, S, D]`, the encoder's output, for cross-attention.
        encoded_lengths: int `[B]`, number of real tokens at the start of each of its rows.
        encoded_mask: bool `[B or 1, N or 1, T or 1, S]` for cross-attention; True = attend.
    """

    is_causal: bool = dataclasses.field(default=False, metadata={"static": True})
    local_window_size: tuple[int | None, int | None] | None = dataclasses.field(
        default=None, metadata={"static": True}
    )
    attention_fn: AttentionFunction = dataclasses.field(
        default=dot_product_attention, metadata={"static": True}
    )
    rotation: Rotation | None = dataclasses.field(default=None, metadata={"static": True})
    bias: Bias | None = None
    mask: jax.Array | Mask | None = None
    segment_ids: jax.Array | None = None
    lengths: jax.Array | None = None
    order: jax.Array | None = None
    encoded: jax.Array | None = None
    encoded_lengths: jax.Array | None = None
    encoded_mask: jax.Array | Mask | None = None

    def real_tokens(self, num_tokens: int) -> jax.Array | None:
        """Mask of the tokens that are not padding, bool `[B, T]`; None if all are real."""
        in_segment = None if self.segment_ids is None else self.segment_ids != 0
        if self.lengths is None:
            return in_segment
        places = jnp.arange(num_tokens) if self.order is None else self.order
        within = places[None] < self.lengths[:, None]
        return within if in_segment is None else within & in_segment


NO_CONTEXT = AttentionContext()

_KERNELS: dict[str, tuple[AxisNames, KernelShape]] = {
    "query": (("embed", "heads"), lambda c: (c.d_model, c.num_heads * c.key_dim)),
    "key": (("embed", "kv"), lambda c: (c.d_model, c.kv_heads * c.key_dim)),
    "value": (("embed", "kv"), lambda c: (c.d_model, c.kv_heads * c.value_dim)),
    "output": (("heads", "embed"), lambda c: (c.num_heads * c.value_dim, c.d_model)),
}


class MultiHeadAttention(nn.Module):
    """Multi-head self-attention module; calls `functional.multi_head_attention`.

    Args:
        config: widths, heads, biases, norms, scale, soft cap, sinks, dropout rate and
            implementation.
        products: precision and function of the products with the kernels.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(max_len=8, num_layers=1, d_model=4, num_heads=2)
        >>> layer, x = MultiHeadAttention(config), jnp.ones((2, 3, 4))
        >>> variables = layer.init(jax.random.key(0), x)
        >>> layer.apply(variables, x, AttentionContext(is_causal=True)).output.shape
        (2, 3, 4)
    """

    config: ModelConfig
    products: Products = DEFAULT_PRODUCTS

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        context: AttentionContext = NO_CONTEXT,
        *,
        cache: KVCache | WindowCache | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
        tap: LayerTaps | None = None,
    ) -> MultiHeadOutput:
        """Self-attention to the tokens that the context allows.

        Args:
            x: float `[B, T, D]`.
            context: masks, biases and functions.
            cache: keys and values of earlier tokens.
            deterministic: whether dropout is off.
            return_weights: whether to also return the attention weights.
            tap: as in `multi_head_attention`.

        Returns:
            Output `[B, T, D]`, the cache with the new tokens, and the weights.
        """
        config, cached = self.config, cache is not None
        return multi_head_attention(
            _make_params(self, sinks=config.attention_sinks),
            x,
            bias=context.bias,
            mask=context.mask,
            num_heads=config.num_heads,
            num_kv_heads=config.kv_heads,
            norm_eps=config.norm_eps,
            rotary=context.rotation,
            cache=cache,
            # With a cache, lengths give the number of tokens to write; the cache has the rest.
            num_tokens=context.lengths if cached else None,
            return_weights=return_weights,
            tap=tap,
            attention_fn=context.attention_fn,
            products=self.products,
            is_causal=context.is_causal,
            query_seq_lengths=None if cached else context.lengths,
            key_value_seq_lengths=None if cached else context.lengths,
            local_window_size=context.local_window_size,
            scale=config.attention_factor,
            softcap=config.attention_softcap,
            query_segment_ids=context.segment_ids,
            key_value_segment_ids=context.segment_ids,
            **_dropout(self, config, deterministic),
            implementation="auto" if cached else config.attention_implementation,
        )


class CrossAttention(nn.Module):
    """Multi-head attention from decoder tokens to the encoder's output, without rotation.

    Takes the arguments of `MultiHeadAttention`.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(max_len=8, num_layers=1, d_model=4, num_heads=2)
        >>> context = AttentionContext(encoded=jnp.ones((2, 5, 4)))
        >>> layer, x = CrossAttention(config), jnp.ones((2, 3, 4))
        >>> variables = layer.init(jax.random.key(0), x, context)
        >>> result = layer.apply(variables, x, context)
        >>> result.output.shape, result.cache.key.shape
        ((2, 3, 4), (2, 2, 5, 2))
    """

    config: ModelConfig
    products: Products = DEFAULT_PRODUCTS

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        context: AttentionContext = NO_CONTEXT,
        *,
        cross_cache: KVCache | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
        tap: LayerTaps | None = None,
    ) -> MultiHeadOutput:
        """Cross-attention to the encoder's tokens.

        Args:
            x: float `[B, T, D]`.
            context: masks; its `encoded` must be set if cross_cache is not given.
            cross_cache: keys and values of the encoder's output, from an earlier call.
            deterministic: whether dropout is off.
            return_weights: whether to also return the attention weights.
            tap: as in `multi_head_attention`; names of places start with "cross_".

        Returns:
            Output `[B, T, D]`, the cross-attention cache as its cache, and the weights.

        Raises:
            ShapeError: neither `context.encoded` nor `cross_cache` is given.
        """
        config, params = self.config, _make_params(self)
        heads: dict[str, Any] = {
            "num_heads": config.num_heads,
            "num_kv_heads": config.kv_heads,
            "norm_eps": config.norm_eps,
            "products": self.products,
        }
        decoding = cross_cache is not None
        if cross_cache is None:
            if context.encoded is None:
                raise ShapeError(
                    "cross-attention needs the encoder's output or a cross_cache of it, got "
                    "neither; pass encoded"
                )
            cross_cache = project_memory(params, context.encoded, context.encoded_lengths, **heads)
        mask, lengths = context.encoded_mask, context.lengths
        if context.order is not None and lengths is not None:  # then there is no encoded_mask
            mask, lengths = (context.order[None] < lengths[:, None])[:, None, :, None], None
        result = multi_head_attention(
            params,
            x,
            mask=mask,
            **heads,
            cross_cache=cross_cache,
            return_weights=return_weights,
            tap=None if tap is None else tap.within("cross_"),
            query_seq_lengths=lengths,
            scale=config.attention_factor,
            softcap=config.attention_softcap,
            **_dropout(self, config, deterministic),
            implementation="auto" if decoding else config.attention_implementation,
        )
        return result._replace(cache=cross_cache)


def _dropout(module: nn.Module, config: ModelConfig, deterministic: bool) -> dict[str, Any]:
    """Dropout rate and key; draws no key if nothing is dropped, so none has to be passed."""
    if deterministic or config.dropout_rate == 0:
        return {"dropout_rate": 0.0, "dropout_rng": None}
    return {"dropout_rate": config.dropout_rate, "dropout_rng": module.make_rng("dropout")}


def _make_params(
    layer: MultiHeadAttention | CrossAttention, *, sinks: bool = False
) -> MultiHeadParams:
    """Declares the parameters of an attention layer, and returns their values."""
    config = layer.config
    # Flax numbers the RNG draws of a module, so the initial values depend on this order.
    params = {
        f"{name}_kernel": kernel_param(
            layer, f"{name}_kernel", config, axes, shape, into_residual=name == "output"
        )
        for name, (axes, shape) in _KERNELS.items()
    }  # fmt: skip
    for name, (axes, _) in _KERNELS.items():
        if config.has_bias("attention_output" if name == "output" else "qkv"):
            size = params[f"{name}_kernel"].shape[-1]
            params[f"{name}_bias"] = bias_param(layer, f"{name}_bias", config, axes[1:], size)
    if config.qk_norm:
        over_all = config.qk_norm_over == "all_heads"
        for name in ("query", "key"):
            size = params[f"{name}_kernel"].shape[-1] if over_all else config.key_dim
            params[f"{name}_norm_scale"] = norm_scale(layer, f"{name}_norm_scale", config, size)
    if sinks:
        params["sinks"] = table_param(layer, "sinks", config, ("heads",), config.num_heads)
    return MultiHeadParams(**params)
