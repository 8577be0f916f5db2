"""The trunk of every model: embedding, positions, a stack of blocks, a final norm.

Axes: `B` batch, `T` tokens, `S` tokens of an encoder, or keys, `N` heads, `D` d_model, `V`
vocabulary, `L` layers.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import freeze

from jaxformer.config import LayerConfig, ModelConfig
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention import dot_product_attention
from jaxformer.functional.attention_function import AttentionFunction
from jaxformer.functional.cache import KVCache, WindowCache
from jaxformer.functional.multi_head import Rotation
from jaxformer.functional.shapes import check_axes, check_broadcast
from jaxformer.models.inputs import (
    TransformerInputs,
    check_attention_array,
    check_lengths,
    check_tokens,
)
from jaxformer.modules.attention import AttentionContext
from jaxformer.modules.block import AttentionWeights, Block
from jaxformer.modules.embedding import Embedding
from jaxformer.modules.normalization import Norm
from jaxformer.modules.positions import Positions, make_positions
from jaxformer.modules.stack import Cache, Stack

__all__ = ["AttentionFunctions", "Transformer", "TransformerOutput"]

AttentionFunctions = AttentionFunction | Mapping[str, AttentionFunction]
"""One attention function for every layer, or functions by the name that layers have for them."""

_OWN = "dot_product"


class TransformerOutput(NamedTuple):
    """Result of a model.

    Under jit, what is not used is not computed: hidden states cost no logits.

    Args:
        logits: float32; `[B, T, V]` of a language model, those at t score the token at t + 1, or
            at t where tokens are masked; `[B, num_classes]` of a classifier; None of a trunk.
        cache: one cache per layer with the new tokens, when they were given.
        weights: attention weights of all layers, `[L, B, N, T, S]`, when asked for.
        hidden: float `[B, T, D]`, one vector per token, after the final norm.
        cross_cache: keys and values of the encoder's output, one per layer, when a cache was given.
    """

    logits: jax.Array | None
    cache: Cache | None
    weights: AttentionWeights | None
    hidden: jax.Array
    cross_cache: tuple[KVCache, ...] | None


class Transformer(nn.Module):
    """Embedding, positions, a stack of blocks, and a final norm (none for post-norm).

    `Decoder` and `Encoder` are this module with a head, and both halves of an `EncoderDecoder`.

    Args:
        config: the model; its vocab_size must be set.
        causal: whether tokens attend to no later ones. Where they may, a mask can say to which.
        cross_attention: whether blocks attend to an encoder's output as well.
        block: makes the block of all layers; see `modules.Block` for what is asked of it.
        attention_fn: what computes self-attention, with the signature of
            `functional.dot_product_attention`: one function for every layer, or a dict of
            functions, which layers take by the `attention` of `config.layers`. In a dict
            "dot_product" is the function of the layers that name none.
        position_scheme: the model's positions, in place of `config.positions`. Layers whose own
            entry in `config.layers` has positions keep those.
        shared_embedding: a table that is shared with another model; its own when not given.
        has_output: whether hidden states are ever scored against the vocabulary.

    Raises:
        ConfigError: vocab_size is not set; a layer's attention is not among the functions, or a
            function is not that of any layer; position_scheme is no `Positions`.

    References:
        Vaswani et al., "Attention Is All You Need", 2017.

    Example:
        >>> config = ModelConfig(vocab_size=11, max_len=8, num_layers=2, d_model=4, num_heads=2)
        >>> model, tokens = Transformer(config), jnp.array([[1, 2, 3]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> model.apply(variables, tokens).hidden.shape
        (1, 3, 4)
    """

    config: ModelConfig
    causal: bool = False
    cross_attention: bool = False
    block: Callable[..., nn.Module] = Block
    attention_fn: AttentionFunctions = dot_product_attention
    position_scheme: Positions | None = None
    shared_embedding: Embedding | None = None
    has_output: bool = True

    def __post_init__(self) -> None:
        """Makes the module hashable, which a dict of functions would not be."""
        if isinstance(self.attention_fn, Mapping):
            self.attention_fn = freeze(dict(self.attention_fn))
        super().__post_init__()

    def setup(self) -> None:
        """Makes the submodules."""
        config = self.config
        if self.shared_embedding is None:
            self.embedding = Embedding(config, has_output=self.has_output)
        if self.position_scheme is None:
            self.positions = make_positions(config, causal=self.causal)
        elif not isinstance(self.position_scheme, Positions):
            raise ConfigError(
                "position_scheme must be a modules.Positions, made and not only named, got "
                f"{self.position_scheme!r}; a scheme by name is config.positions"
            )
        else:
            # A copy, so that both halves of an encoder-decoder have parameters of their own.
            self.positions = self.position_scheme.clone(parent=None, name=None)
        self._check_attention_names()
        others = [o.positions for o in config.layer_overrides if o.positions is not None]
        configs = {c: dataclasses.replace(config, positions=c) for c in others}
        self.layer_positions = [make_positions(c, causal=self.causal) for c in configs.values()]
        self._index_of_positions = {c: i for i, c in enumerate(configs)}
        self.dropout = nn.Dropout(config.dropout_rate)
        self.stack = Stack(config, self.cross_attention, self.block)
        if config.norm_position != "post":
            self.final_norm = Norm(config)

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Hidden states of integer `[B, T]` tokens; the arguments are those of `hidden_states`."""
        return self.hidden_states(tokens, **inputs)

    def hidden_states(
        self,
        tokens: jax.Array,
        *,
        lengths: jax.Array | None = None,
        positions: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        mask: jax.Array | None = None,
        bias: jax.Array | None = None,
        cache: Cache | None = None,
        encoded: jax.Array | None = None,
        encoded_lengths: jax.Array | None = None,
        encoded_mask: jax.Array | None = None,
        cross_cache: tuple[KVCache, ...] | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
    ) -> TransformerOutput:
        """Hidden states that logits are made from.

        Args:
            tokens: integer `[B, T]`.
            lengths: int `[B]`, how many of the T are real in each row, the first ones; all when
                not given. What the others hold changes nothing.
            positions: integer `[B, T]`; counted from 0, or from the cached tokens, when not given.
                Biases (ALiBi, relative) count tokens by their order in the row and ignore them.
            segment_ids: integer `[B, T]`; tokens attend to their own segment only.
            mask: bool, True = attend, which broadcasts to `[B, N, T, S]` with that rank, or is
                `[T, S]`; S is T, or with a cache its capacity. It acts in every layer, and on
                top of what the model itself allows: causal order, windows, lengths, segments.
            bias: float, added to the scores of every layer; shaped like the mask.
            cache: one cache per layer of the earlier tokens, as `init_cache` makes them.
            encoded: float `[B, S, D]`, an encoder's output, for cross-attention.
            encoded_lengths: int `[B]`, how many of its S are real.
            encoded_mask: bool, True = attend to that of the encoder; broadcasts to `[B, N, T, S]`.
            cross_cache: keys and values of the encoded, which an earlier call with a cache
                returned, in its place.
            deterministic: whether dropout is off; if not, pass `rngs={"dropout": key}`.
            return_weights: whether to return the attention weights of all layers.

        Returns:
            Hidden states, without logits.

        Raises:
            ShapeError: an array does not fit; or what cross-attention attends to is missing, given
                twice, or given to a model without it.
        """
        sizes = check_tokens("tokens", tokens, self.config.max_len)
        check_lengths("lengths", lengths, sizes["B"])
        self._check_encoded(sizes["B"], encoded, encoded_lengths, encoded_mask, cross_cache)
        for index, layer in enumerate(cache or ()):
            check_lengths(f"cache[{index}].lengths", layer.lengths, sizes["B"])
        num_keys = sizes["T"] if cache is None else _capacity(cache, mask, bias)
        shape = (sizes["B"], self.config.num_heads, sizes["T"], num_keys)
        cached = cache is not None
        mask = check_attention_array("mask", mask, "bool", shape, cached=cached)
        bias = check_attention_array("bias", bias, "floating", shape, cached=cached)
        if encoded_mask is not None:
            keys = encoded if cross_cache is None else cross_cache[0].key
            shape = (*shape[:3], 0 if keys is None else keys.shape[1])
            encoded_mask = check_attention_array("encoded_mask", encoded_mask, "bool", shape)
        if positions is None:
            positions = jnp.arange(sizes["T"], dtype=jnp.int32)[None]
            if cache is not None:
                positions = positions + cache[0].lengths[:, None]
            positions = jnp.broadcast_to(positions, tokens.shape)
        check_axes("positions", positions, "B T", sizes)
        x = self._table()(tokens)
        encoding = self.positions.encoding(positions)
        if encoding is not None:
            check_broadcast(
                "encoding of the position scheme", encoding, x.shape, "B T D",
                remedy="config.d_model is D",
            )  # fmt: skip
            x = x + encoding.astype(x.dtype)
        x = self.dropout(x, deterministic=deterministic)
        shared = AttentionContext(
            is_causal=self.causal,
            mask=mask,
            bias=bias,
            segment_ids=segment_ids,
            lengths=lengths,
            encoded=encoded,
            encoded_lengths=encoded_lengths,
            encoded_mask=encoded_mask,
        )
        output = self.stack(
            x, self._contexts(shared, positions, cache), cache=cache, cross_cache=cross_cache,
            deterministic=deterministic, return_weights=return_weights,
        )  # fmt: skip
        hidden = output.x if self.config.norm_position == "post" else self.final_norm(output.x)
        return TransformerOutput(None, output.cache, output.weights, hidden, output.cross_cache)

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Scores float `[..., D]` hidden states: float32 `[..., V]`."""
        return self._table().logits(hidden)

    def output_table(self) -> jax.Array:
        """Returns float `[V, D]`, what hidden states are scored against."""
        return self._table().output_table()

    def _table(self) -> Embedding:
        return self.embedding if self.shared_embedding is None else self.shared_embedding

    def _contexts(
        self, shared: AttentionContext, positions: jax.Array, cache: Cache | None
    ) -> list[AttentionContext]:
        """Structure of the attention of each layer; layers of one kind share theirs."""
        rotations: dict[int | None, Rotation | None] = {}
        contexts: dict[tuple[LayerConfig, int | None], AttentionContext] = {}
        result = []
        for index, layer in enumerate(self.config.layer_overrides):
            layer_cache = None if cache is None else cache[index]
            slots = None if layer_cache is None else layer_cache.key.shape[1]
            key = (layer, slots)
            if key not in contexts:
                chosen = None
                if layer.positions is not None:
                    chosen = self._index_of_positions[layer.positions]
                scheme = self.positions if chosen is None else self.layer_positions[chosen]
                if chosen not in rotations:
                    rotations[chosen] = scheme.rotation(positions)
                context = dataclasses.replace(
                    shared,
                    local_window_size=self._window(layer),
                    attention_fn=self._attention_fn(layer.attention),
                    rotation=rotations[chosen],
                )
                num_queries = positions.shape[1]
                contexts[key] = _with_bias(context, scheme, num_queries, layer_cache)
            result.append(contexts[key])
        return result

    def _window(self, layer: LayerConfig) -> tuple[int, int] | None:
        size = layer.local_window_size
        size = self.config.local_window_size if size is None else size
        return None if size is None else (size, 0 if self.causal else size)

    def _check_attention_names(self) -> None:
        """Raises where a function was given that no layer would ever call."""
        if not isinstance(self.attention_fn, Mapping):
            return
        names = {_OWN if o.attention is None else o.attention for o in self.config.layer_overrides}
        unused = [name for name in self.attention_fn if name not in names]
        if unused:
            raise ConfigError(
                f"attention_fn must be of functions that layers name, got {unused[0]!r}, and "
                f"layers with attention {', '.join(map(repr, sorted(names)))}; name it in "
                "config.layers, or pass the function itself for every layer"
            )

    def _attention_fn(self, name: str | None) -> AttentionFunction:
        functions = self.attention_fn
        if not isinstance(functions, Mapping):
            if name in (None, _OWN):
                return functions
            functions = {}
        functions = {_OWN: dot_product_attention, **functions}
        name = _OWN if name is None else name
        if name not in functions:
            raise ConfigError(
                f"a layer's attention must be one of {', '.join(functions)}, got {name!r}; pass "
                f"attention_fn={{{name!r}: a function}} to the model"
            )
        return functions[name]

    def _check_encoded(
        self,
        batch: int,
        encoded: jax.Array | None,
        encoded_lengths: jax.Array | None,
        encoded_mask: jax.Array | None,
        cross_cache: tuple[KVCache, ...] | None,
    ) -> None:
        """Raises where the encoder's output would be ignored, or does not fit."""
        arguments = {
            "encoded": encoded, "encoded_lengths": encoded_lengths, "cross_cache": cross_cache,
            "encoded_mask": encoded_mask,
        }  # fmt: skip
        given = [name for name, value in arguments.items() if value is not None]
        if given and not self.cross_attention:
            raise ShapeError(
                f"{given[0]} is for a model with cross-attention, got it for one without; leave it "
                "out, or use an EncoderDecoder"
            )
        if cross_cache is not None and given[0] != "cross_cache":
            raise ShapeError(
                f"cross_cache stands in place of {given[0]}, got both; leave {given[0]} out"
            )
        if encoded is not None:
            check_axes("encoded", encoded, "B S D", {"B": batch, "D": self.config.d_model})
        check_lengths("encoded_lengths", encoded_lengths, batch)


def _capacity(cache: Cache, mask: jax.Array | None, bias: jax.Array | None) -> int:
    """How many keys, counted from the first token, a mask or bias has for a cache.

    That is the capacity of the layers that keep all keys. Where every layer has a window there is
    none, and any number will do that has a key for every token.
    """
    whole = [layer.capacity for layer in cache if isinstance(layer, KVCache)]
    given = [array.shape[-1] for array in (mask, bias) if array is not None]
    return whole[0] if whole else max(given, default=1)


def _with_bias(
    context: AttentionContext, scheme: Positions, num_queries: int,
    cache: KVCache | WindowCache | None,
) -> AttentionContext:  # fmt: skip
    """Adds the bias of a position scheme, and puts bias and mask into the order of a cache."""
    if isinstance(cache, WindowCache):
        bias = scheme.bias(num_queries, cache.window + num_queries, cache.window)
        context = dataclasses.replace(
            context,
            bias=None if context.bias is None else cache.by_slot(context.bias, num_queries),
            mask=None if context.mask is None else cache.by_slot(context.mask, num_queries),
        )
    elif cache is not None:
        bias = scheme.bias(num_queries, cache.capacity, cache.lengths)
    else:
        bias = scheme.bias(num_queries, num_queries, 0)
    if cache is not None and not context.is_causal and context.mask is None:
        # Attention wants to be told that the new tokens may attend to all others.
        context = dataclasses.replace(context, mask=jnp.ones((1, 1, 1, 1), bool))
    if bias is None:
        return context
    return dataclasses.replace(context, bias=bias if context.bias is None else context.bias + bias)
