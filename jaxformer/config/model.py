"""Config of a model."""

import dataclasses
import itertools
from typing import Literal

from jaxformer.config.checks import (
    require,
    require_at_most,
    require_positive,
    require_shares,
    require_types,
)
from jaxformer.config.kinds import resolve_kinds
from jaxformer.config.layers import LayerConfig, check_layers
from jaxformer.config.positions import PositionsConfig, RelativeConfig, RotaryConfig
from jaxformer.errors import ConfigError

__all__ = ["ModelConfig"]

Float = Literal["float32", "bfloat16"]

# Far more than any model has, and few enough that shapes and layers can be counted.
_MAX_LAYERS = 10_000
_MAX_WIDTH = 2**24

# Keys that only some architectures have.
_ONLY_FOR = {
    "num_encoder_layers": "encoder_decoder",
    "source_vocab_size": "encoder_decoder",
    "num_classes": "encoder",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Architecture and sizes of a Transformer; hashable, so that Flax modules can hold it.

    Args:
        architecture: "decoder", a causal language model; "encoder", bidirectional; or
            "encoder_decoder", from one sequence to another.
        vocab_size: number of token ids; the tokenizer's when not given.
        max_len: longest sequence in tokens; also the training window.
        num_layers: number of blocks; those of the decoder, where there is an encoder as well.
        num_encoder_layers: number of encoder blocks in an encoder-decoder; num_layers when not
            given.
        source_vocab_size: number of source token ids in an encoder-decoder whose encoder has a
            vocabulary, and so an embedding table, of its own; both share one when not given.
        num_classes: number of classes of an encoder that classifies; when not given, it predicts
            masked tokens.
        d_model: width of the residual stream.
        num_heads: query heads.
        num_kv_heads: key/value heads, a divisor of num_heads; num_heads when not given.
        head_dim: width of a query and key head; d_model / num_heads when not given.
        value_head_dim: width of a value head; head_dim when not given.
        d_ff: hidden width of the feed-forward layer; 4 * d_model when not given.
        positions: how a token's position enters the model: added to the embeddings (sinusoidal,
            learned), by rotating queries and keys (rotary), or as a bias on the attention scores,
            fixed (alibi) or learned (relative); each kind is a config with settings of its own.
            In Python a string is shorthand for that kind with its defaults, and is replaced by
            its config.
        layers: overrides for single layers, a pattern that repeats over the depth; the last repeat
            may be incomplete. In an encoder-decoder both stacks have it.
        first_layers: overrides for the first layers, after which the pattern starts.
        local_window_size: attention window: how many earlier tokens a token attends to besides
            itself; all when not given. A window of W in Mistral 7B (Jiang et al., 2023), which
            counts the token itself, is W - 1 here.
        attention_softcap: c in c * tanh(x / c) of the attention scores, as in Gemma 2 (Gemma
            Team, 2024); no cap when not given.
        logit_softcap: c in c * tanh(x / c) of the logits; no cap when not given.
        qk_norm: whether each query and key head is RMS-normalized, with a learned scale, before
            it is rotated, as in Qwen 3 (Qwen Team, 2025).
        attention_implementation: how attention is computed: "dense" holds all weights in memory,
            "chunked" a part of them, "cudnn" is a GPU kernel, and "auto" chooses the best that
            supports the options. Calls with a cache always use "auto".
        norm: kind of normalization.
        norm_position: before each sublayer ("pre"), after its residual sum ("post"), or before it
            and on its output ("sandwich").
        norm_eps: added to the variance.
        activation: of the feed-forward layer; swiglu and geglu add a gate projection.
        use_bias: whether projections and layer norms have biases.
        embedding_dim: width of the embedding table, where it is not d_model, such as that of
            pretrained vectors; a learned projection follows it.
        frozen_embeddings: whether the embedding table is not trained. This and embedding_dim apply
            to the source's table, where it has one of its own.
        tied_embeddings: whether the output projection is the embedding table.
        scale_embeddings: whether embeddings are multiplied by sqrt(d_model).
        init_std: standard deviation of initial weights; those of projections into the residual
            stream are divided by the root of their number, 2 a layer, or 3 in a decoder with
            cross-attention (Radford et al., GPT-2, 2019).
        dropout_rate: dropout rate of embeddings, attention weights and sublayer outputs.
        dtype: dtype of the computation; float64 parameters are computed with in float64.
        param_dtype: dtype of the parameters.
        remat: what the backward pass recomputes: nothing ("none"), all but matrix products
            ("dots"), or all ("full").
        layer_execution: how the layers run: as one compiled "scan", whose compile time does not
            grow with the depth, or as a "loop", which XLA optimizes across layers; "auto" chooses.
            The result is the same.
    """

    architecture: Literal["encoder", "decoder", "encoder_decoder"] = "decoder"
    vocab_size: int | None = None
    max_len: int
    num_layers: int
    num_encoder_layers: int | None = None
    source_vocab_size: int | None = None
    num_classes: int | None = None
    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_head_dim: int | None = None
    d_ff: int | None = None
    positions: PositionsConfig = RotaryConfig()
    layers: tuple[LayerConfig, ...] = ()
    first_layers: tuple[LayerConfig, ...] = ()
    local_window_size: int | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    qk_norm: bool = False
    attention_implementation: Literal["auto", "dense", "chunked", "cudnn"] = "auto"
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    norm_position: Literal["pre", "post", "sandwich"] = "pre"
    norm_eps: float = 1e-5
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"] = "gelu"
    use_bias: bool = True
    embedding_dim: int | None = None
    frozen_embeddings: bool = False
    tied_embeddings: bool = True
    scale_embeddings: bool = False
    init_std: float = 0.02
    dropout_rate: float = 0.0
    dtype: Float = "float32"
    param_dtype: Float = "float32"
    remat: Literal["none", "dots", "full"] = "none"
    layer_execution: Literal["auto", "scan", "loop"] = "auto"

    def __post_init__(self) -> None:
        require_types(self)
        resolve_kinds(self)
        require_positive(
            self, "vocab_size", "max_len", "num_layers", "d_model", "num_heads", "num_kv_heads",
            "head_dim", "value_head_dim", "d_ff", "local_window_size", "attention_softcap",
            "logit_softcap", "norm_eps", "init_std", "num_encoder_layers", "source_vocab_size",
            "num_classes", "embedding_dim",
        )  # fmt: skip
        require_at_most(self, _MAX_LAYERS, "num_layers", "num_encoder_layers")
        require_at_most(
            self, _MAX_WIDTH, "d_model", "num_heads", "num_kv_heads", "head_dim", "value_head_dim",
            "d_ff", "embedding_dim",
        )  # fmt: skip
        require_shares(self, "dropout_rate")
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ConfigError(
                "d_model must be a multiple of num_heads, got "
                f"d_model={self.d_model} and num_heads={self.num_heads}; "
                "change one of them, or set head_dim"
            )
        require(
            self.num_heads % self.kv_heads == 0,
            "num_heads must be a multiple of num_kv_heads",
            num_heads=self.num_heads,
            num_kv_heads=self.kv_heads,
        )
        self._check_architecture()
        self._check_embeddings()
        self._check_layers()
        for positions in self._all_positions:
            self._check_positions(positions)
        self._check_implementation()

    def _check_architecture(self) -> None:
        for name, architecture in _ONLY_FOR.items():
            value = getattr(self, name)
            if value is not None and self.architecture != architecture:
                raise ConfigError(
                    f"{name} is for the architecture {architecture!r}, got architecture="
                    f"{self.architecture!r} and {name}={value}; remove it, or change architecture"
                )
        if self.num_classes is not None:
            require(
                self.num_classes >= 2,
                "num_classes must be at least 2",
                num_classes=self.num_classes,
            )

    def _check_embeddings(self) -> None:
        if self.table_dim == self.d_model or not self.tied_embeddings:
            return
        # A classifier has no logits of tokens, and an own table of the source is never the output.
        if self.num_classes is None and self.source_vocab_size is None:
            raise ConfigError(
                "tied embeddings must be as wide as the model, got embedding_dim="
                f"{self.embedding_dim} and d_model={self.d_model}; set tied_embeddings = false"
            )

    def _check_layers(self) -> None:
        depths = {"num_layers": self.num_layers}
        if self.architecture == "encoder_decoder" and self.num_encoder_layers is not None:
            depths["num_encoder_layers"] = self.num_encoder_layers
        check_layers(self.first_layers, self.layers, depths, self.norm_position)
        if self.positions.acts_on == "embeddings":
            for entry in (*self.first_layers, *self.layers):
                if entry.positions is not None:
                    raise ConfigError(
                        f"{self.positions.kind} positions are added to the embeddings, which all "
                        f"layers share, got positions={self.positions.kind!r} and a layer with "
                        f"positions={entry.positions.kind!r}; give every layer positions of its "
                        "own and set model.positions = 'none', or remove those of the layer"
                    )

    @property
    def _all_positions(self) -> tuple[PositionsConfig, ...]:
        """Positions of the model, and of the layers that override them."""
        own = (entry.positions for entry in (*self.first_layers, *self.layers))
        return (self.positions, *(positions for positions in own if positions is not None))

    def _check_positions(self, positions: PositionsConfig) -> None:
        if isinstance(positions, RotaryConfig) and self.key_dim % 2:
            raise ConfigError(
                f"rotary positions need an even head_dim, got head_dim={self.key_dim}; "
                "change d_model, num_heads or head_dim"
            )
        if isinstance(positions, RelativeConfig) and self.architecture != "decoder":
            require(
                positions.num_buckets >= 4 and positions.num_buckets % 2 == 0,
                "num_buckets of relative positions of an encoder must be even, and at least 4: "
                "half are for keys after the query",
                num_buckets=positions.num_buckets,
            )

    def _check_implementation(self) -> None:
        if self.attention_implementation != "cudnn":
            return
        # Limits on head widths and segments depend on the call, so attention itself checks them.
        biases = [p.kind for p in self._all_positions if p.acts_on == "scores"]
        impossible = {
            f"dtype={self.dtype!r}": ("computes in bfloat16", self.dtype == "float32"),
            f"attention_softcap={self.attention_softcap}": (
                "has no soft cap", self.attention_softcap is not None
            ),
            f"positions={' and '.join(map(repr, biases))}": ("takes no bias", bool(biases)),
            f"dropout_rate={self.dropout_rate}": ("has no dropout", self.dropout_rate > 0),
        }  # fmt: skip
        for got, (rule, applies) in impossible.items():
            if applies:
                raise ConfigError(
                    f"attention_implementation 'cudnn' {rule}, got {got}; change one of the two, "
                    "such as to 'auto'"
                )

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads, the default filled in."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def key_dim(self) -> int:
        """Width of a query and key head, the default filled in."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def value_dim(self) -> int:
        """Width of a value head, the default filled in."""
        return self.key_dim if self.value_head_dim is None else self.value_head_dim

    @property
    def ff_dim(self) -> int:
        """Hidden width of the feed-forward layer, the default filled in."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    @property
    def table_dim(self) -> int:
        """Width of the embedding table, the default filled in."""
        return self.d_model if self.embedding_dim is None else self.embedding_dim

    @property
    def layer_overrides(self) -> tuple[LayerConfig, ...]:
        """Overrides of every layer, `num_layers` of them.

        Example:
            >>> windowed, whole = LayerConfig(local_window_size=4), LayerConfig()
            >>> config = ModelConfig(
            ...     max_len=8, num_layers=5, d_model=4, num_heads=2, layers=(windowed, whole)
            ... )
            >>> [layer.local_window_size for layer in config.layer_overrides]
            [4, None, 4, None, 4]
        """
        pattern, rest = self.layers or (LayerConfig(),), self.num_layers - len(self.first_layers)
        return (*self.first_layers, *itertools.islice(itertools.cycle(pattern), rest))

    @property
    def target_embedding(self) -> "ModelConfig":
        """Config of the decoder's embedding; pretrained vectors are for the source's own table."""
        if self.source_vocab_size is None:
            return self
        return dataclasses.replace(self, embedding_dim=None, frozen_embeddings=False)

    @property
    def encoder(self) -> "ModelConfig":
        """Config of the encoder of an encoder-decoder."""
        layers, own = self.num_encoder_layers, self.source_vocab_size
        return dataclasses.replace(
            self,
            architecture="encoder",
            num_layers=self.num_layers if layers is None else layers,
            vocab_size=self.vocab_size if own is None else own,
            num_encoder_layers=None,
            source_vocab_size=None,
            tied_embeddings=self.tied_embeddings and own is None,  # of its own table nothing is
        )
