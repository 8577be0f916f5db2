"""The keys of a model's config, and the sizes that follow from single ones."""

import dataclasses
from typing import Literal

from jaxformer.config.checks import (
    BelowOne,
    Config,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Width,
)
from jaxformer.config.model_parts import ExpertsConfig, LayerConfig, MupConfig
from jaxformer.config.positions import PositionsConfig, RotaryConfig

Float = Literal["float32", "bfloat16"]
BiasedPart = Literal["qkv", "attention_output", "feed_forward", "norm"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelKeys(Config):
    """Architecture and sizes of a Transformer.

    It is hashable, so that Flax modules can hold it.

    Args:
        architecture: kind of model: "decoder", a causal language model; "encoder", bidirectional;
            or "encoder_decoder", from a source sequence to a target sequence.
        vocab_size: number of token ids; the tokenizer's if not set.
        max_len: largest sequence length, in tokens; for training, text is cut into sequences of
            this length.
        num_layers: number of blocks; in an encoder-decoder, of decoder blocks.
        num_encoder_layers: number of encoder blocks of an encoder-decoder; num_layers if not set.
        source_vocab_size: number of source token ids, for an encoder-decoder whose encoder has its
            own vocabulary and its own embedding table (tokenizer.joint = false); if not set, the
            number of ids of the source tokenizer.
        num_classes: number of classes of a classifier, 1 for a single score per text. If not set,
            labeled texts determine it, and with other data the model predicts tokens.
        pooling: how a classifier reduces the hidden states of a sequence to one vector:
            their "mean", the "first", as in BERT, or the "last", as in GPT (Radford et
            al., 2018); "none" for an encoder that classifies each token.
        pooler: activation of the projection between pooling and classes: "tanh", as in
            BERT, "relu", as in DistilBERT (Sanh et al., 2019), "gelu", as in ELECTRA (Clark et
            al., 2020), or "gelu_norm", a GELU followed by a norm, as in ModernBERT (Warner et
            al., 2024); no projection if not set.
        d_model: width of the residual stream.
        num_heads: number of query heads.
        num_kv_heads: number of key/value heads, a divisor of num_heads; num_heads if not set.
        head_dim: width of each query and key head; d_model / num_heads if not set.
        value_head_dim: width of each value head; head_dim if not set.
        d_ff: hidden width of the feed-forward layers; 4 * d_model if not set.
        positions: how positions enter the model: added to the embeddings ("sinusoidal", "learned"),
            by rotating queries and keys ("rotary", the default), as a fixed ("alibi") or
            learned ("relative") bias on attention scores, or not at all ("none"). Each kind has its
            own settings. In Python, a string such as "alibi" stands for that kind with its
            defaults.
        layers: overrides for single layers: a pattern that repeats over the depth of each stack;
            the last repeat may be incomplete.
        first_layers: overrides for the first layers; the pattern in layers starts after them.
        local_window_size: attention window: number of earlier tokens, and in an encoder also of
            later ones, that a token attends to besides itself, 0 or more; all if not set.
            Mistral 7B (Jiang et al., 2023) also counts the token itself: for its window W, set
            W - 1 here.
        attention_scale: factor of the attention scores; 1 / sqrt(head_dim) if not set. It is 1 in
            T5 (Raffel et al., 2020), whose initial weights make up for it.
        attention_softcap: soft cap c of the attention scores, which become c * tanh(score / c), as
            in Gemma 2 (Gemma Team, 2024); no cap if not set.
        attention_sinks: whether each head of self-attention has a learned score that takes part in
            the softmax but has no value, so that the head may attend to nothing, as in
            gpt-oss (OpenAI, 2025; Miller, "Attention Is Off By One", 2023).
        logit_scale: factor of the logits, before output_bias and logit_softcap; 1 if not set. It
            is 1 / sqrt(d_model) in T5, whose output projection is the embedding table.
        logit_softcap: soft cap c of the logits, which become c * tanh(logit / c); no cap if not
            set.
        qk_norm: whether queries and keys are RMS-normalized, with a learned scale, before rotary
            positions, as in Qwen 3 (Qwen Team, 2025).
        qk_norm_over: what qk_norm normalizes: each "head" separately, or "all_heads" together, as
            in OLMo 2 (OLMo Team, 2024).
        attention_implementation: how attention is computed: "dense" holds all attention weights in
            memory, "chunked" a part of them at a time; "cudnn" is a kernel for NVIDIA GPUs
            and "splash" one for TPUs; "auto" chooses the best one that supports the options. With a
            cache, and of an opened run, the choice is always automatic, whatever this key says.
        norm: kind of normalization layer.
        norm_position: where the norms are: before each sublayer ("pre"), after its residual
            sum ("post"), before it and on its output ("sandwich"), or only on its output ("output",
            as in OLMo 2).
        norm_eps: number added to the variance in norms, to avoid division by zero.
        norm_scale: whether norms have a learned scale (those of qk_norm always do); false in
            OLMo (Groeneveld et al., 2024), whose layer norms have no bias either.
        zero_centered_norm: whether the scales of norms are stored minus 1, as in Gemma (Gemma
            Team, 2024), so that bfloat16 keeps more digits of a scale near 1.
        residual: input of the feed-forward layer. "sequential": the sum of the block's input and
            the attention output. In the other two, attention and the feed-forward layer both take
            the block's input, and their outputs are added at once: "parallel" has one norm for
            attention and one for the feed-forward layer (as in GPT-NeoX, Black et
            al., 2022), "parallel_one_norm" a single norm for both (as in GPT-J, Wang and
            Komatsuzaki, 2021, and Falcon 7B, Almazrouei et al., 2023).
        residual_scale: factor of each sublayer's output before it is added to the residual stream,
            as in Granite (IBM, 2024).
        activation: activation of the feed-forward layers. "relu2" is the square of ReLU (So et
            al., "Primer", 2021). "swiglu", "geglu" and "geglu_tanh" add a gate
            projection (Shazeer, "GLU Variants Improve Transformer", 2020). "gelu_tanh"
            and "geglu_tanh" use the tanh approximation of GELU. "clamped_swiglu" is that of
            gpt-oss (OpenAI, 2025).
        experts: mixture of experts in the feed-forward layers; if not set, each is a single
            network.
        use_bias: whether projections and layer norms have biases. qkv_bias, attention_output_bias,
            feed_forward_bias and norm_bias each override this for their own part.
        qkv_bias: whether the query, key and value projections have biases; use_bias if not set. In
            Qwen 2 (Qwen Team, 2024), nothing else has biases.
        attention_output_bias: whether the output projection of attention has a bias; use_bias if
            not set.
        feed_forward_bias: whether the projections of the feed-forward layers have biases; use_bias
            if not set.
        norm_bias: whether layer norms have biases; use_bias if not set.
        output_bias: whether the logits have a learned bias per token id, as in BERT (Devlin et
            al., 2019) and Marian (Junczys-Dowmunt et al., 2018).
        head_bias: whether the projection in an encoder's head has a bias, as in BERT. It comes
            before the prediction of masked tokens or, in a classifier, after pooling.
        embedding_dim: width of the embedding table; if not set, d_model. If the width is not
            d_model, a learned projection to d_model follows the table, and a decoder with tied
            embeddings has a second projection, before the logits, as in OPT-350M (Zhang et
            al., 2022). With source_vocab_size, this is the width of the source's table.
        tied_embeddings: whether the output projection is the embedding table.
        scale_embeddings: whether embeddings are multiplied by sqrt(d_model).
        embedding_scale: factor of the embeddings, in place of scale_embeddings, as in Granite; 1 if
            neither is set.
        embedding_norm: whether a norm follows the sum of embeddings and positions, as in BERT and
            BART (Lewis et al., 2020).
        num_token_types: number of token types, such as 2 for the first and second sentence of BERT;
            each has a learned vector that is added to the embeddings; none if not set.
        init_std: standard deviation of the initial weights. For projections into the residual
            stream, it is divided by sqrt(n), where n is the number of such projections: 2 per
            layer, or 3 in a decoder with cross-attention (Radford et al., GPT-2, 2019).
        mup: maximal update parametrization (μP), with which hyperparameters carry over from a
            narrow base model to this one; none if not set.
        dropout_rate: dropout rate of embeddings, attention weights and sublayer outputs, at least 0
            and less than 1.
        dtype: dtype of the computation; in Python also `jnp.bfloat16`. A model whose parameters you
            have cast to float64, in Python, computes in float64.
        param_dtype: dtype that parameters are created in; in Python also `jnp.bfloat16`.
        remat: what the backward pass recomputes to save memory (rematerialization):
            nothing ("none"), all but matrix products with parameters and the output of
            attention ("dots"; cudnn and rings compute that again, too), or everything ("full").
        layer_execution: how the layers run: as one compiled "scan", whose compile time does not
            grow with the depth, or as a "loop", which XLA optimizes across layers; "auto" chooses
            the loop on a CPU for up to 12 layers. The result is the same. On a TPU a loop compiles
            longer, but may be faster, too: compare both with `jaxformer plan`.
    """

    architecture: Literal["encoder", "decoder", "encoder_decoder"] = "decoder"
    vocab_size: PositiveInt | None = None
    max_len: PositiveInt
    num_layers: PositiveInt = 4
    num_encoder_layers: PositiveInt | None = None
    source_vocab_size: PositiveInt | None = None
    num_classes: PositiveInt | None = None
    pooling: Literal["mean", "first", "last", "none"] = "mean"
    pooler: Literal["tanh", "relu", "gelu", "gelu_norm"] | None = None
    d_model: Width = 128
    num_heads: Width = 4
    num_kv_heads: Width | None = None
    head_dim: Width | None = None
    value_head_dim: Width | None = None
    d_ff: Width | None = None
    positions: PositionsConfig = RotaryConfig()
    layers: tuple[LayerConfig, ...] = ()
    first_layers: tuple[LayerConfig, ...] = ()
    local_window_size: NonNegativeInt | None = None
    attention_scale: PositiveFloat | None = None
    attention_softcap: PositiveFloat | None = None
    attention_sinks: bool = False
    logit_scale: PositiveFloat | None = None
    logit_softcap: PositiveFloat | None = None
    qk_norm: bool = False
    qk_norm_over: Literal["head", "all_heads"] = "head"
    attention_implementation: Literal["auto", "dense", "chunked", "cudnn", "splash"] = "auto"
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    norm_position: Literal["pre", "post", "sandwich", "output"] = "pre"
    norm_eps: PositiveFloat = 1e-5
    norm_scale: bool = True
    zero_centered_norm: bool = False
    residual: Literal["sequential", "parallel", "parallel_one_norm"] = "sequential"
    residual_scale: PositiveFloat = 1.0
    activation: Literal[
        "relu", "relu2", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh",
        "clamped_swiglu",
    ] = "gelu"  # fmt: skip
    experts: ExpertsConfig | None = None
    use_bias: bool = True
    qkv_bias: bool | None = None
    attention_output_bias: bool | None = None
    feed_forward_bias: bool | None = None
    norm_bias: bool | None = None
    output_bias: bool = False
    head_bias: bool = False
    embedding_dim: Width | None = None
    tied_embeddings: bool = True
    scale_embeddings: bool = False
    embedding_scale: PositiveFloat | None = None
    embedding_norm: bool = False
    num_token_types: Width | None = None
    init_std: PositiveFloat = 0.02
    mup: MupConfig | None = None
    dropout_rate: BelowOne = 0.0
    dtype: Float = "float32"
    param_dtype: Float = "float32"
    remat: Literal["none", "dots", "full"] = "none"
    layer_execution: Literal["auto", "scan", "loop"] = "auto"

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
        return self.activation in ("swiglu", "geglu", "geglu_tanh", "clamped_swiglu")

    def has_bias(self, part: BiasedPart) -> bool:
        """Whether a part of the layers has biases, the default `use_bias` filled in."""
        has_bias: bool | None = getattr(self, f"{part}_bias")
        return self.use_bias if has_bias is None else has_bias

    def window_of(self, layer: LayerConfig) -> int | None:
        """Attention window of a layer, the model's filled in."""
        window = layer.local_window_size
        return self.local_window_size if window is None else window

    @property
    def table_dim(self) -> int:
        """Width of the embedding table, the default filled in."""
        return self.d_model if self.embedding_dim is None else self.embedding_dim
