"""Config of a model."""

import dataclasses
import itertools
from typing import Any, Literal

from jaxformer.config.checks import (
    require,
    require_at_least_zero,
    require_at_most,
    require_positive,
    require_shares,
    require_types,
)
from jaxformer.config.experts import ExpertsConfig
from jaxformer.config.kinds import resolve_kinds
from jaxformer.config.layers import LayerConfig
from jaxformer.config.model_checks import check_model
from jaxformer.config.positions import PositionsConfig, RotaryConfig
from jaxformer.errors import ConfigError

__all__ = ["ModelConfig"]

Float = Literal["float32", "bfloat16"]
BiasedPart = Literal["qkv", "attention_output", "feed_forward", "norm"]

# Far more than any model has, and few enough that shapes and layers can be counted.
_MAX_LAYERS = 10_000
_MAX_WIDTH = 2**24


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
        num_classes: number of classes of an encoder or decoder that classifies, 1 where it gives
            each text a score; when not given, it predicts tokens.
        pooling: what one vector of a row is made of, as to classify it: the "mean" of the hidden
            states of its tokens, the "first" of them, as in BERT, or the "last", as in GPT
            (Radford et al., 2018); "none" of an encoder that classifies each token.
        pooler: activation of a projection between pooling and classes: "tanh", as in BERT, "relu",
            as in DistilBERT (Sanh et al., 2019), "gelu", as in ELECTRA (Clark et al., 2020), or
            "gelu_norm", a GELU and a norm, as in ModernBERT (Warner et al., 2024); no projection
            when not given.
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
            itself, 0 for none of them; all when not given. A window of W in Mistral 7B (Jiang et
            al., 2023), which counts the token itself, is W - 1 here.
        attention_scale: factor of the attention scores; 1 / sqrt(head_dim) when not given. It is
            1 in T5 (Raffel et al., 2020), whose initial weights make up for it.
        attention_softcap: c in c * tanh(x / c) of the attention scores, as in Gemma 2 (Gemma
            Team, 2024); no cap when not given.
        attention_sinks: whether each head of the self-attention has a learned score that takes
            part in the softmax and has no value, so that a head may attend to nothing, as in
            gpt-oss (OpenAI, 2025; Miller, "Attention Is Off By One", 2023).
        logit_scale: factor of the logits, before bias and cap; 1 when not given. It is
            1 / sqrt(d_model) in T5, whose output projection is the embedding table.
        logit_softcap: c in c * tanh(x / c) of the logits; no cap when not given.
        qk_norm: whether queries and keys are RMS-normalized, with a learned scale, before they are
            rotated, as in Qwen 3 (Qwen Team, 2025).
        qk_norm_over: what qk_norm normalizes: each "head" by itself, or "all_heads" at once, as in
            OLMo 2 (OLMo Team, 2024).
        attention_implementation: how attention is computed: "dense" holds all weights in memory,
            "chunked" a part of them, "cudnn" is a GPU kernel, and "auto" chooses the best that
            supports the options. Calls with a cache always use "auto".
        norm: kind of normalization.
        norm_position: before each sublayer ("pre"), after its residual sum ("post"), before it
            and on its output ("sandwich"), or on its output only ("output", as in OLMo 2).
        norm_eps: added to the variance.
        norm_scale: whether norms have a learned scale, but for those of qk_norm, which always do;
            false in OLMo (Groeneveld et al., 2024), whose layer norms have no bias either.
        zero_centered_norm: whether scales of norms are stored minus 1, as in Gemma (Gemma Team,
            2024), so that bfloat16 keeps more digits of a scale near 1.
        residual: whether the feed-forward layer takes the sum of input and attention
            ("sequential"), or the same input as the attention, so that both are added at once:
            with a norm for each ("parallel", as in GPT-NeoX, Black et al., 2022), or one for both
            ("parallel_one_norm", as in GPT-J, Wang and Komatsuzaki, 2021, and Falcon 7B,
            Almazrouei et al., 2023).
        residual_scale: factor of each sublayer's output in its residual sum, as in Granite (IBM,
            2024).
        activation: of the feed-forward layer; relu2 is the square of relu (So et al., "Primer",
            2021); swiglu, geglu, and geglu_tanh, which is geglu with the GELU of gelu_tanh, add a
            gate projection (Shazeer, "GLU Variants Improve Transformer", 2020).
        experts: makes the feed-forward layers mixtures of experts; one network each when not given.
        use_bias: whether projections and layer norms have biases, where none of the next four says
            otherwise.
        qkv_bias: whether queries, keys and values have biases, as alone in Qwen 2 (Qwen Team,
            2024); use_bias when not given.
        attention_output_bias: whether the output projection of attention has one; likewise.
        feed_forward_bias: whether the projections of the feed-forward layer have biases; likewise.
        norm_bias: whether layer norms have biases; likewise.
        output_bias: whether each token has a learned bias on its logit, as in BERT (Devlin et al.,
            2019) and Marian (Junczys-Dowmunt et al., 2018).
        head_bias: of an encoder: whether the projection of its head, before masked tokens are
            predicted or after pooling, has a bias, as in BERT.
        embedding_dim: width of the embedding table, where it is not d_model, such as that of
            pretrained vectors; a learned projection follows it. In a decoder whose embeddings are
            tied, another one is before the logits, as in OPT-350M (Zhang et al., 2022).
        frozen_embeddings: whether the embedding table is not trained. This and embedding_dim apply
            to the source's table, where it has one of its own.
        tied_embeddings: whether the output projection is the embedding table.
        scale_embeddings: whether embeddings are multiplied by sqrt(d_model).
        embedding_scale: factor of the embeddings, where it is neither that nor 1, as in Granite.
        embedding_norm: whether there is a norm after the embeddings and their positions, as in BERT
            and BART (Lewis et al., 2020).
        num_token_types: number of token types, which each have a learned vector that is added to
            the embeddings, such as 2 for the first and second sentence of BERT; none when not
            given.
        init_std: standard deviation of initial weights; those of projections into the residual
            stream are divided by the root of their number, 2 a layer, or 3 in a decoder with
            cross-attention (Radford et al., GPT-2, 2019).
        dropout_rate: dropout rate of embeddings, attention weights and sublayer outputs.
        dtype: dtype of the computation, also as `jnp.bfloat16`; float64 parameters are computed
            with in float64.
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
    num_layers: int = 4
    num_encoder_layers: int | None = None
    source_vocab_size: int | None = None
    num_classes: int | None = None
    pooling: Literal["mean", "first", "last", "none"] = "mean"
    pooler: Literal["tanh", "relu", "gelu", "gelu_norm"] | None = None
    d_model: int = 128
    num_heads: int = 4
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_head_dim: int | None = None
    d_ff: int | None = None
    positions: PositionsConfig = RotaryConfig()
    layers: tuple[LayerConfig, ...] = ()
    first_layers: tuple[LayerConfig, ...] = ()
    local_window_size: int | None = None
    attention_scale: float | None = None
    attention_softcap: float | None = None
    attention_sinks: bool = False
    logit_scale: float | None = None
    logit_softcap: float | None = None
    qk_norm: bool = False
    qk_norm_over: Literal["head", "all_heads"] = "head"
    attention_implementation: Literal["auto", "dense", "chunked", "cudnn"] = "auto"
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    norm_position: Literal["pre", "post", "sandwich", "output"] = "pre"
    norm_eps: float = 1e-5
    norm_scale: bool = True
    zero_centered_norm: bool = False
    residual: Literal["sequential", "parallel", "parallel_one_norm"] = "sequential"
    residual_scale: float = 1.0
    activation: Literal[
        "relu", "relu2", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh"
    ] = "gelu"
    experts: ExpertsConfig | None = None
    use_bias: bool = True
    qkv_bias: bool | None = None
    attention_output_bias: bool | None = None
    feed_forward_bias: bool | None = None
    norm_bias: bool | None = None
    output_bias: bool = False
    head_bias: bool = False
    embedding_dim: int | None = None
    frozen_embeddings: bool = False
    tied_embeddings: bool = True
    scale_embeddings: bool = False
    embedding_scale: float | None = None
    embedding_norm: bool = False
    num_token_types: int | None = None
    init_std: float = 0.02
    dropout_rate: float = 0.0
    dtype: Float = "float32"
    param_dtype: Float = "float32"
    remat: Literal["none", "dots", "full"] = "none"
    layer_execution: Literal["auto", "scan", "loop"] = "auto"

    def __post_init__(self) -> None:
        for name in ("dtype", "param_dtype"):
            object.__setattr__(self, name, _dtype_name(getattr(self, name)))
        require_types(self)
        resolve_kinds(self)
        require_positive(
            self, "vocab_size", "max_len", "num_layers", "d_model", "num_heads", "num_kv_heads",
            "head_dim", "value_head_dim", "d_ff", "attention_softcap",
            "logit_softcap", "norm_eps", "init_std", "num_encoder_layers", "source_vocab_size",
            "num_classes", "embedding_dim", "num_token_types", "attention_scale", "logit_scale",
            "residual_scale", "embedding_scale",
        )  # fmt: skip
        require_at_most(self, _MAX_LAYERS, "num_layers", "num_encoder_layers")
        require_at_most(
            self, _MAX_WIDTH, "d_model", "num_heads", "num_kv_heads", "head_dim", "value_head_dim",
            "d_ff", "embedding_dim", "num_token_types",
        )  # fmt: skip
        require_at_least_zero(self, "local_window_size")
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
        check_model(self)

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
    def is_gated(self) -> bool:
        """Whether the feed-forward layer has a gate projection."""
        return self.activation in ("swiglu", "geglu", "geglu_tanh")

    def has_bias(self, part: BiasedPart) -> bool:
        """Whether a part of the layers has biases, `use_bias` filled in where it is not said."""
        own: bool | None = getattr(self, f"{part}_bias")
        return self.use_bias if own is None else own

    @property
    def table_dim(self) -> int:
        """Width of the embedding table, the default filled in."""
        return self.d_model if self.embedding_dim is None else self.embedding_dim

    @property
    def embedding_factor(self) -> float:
        """Factor of the embeddings, the default filled in."""
        if self.embedding_scale is not None:
            return self.embedding_scale
        return self.d_model**0.5 if self.scale_embeddings else 1.0

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


def _dtype_name(dtype: Any) -> Any:
    """Name of a dtype that is given as NumPy or JAX have it; anything else as it is."""
    if isinstance(dtype, str):
        return dtype
    return getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype)
