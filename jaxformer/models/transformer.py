"""The trunk of every model, and the decoder: embedding, positions, blocks, a norm, logits.

Axes: `B` batch, `T` tokens, `S` keys or encoder tokens, `N` heads, `D` d_model, `V` vocabulary, `L`
layers.
"""

import dataclasses
from typing import NamedTuple, Unpack

import jax
import numpy as np
from flax import linen as nn

from jaxformer.config import PositionsConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.attention import dot_product_attention
from jaxformer.functional.attention.ring.sharded_ring import exchange
from jaxformer.functional.checks import check_broadcast
from jaxformer.functional.embedding import table_rows
from jaxformer.models.contexts import layer_contexts
from jaxformer.models.model import Model
from jaxformer.models.ring import in_ring_order, ring_layout
from jaxformer.models.transformer_inputs import CheckedInputs, TransformerInputs, check_inputs
from jaxformer.modules.block import AttentionWeights, Block
from jaxformer.modules.embedding import Embedding, in_dtype
from jaxformer.modules.initializers import table_param
from jaxformer.modules.normalization import Norm
from jaxformer.modules.positions import Positions, make_positions
from jaxformer.modules.stack import Stack
from jaxformer.modules.stacked_layers import Cache


class TransformerOutput(NamedTuple):
    """Result of a model. Under jit, outputs that you do not use are not computed.

    Args:
        logits: float32. Language model: `[B, T, V]`; logits at t predict the token at t + 1, or at
            t for masked tokens. Classifier: `[B, num_classes]`. Trunk: None.
        cache: one cache per layer with the new tokens, if caches were given.
        weights: `AttentionWeights` of all layers, arrays `[L, B, N, T, S]`, if requested.
        hidden: float `[B, T, D]`, one vector per token, after the final norm and before the logits.
            A decoder with a tied, narrower table returns them as wide as the table.
        cross_cache: keys and values of the encoder's output, one per layer, if a cache was given.
        pooled: float32 (float64 for float64) `[B, D]`, one vector per row, from models that pool.
        taps: what `taps` reads, by place, stacked over layers `[L, ...]`; None without taps.
    """

    logits: jax.Array | None
    cache: Cache | None
    weights: AttentionWeights | None
    hidden: jax.Array
    cross_cache: Cache | None
    pooled: jax.Array | None = None
    taps: dict[str, jax.Array] | None = None


