"""One Transformer block: attention and feed-forward, each with a residual and a norm."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.multi_head import KVCache, MultiHeadOutput, WindowCache
from jaxformer.functional.taps import LayerTaps
from jaxformer.modules.attention import AttentionContext, CrossAttention, MultiHeadAttention
from jaxformer.modules.experts import make_feed_forward
from jaxformer.modules.normalization import Norm
from jaxformer.modules.stacked_layers import LayerInputs


class AttentionWeights(NamedTuple):
    """Attention weights of a block, or of all layers of a stack with a leading layer axis.

    Args:
        self_attention: float32 (float64 for float64) `[B, N, T, S]`.
        cross_attention: likewise, for S encoder tokens; None without cross-attention.
    """

    self_attention: jax.Array
    cross_attention: jax.Array | None = None


class BlockOutput(NamedTuple):
    """Result of a `Block`, or of a `Stack`, which has caches, weights and taps of all layers.

    Args:
        x: float `[B, T, D]`.
        cache: the cache with the new tokens, if one was given.
        cross_cache: keys and values of the encoder's output, in a decoder with cross-attention.
        weights: attention weights, if requested.
        taps: what the call reads inside the block, by place; the stack sets it.
    """

    x: jax.Array
    cache: Any = None
    cross_cache: Any = None
    weights: AttentionWeights | None = None
    taps: dict[str, jax.Array] | None = None


def is_unchanged(new: Any, old: Any) -> bool:
    """Whether a cache, or None, has no other arrays than an older one: it has no new tokens."""
    pairs = zip(jax.tree.leaves(new), jax.tree.leaves(old), strict=False)
    return all(leaf is before for leaf, before in pairs)


def check_block_output(
    block: nn.Module, output: Any, x: jax.Array, layer: LayerInputs
) -> BlockOutput:
    """Checks the output of a user's block, called on x `[B, T, D]`, before the stack uses it."""
    name = type(block).__name__
    if not isinstance(output, BlockOutput):
        raise ConfigError(
            f"a block must return a BlockOutput, got {type(output).__name__} from {name}; return "
            "BlockOutput(x, cache=...)"
        )
    got = getattr(output.x, "shape", None), getattr(output.x, "dtype", None)
    if got != (x.shape, x.dtype):
        raise ShapeError(
            f"a block must return x [B, T, D] = {x.shape} of dtype {x.dtype}, like its "
            f"input, got shape {got[0]} and dtype {got[1]} from {name}"
        )
    if layer.context.encoded is not None and output.cross_cache is None:
        raise ConfigError(
            "a block that gets an encoder's output must attend to it and return its cross_cache, "
            f"got none from {name}; return the cache of a CrossAttention"
        )
    if layer.cache is not None and is_unchanged(output.cache, layer.cache):
        kind = "none" if output.cache is None else "the cache that it was called with"
        raise ConfigError(
            "a block that is called with a cache must return its cache with the new tokens, got "
            f"{kind} from {name}; return the one that its attention returns"
        )
    return output


def _check_attention(attention: nn.Module, output: Any) -> None:
    """Checks the output of a user's attention layer."""
    name = type(attention).__name__
    if not isinstance(output, MultiHeadOutput):
        raise ConfigError(
            f"attention of a Block must return a MultiHeadOutput, got {type(output).__name__} from "
            f"{name}; return that of MultiHeadAttention, or MultiHeadOutput(output, cache)"
        )


