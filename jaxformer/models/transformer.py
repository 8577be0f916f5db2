"""The trunk of every model: embedding, positions, a stack of blocks, a final norm.

Axes: `B` batch, `T` tokens, `S` keys, or tokens of an encoder, `N` heads, `D` d_model, `V`
vocabulary, `L` layers.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import freeze

from jaxformer.config import LayerConfig, ModelConfig
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention import dot_product_attention
from jaxformer.functional.cache import KVCache, WindowCache
from jaxformer.functional.embedding import check_known_tokens, table_rows
from jaxformer.functional.options import static_bool
from jaxformer.functional.shapes import as_array, check_axes, check_broadcast, check_dtype
from jaxformer.models.contexts import AttentionFunctions, layer_contexts
from jaxformer.models.inputs import (
    TransformerInputs,
    check_attention_array,
    check_caches,
    check_lengths,
    check_tokens,
    check_vectors,
)
from jaxformer.models.model import Model
from jaxformer.modules.attention import AttentionContext
from jaxformer.modules.block import AttentionWeights, Block
from jaxformer.modules.embedding import Embedding, in_dtype
from jaxformer.modules.initializers import kernel_init, param_dtype
from jaxformer.modules.normalization import Norm
from jaxformer.modules.positions import Positions, make_positions
from jaxformer.modules.stack import Cache, Stack

__all__ = ["Transformer", "TransformerOutput", "TransformerParts"]


class TransformerOutput(NamedTuple):
    """Result of a model. Under jit, outputs that the caller does not use are not computed.

    Args:
        logits: float32; `[B, T, V]` of a language model, those at t score the token at t + 1, or
            at t where tokens are masked; `[B, num_classes]` of a classifier; None of a trunk.
        cache: one cache per layer with the new tokens, when they were given.
        weights: `AttentionWeights` of all layers, when asked for, whose arrays are
            `[L, B, N, T, S]`.
        hidden: float `[B, T, D]`, one vector per token, after the final norm, from which logits are
            made; as wide as the table in a decoder with a narrower one that is tied.
        cross_cache: keys and values of the encoder's output, one per layer, when a cache was given.
        pooled: float32 (float64 for float64) `[B, D]`, one vector per row, of models that pool.
    """

    logits: jax.Array | None
    cache: Cache | None
    weights: AttentionWeights | None
    hidden: jax.Array
    cross_cache: tuple[KVCache, ...] | None
    pooled: jax.Array | None = None


class Transformer(Model):
    """Embedding, positions, a stack of blocks, and a final norm (none for post-norm).

    `Decoder` and `Encoder` are subclasses; an `EncoderDecoder` consists of two of these.

    Args:
        config: the model. A model that is called on vectors alone needs no vocab_size.
        causal: whether attention is causal. If not, a mask can say which later tokens are hidden.
        cross_attention: whether blocks attend to an encoder's output as well.
        block: makes the block of all layers; see `modules.Block` for what is asked of it.
        attention_fn: computes self-attention, with the signature of
            `functional.dot_product_attention`: one function for every layer, or a dict of
            functions, from which layers choose by the `attention` of `config.layers`. In a dict
            "dot_product" is the function of the layers that name none. With rotary positions it
            is called on rotated queries and keys, whose products alone depend on the distance: a
            feature map after that, as of linear attention, sees absolute positions.
        position_scheme: position scheme in place of that of `config.positions`. Layers whose own
            entry in `config.layers` has positions keep those.
        shared_embedding: embedding shared with another model; a new one when not given.
        has_output: whether the model makes logits; if not, there is no output table.

    Raises:
        ConfigError: vocab_size is not set, for tokens; a layer's attention is not among the
            functions, or a function is not that of any layer; position_scheme is no `Positions`.

    References:
        Vaswani et al., "Attention Is All You Need", 2017.

    Example:
        >>> config = ModelConfig(vocab_size=11, max_len=8, num_layers=2, d_model=4, num_heads=2)
        >>> model, tokens = Transformer(config), jnp.array([[1, 2, 3]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> model.apply(variables, tokens).hidden.shape
        (1, 3, 4)

        Vectors in place of tokens, such as patches of an image:

        >>> config = ModelConfig(max_len=8, num_layers=2, d_model=4, num_heads=2)
        >>> model, patches = Transformer(config), jnp.ones((1, 3, 4))
        >>> variables = jax.jit(model.init)(jax.random.key(0), patches)
        >>> model.apply(variables, patches).hidden.shape
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
        """Makes the module hashable, so that it can be a static argument of jit."""
        self.attention_fn = _hashable(self.attention_fn)
        super().__post_init__()

    def setup(self) -> None:
        """Creates the submodules."""
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
            # A module given as a field may be bound to another parent; an unbound copy has its
            # parameters here, under "positions".
            self.positions = self.position_scheme.clone(parent=None, name=None)
        # One module for each kind of positions that layers override, in the order of the layers.
        others = [o.positions for o in config.layer_overrides if o.positions is not None]
        configs = {c: dataclasses.replace(config, positions=c) for c in others}
        self.layer_positions = [make_positions(c, causal=self.causal) for c in configs.values()]
        self._index_of_positions = {c: i for i, c in enumerate(configs)}
        if config.num_token_types is not None:
            shape = (config.num_token_types, config.d_model)
            init, dtype = kernel_init(config), param_dtype(config)
            self.token_type_table = self.param("token_type_embedding", init, shape, dtype)
        if config.embedding_norm:
            self.embedding_norm = Norm(config)
        self.dropout = nn.Dropout(config.dropout_rate)
        self.stack = Stack(config, self.cross_attention, self.block)
        if config.norm_position != "post":
            self.final_norm = Norm(config)

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Hidden states of tokens, or of vectors, with the arguments of `hidden_states`."""
        return self.hidden_states(tokens, **inputs)

    def hidden_states(
        self,
        tokens: jax.Array,
        *,
        lengths: jax.Array | None = None,
        positions: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        token_types: jax.Array | None = None,
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
            tokens: integer `[B, T]`, each in 0 .. V-1. Where their values are traced, one out of
                range cannot be raised, and makes what attends to it NaN. Or float `[B, T, D]`:
                vectors in place of the tokens' embeddings, taken as they are, unscaled. What is
                said of tokens below is then true of vectors.
            lengths: int `[B]`, number of real tokens at the start of each row; T when not given.
                The ids of the others, the padding, change nothing.
            positions: integer `[B, T]`; counted from 0, or from the cached tokens, when not given.
                Biases (ALiBi, relative) count tokens by their order in the row and ignore them.
            segment_ids: integer `[B, T]`; tokens attend to their own segment only.
            token_types: integer `[B, T]`, each in 0 .. num_token_types-1; all 0 when not given.
            mask: bool, True = attend, which broadcasts to `[B, N, T, S]` with that rank, or is
                `[T, S]`; S is T, or with a cache its capacity. It acts in every layer, and on
                top of what the model itself allows: causal order, windows, lengths, segments.
            bias: float, added to the scores of every layer; shaped like the mask.
            cache: keys and values of the earlier tokens, one cache per layer, from `init_cache`
                or an earlier call.
            encoded: float `[B, S, D]`, the encoder's output, for cross-attention.
            encoded_lengths: int `[B]`, number of real tokens at the start of each of its rows.
            encoded_mask: bool, True = attend; broadcasts to `[B, N, T, S]`, the cross-attention.
            cross_cache: keys and values of the encoder's output, from an earlier call with a
                cache; in place of `encoded` and its lengths.
            deterministic: whether dropout is off; if not, pass `rngs={"dropout": key}`.
            return_weights: whether to return the attention weights of all layers.

        Returns:
            Hidden states, without logits.

        Raises:
            ShapeError: an array does not fit; or `encoded` is missing, given together with
                `cross_cache`, or given to a model without cross-attention; or token_types are
                given to a model without them.
            DataError: a real token whose value is known is out of range.
        """
        are_vectors = getattr(tokens, "ndim", 0) == 3 and jnp.issubdtype(tokens.dtype, jnp.floating)
        if are_vectors:
            sizes = check_vectors("tokens", tokens, self.config.d_model, self.config.max_len)
        else:
            sizes = check_tokens("tokens", tokens, self.config.max_len)
        check_lengths("lengths", lengths, sizes["B"], sizes["T"])
        deterministic = static_bool("deterministic", deterministic)
        return_weights = static_bool("return_weights", return_weights)
        check_caches("cache", cache, KVCache | WindowCache)
        check_caches("cross_cache", cross_cache, KVCache)
        if self.config.vocab_size is not None and not are_vectors:
            check_known_tokens("tokens", tokens, self.config.vocab_size, lengths)
        self._check_encoded(sizes["B"], encoded, encoded_lengths, encoded_mask, cross_cache)
        for index, layer in enumerate(cache or ()):
            check_lengths(f"cache[{index}].lengths", layer.lengths, sizes["B"])
        if segment_ids is not None and cache is not None:
            raise ShapeError(
                "segment_ids are for packed rows without a cache, got both; leave the cache out, "
                "or decode every segment in a row of its own"
            )
        mask = None if mask is None else as_array("mask", mask)
        bias = None if bias is None else as_array("bias", bias)
        num_keys = sizes["T"] if cache is None else _capacity(cache, mask, bias)
        shape = (sizes["B"], self.config.num_heads, sizes["T"], num_keys)
        cached = cache is not None
        mask = check_attention_array("mask", mask, "bool", shape, cached=cached)
        bias = check_attention_array("bias", bias, "floating", shape, cached=cached)
        if encoded_mask is not None:
            num_encoded = 0 if encoded is None else encoded.shape[1]
            if cross_cache is not None:
                num_encoded = cross_cache[0].capacity
            shape = (*shape[:3], num_encoded)
            encoded_mask = check_attention_array("encoded_mask", encoded_mask, "bool", shape)
        if positions is None:
            positions = jnp.arange(sizes["T"], dtype=jnp.int32)[None]
            if cache is not None:  # rows can have cached different numbers of tokens
                positions = positions + cache[0].lengths[:, None]
            positions = jnp.broadcast_to(positions, tokens.shape[:2])
        check_axes("positions", positions, "B T", sizes)
        check_dtype("positions", positions, "integer")
        if segment_ids is not None:
            check_axes("segment_ids", segment_ids, "B T", sizes)
            check_dtype("segment_ids", segment_ids, "integer")
        x = in_dtype(self.config, tokens) if are_vectors else self._table()(tokens)
        encoding = self.positions.encoding(positions)
        if encoding is not None:
            check_broadcast(
                "encoding of the position scheme", encoding, x.shape, "B T D",
                remedy="config.d_model is D",
            )  # fmt: skip
            x = x + encoding.astype(x.dtype)  # float32 would promote all layers of a bfloat16 model
        x = self._with_token_types(x, token_types, lengths)
        if self.config.embedding_norm:
            x = self.embedding_norm(x)
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
        contexts = layer_contexts(
            self.config, shared, positions, cache,
            attention_fn=self.attention_fn, scheme_of=self._scheme, return_weights=return_weights,
        )  # fmt: skip
        output = self.stack(
            x, contexts, cache=cache, cross_cache=cross_cache, deterministic=deterministic,
            return_weights=return_weights,
        )  # fmt: skip
        hidden = output.x if self.config.norm_position == "post" else self.final_norm(output.x)
        if self.config.vocab_size is not None:
            hidden = self._table().narrowed(hidden)
        return TransformerOutput(None, output.cache, output.weights, hidden, output.cross_cache)

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Scores float `[..., D]` hidden states: float32 `[..., V]`."""
        return self._table().logits(hidden)

    def output_table(self) -> jax.Array:
        """Returns float `[V, D]`, what hidden states are scored against."""
        return self._table().output_table()

    def output_bias(self) -> jax.Array | None:
        """Returns float `[V]`, what is added to the scores, or None."""
        return self._table().output_bias()

    def _table(self) -> Embedding:
        return self.embedding if self.shared_embedding is None else self.shared_embedding

    def _with_token_types(
        self, x: jax.Array, token_types: jax.Array | None, lengths: jax.Array | None
    ) -> jax.Array:
        """Adds the vectors of token types to embeddings `[B, T, D]`."""
        count = self.config.num_token_types
        if count is None:
            if token_types is not None:
                raise ShapeError(
                    "token_types are for a model with num_token_types, got them for one without; "
                    "leave them out, or set num_token_types"
                )
            return x
        if token_types is None:
            token_types = jnp.zeros(x.shape[:2], jnp.int32)
        check_axes("token_types", token_types, "B T", dict(zip("BT", x.shape[:2], strict=True)))
        check_known_tokens("token_types", token_types, count, lengths)
        return x + table_rows(self.token_type_table, token_types).astype(x.dtype)

    def _scheme(self, layer: LayerConfig) -> Positions:
        """Position scheme of a layer."""
        if layer.positions is None:
            return self.positions
        return self.layer_positions[self._index_of_positions[layer.positions]]

    def _check_encoded(
        self,
        batch: int,
        encoded: jax.Array | None,
        encoded_lengths: jax.Array | None,
        encoded_mask: jax.Array | None,
        cross_cache: tuple[KVCache, ...] | None,
    ) -> None:
        """Checks that the encoder's output fits, and that the model has cross-attention for it."""
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
        most = None if encoded is None else encoded.shape[1]
        check_lengths("encoded_lengths", encoded_lengths, batch, most)


class TransformerParts(Model):
    """Base of the models that are made of one or two `Transformer`s.

    Args:
        config: the model; its vocab_size must be set.
        block: makes the block of all layers, as in `Transformer`.
        attention_fn: computes self-attention, in all layers or by name, as in `Transformer`.
        position_scheme: position scheme in place of that of `config.positions`; each Transformer
            has a copy, with parameters of its own.
    """

    config: ModelConfig
    block: Callable[..., nn.Module] = Block
    attention_fn: AttentionFunctions = dot_product_attention
    position_scheme: Positions | None = None

    def __post_init__(self) -> None:
        """Makes the module hashable, so that it can be a static argument of jit."""
        self.attention_fn = _hashable(self.attention_fn)
        super().__post_init__()

    def _parts(self) -> dict[str, Any]:
        """Block, attention function and position scheme, as arguments of a `Transformer`."""
        return {
            "block": self.block,
            "attention_fn": self.attention_fn,
            "position_scheme": self.position_scheme,
        }


def _hashable(attention_fn: AttentionFunctions) -> AttentionFunctions:
    return freeze(dict(attention_fn)) if isinstance(attention_fn, Mapping) else attention_fn


def _capacity(cache: Cache, mask: jax.Array | None, bias: jax.Array | None) -> int:
    """Size of the key axis that a mask or bias must have with a cache.

    It is the capacity of the layers that keep all keys. Where every layer has a window no capacity
    is known, and the mask's own size is taken.
    """
    whole = [layer.capacity for layer in cache if isinstance(layer, KVCache)]
    given = [array.shape[-1] for array in (mask, bias) if array is not None and array.ndim]
    return whole[0] if whole else max(given, default=1)
