"""Configs of optimizers, one class for each, and of the learning-rate schedule."""

import dataclasses
import math
from typing import Literal

from jaxformer.config.checks import (
    require,
    require_at_least_zero,
    require_positive,
    require_shares,
    require_types,
)
from jaxformer.errors import ConfigError

__all__ = [
    "AdafactorConfig",
    "AdamWConfig",
    "LionConfig",
    "MuonConfig",
    "OptimizerConfig",
    "ScheduleConfig",
    "SgdConfig",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamWConfig:
    """AdamW: Adam with decoupled weight decay.

    Args:
        name: "adamw".
        learning_rate: the schedule's peak.
        beta1: decay of the gradient's running mean.
        beta2: decay of the squared gradient's running mean.
        eps: added to the denominator.
        weight_decay: of kernels and embeddings; biases and norm scales are never decayed.
        clip_norm: gradients with a larger global norm are scaled down to it; 0 = no clipping.

    References:
        Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.
    """

    name: Literal["adamw"] = "adamw"
    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "learning_rate", "eps")
        require_at_least_zero(self, "weight_decay", "clip_norm")
        require_shares(self, "beta1", "beta2")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SgdConfig:
    """Stochastic gradient descent with momentum, and without weight decay.

    Args:
        name: "sgd".
        learning_rate: the schedule's peak.
        momentum: decay of the running sum of gradients; 0 = no momentum.
        nesterov: whether momentum is Nesterov's, with the gradient a step ahead.
        clip_norm: gradients with a larger global norm are scaled down to it; 0 = no clipping.

    References:
        Sutskever et al., "On the importance of initialization and momentum in deep learning",
        2013.
    """

    name: Literal["sgd"] = "sgd"
    learning_rate: float
    momentum: float = 0.9
    nesterov: bool = False
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "learning_rate")
        require_at_least_zero(self, "clip_norm")
        require_shares(self, "momentum")
        if self.nesterov and self.momentum == 0:
            raise ConfigError(
                "nesterov needs momentum, got nesterov=True and momentum=0; set momentum, for "
                "example 0.9, or remove nesterov"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LionConfig:
    """Lion: steps by the sign of a running mean of gradients, with decoupled weight decay.

    Its steps have the same size in every parameter, so it needs a learning rate 3 to 10 times less
    than AdamW's, and a weight decay as many times more.

    Args:
        name: "lion".
        learning_rate: the schedule's peak.
        beta1: weight of the running mean, against the new gradient, in the sign of a step.
        beta2: decay of the gradient's running mean.
        weight_decay: of kernels and embeddings; biases and norm scales are never decayed.
        clip_norm: gradients with a larger global norm are scaled down to it; 0 = no clipping.

    References:
        Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023.
    """

    name: Literal["lion"] = "lion"
    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.1
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "learning_rate")
        require_at_least_zero(self, "weight_decay", "clip_norm")
        require_shares(self, "beta1", "beta2")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdafactorConfig:
    """Adafactor: second moments of matrices as the product of a row and a column.

    It needs next to no memory for its state. The kernels of all layers are one parameter each
    (a stack), so its limits and scales are those of all layers together.

    Args:
        name: "adafactor".
        learning_rate: the schedule's peak; relative to the root mean square of each parameter,
            with relative_steps.
        relative_steps: whether a step is multiplied by the root mean square of its parameter.
        decay_rate: c in 1 - step ** -c, the decay of the running mean of squared gradients.
        momentum: decay of the running mean of steps; 0 = no momentum, and no memory for it.
        clip_threshold: the root mean square of a step, before the learning rate, is at most this.
        weight_decay: share of kernels and embeddings that every step takes off, whatever the
            learning rate.
        clip_norm: gradients with a larger global norm are scaled down to it; 0 = no clipping.

    References:
        Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", 2018.
    """

    name: Literal["adafactor"] = "adafactor"
    learning_rate: float
    relative_steps: bool = True
    decay_rate: float = 0.8
    momentum: float = 0.0
    clip_threshold: float = 1.0
    weight_decay: float = 0.0
    clip_norm: float = 0.0

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "learning_rate", "decay_rate")
        require_at_least_zero(self, "weight_decay", "clip_norm")
        require_shares(self, "momentum")
        require(
            1 <= self.clip_threshold < math.inf,
            "clip_threshold must be at least 1",
            clip_threshold=self.clip_threshold,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MuonConfig:
    """Muon: steps of kernels are momentum that is made orthogonal; AdamW for all else.

    Args:
        name: "muon".
        learning_rate: the schedule's peak, of both.
        beta: decay of the running mean of gradients of kernels.
        nesterov: whether momentum is Nesterov's, with the gradient a step ahead, of both.
        update_rms: root mean square of a kernel's step before the learning rate; with 0.2 the
            learning rates of AdamW fit. 0 = the root of its output width over its input width, at
            least 1, as Jordan has it.
        adam_beta1: decay of the gradient's running mean, of all else.
        adam_beta2: decay of the squared gradient's running mean, of all else.
        weight_decay: of kernels alone.
        clip_norm: gradients with a larger global norm are scaled down to it; 0 = no clipping.

    References:
        Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024; Liu et al.,
        "Muon is Scalable for LLM Training", 2025 (weight decay and update_rms).
    """

    name: Literal["muon"] = "muon"
    learning_rate: float
    beta: float = 0.95
    nesterov: bool = True
    update_rms: float = 0.2
    adam_beta1: float = 0.9
    adam_beta2: float = 0.95
    weight_decay: float = 0.1
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "learning_rate")
        require_at_least_zero(self, "update_rms", "weight_decay", "clip_norm")
        require_shares(self, "beta", "adam_beta1", "adam_beta2")