class Transformer(Model):
    """Embedding, positions, a stack of blocks, and a final norm (none for post-norm).

    `Decoder` and `Encoder` are subclasses; an `EncoderDecoder` contains two of these.

    Args:
        config: the model. If you call the model only on vectors, vocab_size may be unset.
        block: makes the block of all layers; see `modules.Block` for the requirements.
        attention_fn: self-attention function with the signature of
            `functional.dot_product_attention`, for all layers; or a dict of functions, from which
            each layer chooses by its `attention` in `config.layers`. In a dict, "dot_product" is
            the function of layers that name none. With rotary positions, queries and keys are
            already rotated, and only their products depend on distance: a feature map applied to
            them, as in linear attention, sees absolute positions.
        position_scheme: position scheme instead of `config.positions`. Layers with their own
            positions in `config.layers` keep those.
        causal: whether attention is causal. If not, use a mask to hide later tokens.
        shared_embedding: embedding shared with another model; a new one when not given.
        has_output: whether the model has logits; False = no output table.

    Raises:
        ConfigError: vocab_size is not set (for tokens); a layer names an attention that is not in
            the dict, or a function is used by no layer; position_scheme is not a `Positions`.

    References:
        Vaswani et al., "Attention Is All You Need", 2017.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxformer.config import ModelConfig
        >>> config = ModelConfig(vocab_size=11, max_len=8, num_layers=2, d_model=4, num_heads=2)
        >>> model, tokens = Transformer(config), jnp.array([[1, 2, 3]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> model.apply(variables, tokens).hidden.shape
        (1, 3, 4)
    """

    causal: bool = False
    shared_embedding: Embedding | None = None
    has_output: bool = True

    def setup(self) -> None:
        """Creates the submodules."""
        config = self.config
        if self.shared_embedding is None:
            self.embedding = Embedding(config, has_output=self.has_output)
        if self.position_scheme is None:
            self.positions = make_positions(config, causal=self.causal)
        elif not isinstance(self.position_scheme, Positions):
            raise ConfigError(
                "position_scheme must be an instance of modules.Positions, got "
                f"{self.position_scheme!r}; to choose a scheme by name, set config.positions"
            )
        else:
            # A module passed as a field may be bound to another parent; the parameters of an
            # unbound copy are here, under "positions".
            self.positions = self.position_scheme.clone(parent=None, name=None)
        self.layer_positions = [
            make_positions(dataclasses.replace(config, positions=kind), causal=self.causal)
            for kind in self._kinds_of_positions()
        ]
        if config.num_token_types is not None:
            axes, shape = ("token_types", "embed"), (config.num_token_types, config.d_model)
            self.token_type_table = table_param(self, "token_type_embedding", config, axes, *shape)
        if config.embedding_norm:
            self.embedding_norm = Norm(config)
        self.dropout = nn.Dropout(config.dropout_rate)
        self.stack = Stack(config, self.block)
        if config.norm_position != "post":
            self.final_norm = Norm(config)

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Hidden states of tokens or vectors; arguments as in `hidden_states`."""
        return self.hidden_states(tokens, **inputs)

    def hidden_states(
        self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]
    ) -> TransformerOutput:
        """Hidden states before the logits.

        Args:
            tokens: integer `[B, T]`, each in 0 .. V-1. A traced token out of range cannot raise an
                error and makes everything that attends to it NaN. Or float `[B, T, D]`: vectors
                used unscaled instead of token embeddings, in place of tokens everywhere below.
            **inputs: as in `TransformerInputs`.

        Returns:
            Hidden states, without logits.

        Raises:
            ShapeError: an array does not fit; or `encoded` is missing, is given together with
                `cross_cache`, or is given to a model without cross-attention; or token_types are
                given to a model without them.
            DataError: a known real token is out of range.
        """
        config = self.config
        checked = check_inputs(config, tokens, is_causal=self.causal, **inputs)
        ring = None
        if self._knows_no_order(checked):
            ring = ring_layout(config, checked.context, *checked.positions.shape)
        if ring is not None:
            tokens, checked = in_ring_order(tokens, checked, ring)
        x = self._embed(tokens, checked)  # [B, T, D]
        schemes = zip(self._kinds_of_positions(), self.layer_positions, strict=True)
        contexts = layer_contexts(
            config, checked, attention_fn=self.attention_fn,
            schemes={None: self.positions, config.positions: self.positions, **dict(schemes)},
        )  # fmt: skip
        output = self.stack(
            x, contexts, cache=checked.cache, cross_cache=checked.cross_cache, taps=checked.taps,
            deterministic=checked.deterministic, return_weights=checked.return_weights,
        )  # fmt: skip
        hidden = output.x if config.norm_position == "post" else self.final_norm(output.x)
        if config.vocab_size is not None:
            hidden = self.output_embedding().narrowed(hidden)  # [B, T, D] or [B, T, table_dim]
        hidden = hidden if ring is None else exchange(hidden, ring, back=True)
        return TransformerOutput(
            None, output.cache, output.weights, hidden, output.cross_cache, taps=output.taps
        )

    def _embed(self, tokens: jax.Array, inputs: CheckedInputs) -> jax.Array:
        """Embeddings `[B, T, D]` of tokens, positions and token types, as the stack gets them."""
        x = self.output_embedding()(tokens) if tokens.ndim == 2 else in_dtype(self.config, tokens)
        encoding = self.positions.encoding(inputs.positions)  # [B, T, D]
        if encoding is not None:
            check_broadcast(
                "encoding of the position scheme", encoding, x.shape, "B T D",
                remedy="config.d_model is D",
            )  # fmt: skip
            x = x + encoding.astype(x.dtype)  # float32 would promote all layers of a bfloat16 model
        if inputs.token_types is not None:
            x = x + table_rows(self.token_type_table, inputs.token_types).astype(x.dtype)
        if self.config.embedding_norm:
            x = self.embedding_norm(x)
        return self.dropout(x, deterministic=inputs.deterministic)

    def output_embedding(self) -> Embedding:
        """The model's own embedding, or the shared one."""
        return self.embedding if self.shared_embedding is None else self.shared_embedding

    @nn.nowrap
    def _smallest_inputs(self) -> tuple[np.ndarray, ...]:
        """Tokens `[1, 1]`, or vectors `[1, 1, D]` without a vocabulary."""
        if self.config.vocab_size is None:
            return (np.zeros((1, 1, self.config.d_model), np.float32),)
        return super()._smallest_inputs()

    @nn.nowrap
    def _kinds_of_positions(self) -> list[PositionsConfig]:
        """Kinds of positions that layers have instead of the model's, in layer order."""
        kinds = dict.fromkeys(layer.positions for layer in self.config.layer_overrides)
        of_model = (None, self.config.positions) if self.position_scheme is None else (None,)
        return [kind for kind in kinds if kind is not None and kind not in of_model]

    @nn.nowrap
    def _knows_no_order(self, inputs: CheckedInputs) -> bool:
        """Whether nothing but attention depends on the order of tokens, so that it may be a ring's.

        Parts and arguments of a user's own may, and so do drops of a mixture of experts.
        """
        experts = self.config.experts
        parts = (self.attention_fn, self.block, self.position_scheme)
        arguments = (inputs.cache, inputs.taps, inputs.context.encoded_mask)
        return (
            parts == (dot_product_attention, Block, None)
            and (experts is None or experts.capacity_factor is None)
            and all(argument is None for argument in arguments)
            and not inputs.needs_weights
        )


class Decoder(Transformer):
    """A causal `Transformer` with logits: every token attends to itself and to earlier tokens.

    Takes the arguments of `Transformer`; `config` has architecture "decoder". For a prefix language
    model, pass causal=False and a mask that is causal outside the prefix.

    Raises:
        ConfigError: the config has another architecture, or num_classes.

    References:
        Vaswani et al., "Attention Is All You Need", 2017; Radford et al., "Language Models are
        Unsupervised Multitask Learners", 2019.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxformer.config import ModelConfig
        >>> config = ModelConfig(vocab_size=11, max_len=8, num_layers=2, d_model=4, num_heads=2)
        >>> model, tokens = Decoder(config), jnp.array([[1, 2, 3]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> model.apply(variables, tokens).logits.shape
        (1, 3, 11)
    """

    causal: bool = True

    def setup(self) -> None:
        """Checks the architecture, and creates the submodules."""
        self._require_architecture("decoder", "a Decoder")
        if self.config.num_classes is not None:
            raise ConfigError(
                "a Decoder predicts tokens, got num_classes="
                f"{self.config.num_classes}; remove it, or use a SequenceClassifier"
            )
        super().setup()

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Logits `[B, T, V]` of the next token at every position.

        Args:
            tokens: integer `[B, T]`.
            **inputs: as in `TransformerInputs`.
        """
        output = self.hidden_states(tokens, **inputs)
        return output._replace(logits=self.logits(output.hidden))
