"""The experiment config: frozen dataclasses that check themselves."""

import dataclasses
from typing import Literal

from jaxformer.config.checks import (
    require,
    require_at_least_zero,
    require_choices,
    require_positive,
)
from jaxformer.config.model import ModelConfig
from jaxformer.errors import ConfigError

__all__ = [
    "DataConfig",
    "ExperimentConfig",
    "OptimizerConfig",
    "SamplesConfig",
    "SamplingConfig",
    "ScheduleConfig",
    "TokenizerConfig",
    "TrainingConfig",
]


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
        require_choices(self)
        require_positive(self, "vocab_size")
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
        require_choices(self)
        if self.source == "python" and self.paths:
            raise ConfigError(
                f"data.paths are read by data.source 'files' only, got source='python' and "
                f"paths={self.paths!r}; set source = 'files' or remove paths"
            )
        require(
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
        require_choices(self)
        require_positive(self, "learning_rate", "eps")
        require_at_least_zero(self, "weight_decay", "clip_norm")
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            require(0 <= value < 1, f"{name} must be in [0, 1)", **{name: value})


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
        require_choices(self)
        require_at_least_zero(self, "warmup_steps")
        require(
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
            require(
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
        require_choices(self)
        require_positive(
            self, "steps", "batch_size", "accumulate_steps", "devices", "cpu_devices", "log_every",
            "eval_every", "checkpoint_every", "keep_checkpoints",
        )  # fmt: skip
        if self.runner == "single" and self.devices is not None:
            raise ConfigError(
                f"training.devices is for the runner 'pmap', got devices={self.devices} and "
                "runner='single', which uses one; remove devices"
            )
        require(
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
        require_positive(self, "repetition_penalty", "top_k")
        require_at_least_zero(self, "temperature")
        if self.top_p is not None:
            require(0 < self.top_p <= 1, "top_p must be in (0, 1]", top_p=self.top_p)
        if self.min_p is not None:
            require(0 <= self.min_p <= 1, "min_p must be in [0, 1]", min_p=self.min_p)


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
        require_positive(self, "max_new_tokens")


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
        require(0 <= self.seed < 2**31, "seed must be in 0 .. 2**31 - 1", seed=self.seed)