OptimizerConfig = AdamWConfig | SgdConfig | LionConfig | AdafactorConfig | MuonConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Learning-rate schedule: warmup and decay.

    Args:
        name: shape of the decay after the warmup; "noam" falls with the root of the step, without
            end, from optimizer.learning_rate at the end of the warmup. The paper's learning rate
            there is (model.d_model * warmup_steps) ** -0.5. "warmup_stable_decay" stays at the
            peak until decay_start, and then falls linearly.
        warmup_steps: steps of linear warmup from 0.
        decay_start: step at which the decay of "warmup_stable_decay" begins. A run that was stopped
            before it can be given a later one.
        decay_steps: step at which the decay of "cosine", "linear" and "warmup_stable_decay" ends,
            counted from the start of the warmup; training.steps when not given. A run keeps the
            step that it began with: trained for longer, it stays at the final rate.
        final_scale: learning rate after the decay, as a share of the peak.

    References:
        Hu et al., "MiniCPM: Unveiling the Potential of Small Language Models with Scalable Training
        Strategies", 2024 (warmup_stable_decay).
    """

    name: Literal["cosine", "linear", "constant", "noam", "warmup_stable_decay"] = "cosine"
    warmup_steps: int = 0
    decay_start: int | None = None
    decay_steps: int | None = None
    final_scale: float = 0.1

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least_zero(self, "warmup_steps")
        require(
            0 <= self.final_scale <= 1,
            "final_scale must be in [0, 1]",
            final_scale=self.final_scale,
        )
        if self.name == "noam" and self.warmup_steps == 0:
            raise ConfigError(
                "schedule.name 'noam' needs schedule.warmup_steps, got 0; the paper has 4000"
            )
        if (self.decay_start is None) == (self.name == "warmup_stable_decay"):
            raise ConfigError(
                "decay_start, the step at which the decay begins, belongs to a warmup_stable_decay "
                f"schedule, got decay_start={self.decay_start} and name={self.name!r}"
            )
        if self.name in ("constant", "noam"):
            if self.final_scale != type(self).final_scale:
                raise ConfigError(
                    f"a {self.name} schedule has no final_scale, got {self.final_scale}; remove "
                    "it, or set name to 'cosine' or 'linear'"
                )
            if self.decay_steps is not None:
                raise ConfigError(
                    f"a {self.name} schedule has no decay_steps, got {self.decay_steps}; remove "
                    "it, or set name to 'cosine' or 'linear'"
                )
        elif self.decay_steps is not None:
            require(
                self.decay_steps > self.warmup_steps,
                "decay_steps must be larger than warmup_steps, which it includes",
                decay_steps=self.decay_steps,
                warmup_steps=self.warmup_steps,
            )
            require(
                self.decay_start is None
                or self.warmup_steps <= self.decay_start < self.decay_steps,
                "decay_start must be in warmup_steps .. decay_steps - 1",
                decay_start=self.decay_start,
                warmup_steps=self.warmup_steps,
                decay_steps=self.decay_steps,
            )

    def ending_at(self, step: int) -> "ScheduleConfig":
        """The schedule with decay_steps filled in: a step, which is later than the warmup."""
        if self.decay_steps is not None or self.name in ("constant", "noam"):
            return self
        first = 1 + max(self.warmup_steps, self.decay_start or 0)
        return dataclasses.replace(self, decay_steps=max(step, first))