class Block(nn.Module):
    """Transformer block: attention, then feed-forward, each with norms and a residual connection.

    `config.norm_position` sets where the norms are:

    - "pre": `x + f(norm(x))` (Xiong et al., "On Layer Normalization in the Transformer
      Architecture", 2020).
    - "post": `norm(x + f(x))` (Vaswani et al., 2017).
    - "sandwich": `x + output_norm(f(norm(x)))` (Ding et al., "CogView", 2021; Gemma Team,
      "Gemma 2", 2024).
    - "output": `x + output_norm(f(x))` (OLMo Team, "2 OLMo 2 Furious", 2024).

    With a parallel `config.residual`, both sublayers have the same input:
    `x + attention(norm(x)) + feed_forward(norm(x))` (Wang and Komatsuzaki, "GPT-J-6B", 2021).

    Dropout acts on a sublayer's output, just before the residual sum.

    To use your own block, pass a module with the same call signature to a model as `block`. It is
    created as `block(config)`, plus `attention_norm` if not at its default. It must return a
    `BlockOutput`, with the cache of its attention if it is given one, with `cross_cache` if its
    context has an encoder's output, and with `AttentionWeights` if they are requested. If the model
    is called with `Taps`, the block gets a `LayerTaps` as argument `tap`, if it has one, and passes
    it to its layers. Values that it sows into the collection "losses" are added to the training
    loss. A scan stacks the values that its layers sow and a loop lists them, so sum over all
    elements of all leaves.

    Args:
        config: the model; the block of an encoder-decoder also attends to the encoder's output.
        attention_norm: whether there is a norm before the attention ("pre" only).
        attention: makes the self-attention layer from the config: a module with the call of
            `MultiHeadAttention`, which it may contain.
        feed_forward: makes the feed-forward layer from the config: a module that maps `[B, T, D]`
            to `[B, T, D]`. If its call has an argument `mask`, and lengths or segments are known,
            it gets bool `[B, T]`, False for padding, so that a router's losses can ignore padding.
            If it has an argument `tap` or `deterministic`, it gets that of the block. By default
            the config's: a mixture of experts if it has `experts`.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(max_len=8, d_model=4, positions="none")
        >>> block, x, causal = Block(config), jnp.ones((2, 3, 4)), AttentionContext(is_causal=True)
        >>> block.apply(block.init(jax.random.key(0), x, causal), x, causal).x.shape
        (2, 3, 4)
    """

    config: ModelConfig
    attention_norm: bool = True
    attention: Callable[..., nn.Module] = MultiHeadAttention
    feed_forward: Callable[..., nn.Module] = make_feed_forward

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        context: AttentionContext,
        *,
        cache: KVCache | WindowCache | None = None,
        cross_cache: KVCache | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
        tap: LayerTaps | None = None,
    ) -> BlockOutput:
        """Maps float `[B, T, D]` to `[B, T, D]`; arguments as in the attention layers.

        Positions, windows and causality are those of the context, not of the config.
        """
        config = self.config
        dropout = nn.Dropout(config.dropout_rate, deterministic=deterministic)
        options: dict[str, Any] = {
            "deterministic": deterministic, "return_weights": return_weights, "tap": tap,
        }  # fmt: skip

        def norm(name: str, x: jax.Array) -> jax.Array:
            """The input of a sublayer."""
            is_bare = name == "attention" and not self.attention_norm
            if is_bare or config.norm_position in ("post", "output"):
                return x
            return Norm(config, name=f"{name}_norm")(x)

        def add(name: str, x: jax.Array, output: jax.Array) -> jax.Array:
            """The residual stream after a sublayer."""
            if config.norm_position in ("sandwich", "output"):
                output = Norm(config, name=f"{name}_output_norm")(output)
            x = x + config.residual_scale * dropout(output)
            return Norm(config, name=f"{name}_norm")(x) if config.norm_position == "post" else x

        def feed_forward(normed: jax.Array) -> jax.Array:
            layer = self.feed_forward(config, name="feed_forward")
            arguments = {
                "mask": context.real_tokens(x.shape[1]), "tap": tap, "deterministic": deterministic,
            }  # fmt: skip
            output = layer(normed, **known_arguments(layer, arguments))
            return output if tap is None else tap("feed_forward_output", output)

        attention = self.attention(config, name="attention")
        inputs, normed = x, norm("attention", x)  # [B, T, D]
        attended = attention(normed, context, cache=cache, **options)
        _check_attention(attention, attended)
        x, cross_weights = add("attention", x, attended.output), None
        if config.has_cross_attention:
            cross_attention = CrossAttention(config, name="cross_attention")
            queries = norm("cross_attention", x)
            crossed = cross_attention(queries, context, cross_cache=cross_cache, **options)
            x = add("cross_attention", x, crossed.output)
            cross_cache, cross_weights = crossed.cache, crossed.weights
        if config.residual != "parallel_one_norm":
            normed = norm("feed_forward", x if config.residual == "sequential" else inputs)
        x = add("feed_forward", x, feed_forward(normed))  # [B, T, D]
        weights = None
        if attended.weights is not None:
            weights = AttentionWeights(attended.weights, cross_weights)
        return BlockOutput(x, attended.cache, cross_cache, weights)


def known_arguments(module: nn.Module, arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that the call of a user's module takes."""
    parameters = inspect.signature(type(module).__call__).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}
