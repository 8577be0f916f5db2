"""The experiment config: frozen dataclasses that check themselves."""

import dataclasses
import difflib
import math
import typing
from typing import Literal

from jaxformer.errors import ConfigError

__all__ = [
    "DataConfig",
    "ExperimentConfig",
    "ModelConfig",
    "OptimizerConfig",
    "SamplesConfig",
    "SamplingConfig",
    "ScheduleConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "suggestion",
]

Float = Literal["float32", "bfloat16"]


def _require(condition: bool, rule: str, **values: object) -> None:
    """Raises ConfigError with the rule and the values that broke it."""
    if not condition:
        got = " and ".join(f"{key}={value!r}" for key, value in values.items())
        raise ConfigError(f"{rule}, got {got}")


def _require_positive(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None:
            _require(0 < value < math.inf, f"{name} must be positive", **{name: value})


def _require_at_least_zero(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None:
            _require(0 <= value < math.inf, f"{name} must be zero or more", **{name: value})


def _require_choices(config: object) -> None:
    """Checks every Literal field, which Python itself does not."""
    for name, kind in typing.get_type_hints(type(config)).items():
        if typing.get_origin(kind) is Literal:
            value = getattr(config, name)
            choices = typing.get_args(kind)
            if value not in choices:
                raise ConfigError(
                    f"{name} must be one of {', '.join(choices)}, got {value!r}"
                    + suggestion(str(value), choices)
                )


def suggestion(word: str, known: typing.Iterable[str]) -> str:
    """Writes the end of a message that names the nearest of the known words, if one is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a Transformer; hashable, so that Flax modules can hold it.

    Args:
        architecture: which model; "decoder" is the causal language model.
        vocab_size: number of token ids; the tokenizer's when not given.
        max_len: longest sequence in tokens; also the training window.
        num_layers: number of blocks.
        d_model: width of the residual stream.
        num_heads: query heads.
        num_kv_heads: key/value heads, a divisor of num_heads; num_heads when not given.
        head_dim: width of a query and key head; d_model / num_heads when not given.
        value_head_dim: width of a value head; head_dim when not given.
        d_ff: hidden width of the feed-forward layer; 4 * d_model when not given.
        positions: how a token's position enters the model.
        rotary_base: base of the rotary frequencies.
        rotary_layout: which features form a rotated pair: i and i + H/2 ("half", as in
            GPT-NeoX and Llama) or 2i and 2i + 1 ("interleaved", as in the RoFormer paper).
        norm: kind of normalization.
        norm_position: before each sublayer ("pre") or after its residual sum ("post").
        norm_eps: added to the variance.
        activation: of the feed-forward layer; swiglu and geglu add a gate projection.
        use_bias: whether projections and layer norms have biases.
        tied_embeddings: whether the output projection is the embedding table.
        scale_embeddings: whether embeddings are multiplied by sqrt(d_model).
        init_std: standard deviation of initial weights; those of projections into the residual
            stream are divided by sqrt(2 * num_layers) (Radford et al., GPT-2, 2019).
        dropout_rate: on embeddings, attention weights and sublayer outputs.
        dtype: of the computation.
        param_dtype: of the parameters.
        remat: what the backward pass recomputes: nothing, all but matrix products, or all.
        scan_layers: whether the blocks are one `nn.scan` with stacked parameters (compiles once)
            or a Python loop (decodes faster).
    """

    architecture: Literal["decoder"] = "decoder"
    vocab_size: int | None = None
    max_len: int
    num_layers: int
    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_head_dim: int | None = None
    d_ff: int | None = None
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "rotary"
    rotary_base: float = 10_000.0
    rotary_layout: Literal["half", "interleaved"] = "half"
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    norm_position: Literal["pre", "post"] = "pre"
    norm_eps: float = 1e-5
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"] = "gelu"
    use_bias: bool = True
    tied_embeddings: bool = True
    scale_embeddings: bool = False
    init_std: float = 0.02
    dropout_rate: float = 0.0
    dtype: Float = "float32"
    param_dtype: Float = "float32"
    remat: Literal["none", "dots", "full"] = "none"
    scan_layers: bool = True

    def __post_init__(self) -> None:
        _require_choices(self)
        _require_positive(
            self, "vocab_size", "max_len", "num_layers", "d_model", "num_heads", "num_kv_heads",
            "head_dim", "value_head_dim", "d_ff", "rotary_base", "norm_eps", "init_std",
        )  # fmt: skip
        _require(
            0 <= self.dropout_rate < 1,
            "dropout_rate must be in [0, 1)",
            dropout_rate=self.dropout_rate,
        )
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ConfigError(
                "d_model must be a multiple of num_heads, got "
                f"d_model={self.d_model} and num_heads={self.num_heads}; "
                "change one of them, or set head_dim"
            )
        _require(
            self.num_heads % self.kv_heads == 0,
            "num_heads must be a multiple of num_kv_heads",
            num_heads=self.num_heads,
            num_kv_heads=self.kv_heads,
        )
        if self.positions == "rotary" and self.key_dim % 2:
            raise ConfigError(
                f"rotary positions need an even head_dim, got head_dim={self.key_dim}; "
                "change d_model, num_heads or head_dim"
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How text becomes token ids.

    Args:
        kind: "character", "byte", "word" or byte-level "bpe".
        vocab_size: for "bpe" (needed) and "word" (optional, most frequent first): at most this
            many ids, special tokens included.
    """

    kind: Literal["character", "byte", "word", "bpe"] = "bpe"
    vocab_size: int | None = None

    def __post_init__(self) -> None:
        _require_choices(self)
        _require_positive(self, "vocab_size")
        if self.kind == "bpe" and self.vocab_size is None:
            raise ConfigError("tokenizer.kind 'bpe' needs tokenizer.vocab_size, for example 2048")
        if self.kind == "bpe" and self.vocab_size is not None and self.vocab_size < 257:
            raise ConfigError(
                "vocab_size of a byte-level BPE must be at least 257 (256 bytes and the end of "
                f"text), got vocab_size={self.vocab_size}"
            )
        if self.kind in ("byte", "character") and self.vocab_size is not None:
            raise ConfigError(
                f"vocab_size is for word and bpe tokenizers, got kind={self.kind!r} and "
                f"vocab_size={self.vocab_size}; remove it"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the text comes from, and how it is cut into sequences of model.max_len tokens.

    Args:
        source: "python" is the documentation that ships inside Python; "files" reads paths.
        paths: text files or glob patterns, UTF-8, each file one document.
        validation_fraction: share of the characters held out, from the end of the documents in
            a fixed random order; not used when validation_paths are given.
        validation_paths: text files or glob patterns to hold out instead.
        packing: "windows" cuts the stream of all documents; "documents" does too, but a token
            sees only its own document, and positions restart with it.
    """

    source: Literal["python", "files"] = "files"
    paths: tuple[str, ...] = ()
    validation_fraction: float = 0.1
    validation_paths: tuple[str, ...] = ()
    packing: Literal["windows", "documents"] = "windows"

    def __post_init__(self) -> None:
        _require_choices(self)
        if self.source == "python" and self.paths:
            raise ConfigError(
                f"data.paths are read by data.source 'files' only, got source='python' and "
                f"paths={self.paths!r}; set source = 'files' or remove paths"
            )
        _require(
            0 < self.validation_fraction < 1,
            "validation_fraction must be between 0 and 1",
            validation_fraction=self.validation_fraction,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimizer.

    Args:
        name: "adamw" (Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019).
        learning_rate: the schedule's peak.
        beta1: decay of the gradient's running mean.
        beta2: decay of the squared gradient's running mean.
        eps: added to the denominator.
        weight_decay: of kernels and embeddings; biases and norm scales are never decayed.
        clip_norm: gradients with a larger global norm are scaled down to it; 0 = no clipping.
    """

    name: Literal["adamw"] = "adamw"
    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        _require_choices(self)
        _require_positive(self, "learning_rate", "eps")
        _require_at_least_zero(self, "weight_decay", "clip_norm")
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            _require(0 <= value < 1, f"{name} must be in [0, 1)", **{name: value})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """The learning rate as a function of the step.

    Args:
        name: shape of the decay after the warmup.
        warmup_steps: steps of linear warmup from 0.
        decay_steps: step at which the decay ends, warmup included; explicit, so that training
            for longer continues the same schedule. Needed by "cosine" and "linear".
        final_scale: learning rate after the decay, as a share of the peak.
    """

    name: Literal["cosine", "linear", "constant"] = "constant"
    warmup_steps: int = 0
    decay_steps: int | None = None
    final_scale: float = 0.1

    def __post_init__(self) -> None:
        _require_choices(self)
        _require_at_least_zero(self, "warmup_steps")
        _require(
            0 <= self.final_scale <= 1,
            "final_scale must be in [0, 1]",
            final_scale=self.final_scale,
        )
        if self.name == "constant":
            if self.decay_steps is not None:
                raise ConfigError(
                    f"a constant schedule has no decay_steps, got {self.decay_steps}; remove it, "
                    "or set name to 'cosine' or 'linear'"
                )
        elif self.decay_steps is None:
            raise ConfigError(
                f"schedule.name {self.name!r} needs schedule.decay_steps: the step at which the "
                "decay ends, usually training.steps"
            )
        else:
            _require(
                self.decay_steps > self.warmup_steps,
                "decay_steps must be larger than warmup_steps, which it includes",
                decay_steps=self.decay_steps,
                warmup_steps=self.warmup_steps,
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How long to train, on what, and what to write down.

    Args:
        steps: optimizer steps in all, those of a resumed run included.
        batch_size: sequences per optimizer step, over all devices and hosts.
        accumulate_steps: micro-batches per optimizer step; they bound the memory, not the result.
        runner: "pmap" is data-parallel over every device; "single" uses one.
        devices: how many local devices to use; all when not given.
        cpu_devices: how many virtual devices to split this machine's CPU into, to try data
            parallelism without accelerators.
        log_every: steps between two lines of metrics.
        eval_every: steps between two evaluations of the held-out text.
        checkpoint_every: steps between two checkpoints; the last step always has one.
        keep_checkpoints: how many of the latest checkpoints to keep, beside the best.
    """

    steps: int
    batch_size: int
    accumulate_steps: int = 1
    runner: Literal["pmap", "single"] = "pmap"
    devices: int | None = None
    cpu_devices: int | None = None
    log_every: int = 10
    eval_every: int = 200
    checkpoint_every: int = 200
    keep_checkpoints: int = 2

    def __post_init__(self) -> None:
        _require_choices(self)
        _require_positive(
            self, "steps", "batch_size", "accumulate_steps", "devices", "cpu_devices", "log_every",
            "eval_every", "checkpoint_every", "keep_checkpoints",
        )  # fmt: skip
        if self.runner == "single" and self.devices is not None:
            raise ConfigError(
                f"training.devices is for the runner 'pmap', got devices={self.devices} and "
                "runner='single', which uses one; remove devices"
            )
        _require(
            self.batch_size % self.accumulate_steps == 0,
            "batch_size must be a multiple of accumulate_steps",
            batch_size=self.batch_size,
            accumulate_steps=self.accumulate_steps,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How the next token is chosen from the logits; filters apply in the order listed.

    Args:
        repetition_penalty: divides positive and multiplies negative logits of tokens already in
            the row (Keskar et al., CTRL, 2019); 1 changes nothing.
        temperature: divides the logits; 0 takes the most likely token (greedy).
        top_k: keep the k most likely tokens.
        top_p: keep the fewest most likely tokens whose probability reaches p.
        min_p: keep the tokens at least min_p times as likely as the most likely one.
    """

    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        _require_positive(self, "repetition_penalty", "top_k")
        _require_at_least_zero(self, "temperature")
        if self.top_p is not None:
            _require(0 < self.top_p <= 1, "top_p must be in (0, 1]", top_p=self.top_p)
        if self.min_p is not None:
            _require(0 <= self.min_p <= 1, "min_p must be in [0, 1]", min_p=self.min_p)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplesConfig(SamplingConfig):
    """The continuations that a training run ends with.

    Args:
        prompts: texts to continue; the starts of three lines of the held-out text when not given.
        max_new_tokens: longest continuation in tokens; what fits the context when not given.
    """

    prompts: tuple[str, ...] = ()
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_positive(self, "max_new_tokens")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    """Everything that determines a training run.

    Args:
        out: run folder; "runs/NAME" for configs/NAME.toml when not given.
        seed: of the initial parameters, the data order, dropout and samples.
        model: the Transformer.
        data: the text.
        tokenizer: how text becomes tokens.
        optimizer: the optimizer.
        schedule: the learning rate over time.
        training: length, devices and intervals.
        samples: what is generated at the end.
    """

    out: str | None = None
    seed: int = 0
    model: ModelConfig
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig = ScheduleConfig()
    training: TrainingConfig
    samples: SamplesConfig = SamplesConfig()

    def __post_init__(self) -> None:
        _require(0 <= self.seed < 2**31, "seed must be in 0 .. 2**31 - 1", seed=self.seed)
