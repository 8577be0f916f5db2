"""Configs of optimizers, one class for each, and of the learning-rate schedule."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from jaxformer.config.checks import (
    BelowOne,
    Config,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    UpToOne,
    at_least,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamWConfig(Config):
    """AdamW: Adam with decoupled weight decay.

    Args:
        learning_rate: peak of the learning-rate schedule.
        beta1: decay rate of the running mean of gradients, at least 0 and less than 1.
        beta2: decay rate of the running mean of squared gradients, at least 0 and less than 1.
        eps: number added to the denominator of an update, to avoid division by zero.
        weight_decay: decoupled weight decay of kernels and embeddings, scaled by the learning rate;
            biases and norm scales never decay.
        clip_norm: largest global norm of the gradients; larger ones are scaled down to it; 0 = no
            clipping.

    References:
        Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.
    """

    name: Literal["adamw"] = "adamw"
    learning_rate: PositiveFloat = 1e-3
    beta1: BelowOne = 0.9
    beta2: BelowOne = 0.95
    eps: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.1
    clip_norm: NonNegativeFloat = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SgdConfig(Config):
    """Stochastic gradient descent with momentum, without weight decay.

    Args:
        learning_rate: peak of the learning-rate schedule.
        momentum: decay rate of the running sum of gradients, less than 1; 0 = no momentum.
        nesterov: whether to use Nesterov momentum.
        clip_norm: largest global norm of the gradients; larger ones are scaled down to it; 0 = no
            clipping.

    References:
        Sutskever et al., "On the importance of initialization and momentum in deep learning",
        2013.
    """

    name: Literal["sgd"] = "sgd"
    learning_rate: PositiveFloat
    momentum: BelowOne = 0.9
    nesterov: bool = False
    clip_norm: NonNegativeFloat = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LionConfig(Config):
    """Lion: updates by the sign of a running mean of gradients, with decoupled weight decay.

    Its steps have the same size in every parameter, so it needs a learning rate 3 to 10 times lower
    than AdamW's, and a weight decay higher by the same factor.

    Args:
        learning_rate: peak of the learning-rate schedule.
        beta1: weight of the running mean when it is averaged with the new gradient, at least 0 and
            less than 1; the sign of this average is the update.
        beta2: decay rate of the running mean of gradients, at least 0 and less than 1.
        weight_decay: decoupled weight decay of kernels and embeddings, scaled by the learning rate;
            biases and norm scales never decay.
        clip_norm: largest global norm of the gradients; larger ones are scaled down to it; 0 = no
            clipping.

    References:
        Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023.
    """

    name: Literal["lion"] = "lion"
    learning_rate: PositiveFloat
    beta1: BelowOne = 0.9
    beta2: BelowOne = 0.99
    weight_decay: NonNegativeFloat = 0.1
    clip_norm: NonNegativeFloat = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdafactorConfig(Config):
    """Adafactor: stores the second moments of a matrix as one row and one column.

    Its state needs very little memory. The kernels of all layers are one parameter (a stack), so
    its limits and scales apply to all layers together.

    Args:
        learning_rate: peak of the learning-rate schedule; with relative_steps, relative to the root
            mean square of each parameter.
        relative_steps: whether each update is multiplied by the root mean square of its parameter.
        decay_rate: exponent c: at each step, the decay rate of the running mean of squared
            gradients is 1 - step ** -c.
        momentum: decay rate of the running mean of updates, less than 1; 0 = no momentum, and no
            memory for it.
        clip_threshold: largest root mean square of an update, before the learning rate; at least 1.
        weight_decay: fraction by which each step shrinks kernels and embeddings, independent of the
            learning rate.
        clip_norm: largest global norm of the gradients; larger ones are scaled down to it; 0 = no
            clipping.

    References:
        Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", 2018.
    """

    name: Literal["adafactor"] = "adafactor"
    learning_rate: PositiveFloat
    relative_steps: bool = True
    decay_rate: PositiveFloat = 0.8
    momentum: BelowOne = 0.0
    clip_threshold: Annotated[float, at_least(1)] = 1.0
    weight_decay: NonNegativeFloat = 0.0
    clip_norm: NonNegativeFloat = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class MuonConfig(Config):
    """Muon: updates kernels by orthogonalized momentum, and all other parameters by AdamW.

    Args:
        learning_rate: peak of the learning-rate schedule, for kernels and all other parameters.
        beta: decay rate of the running mean of the gradients of kernels.
        nesterov: whether to use Nesterov momentum, for kernels and all other parameters.
        update_rms: root mean square of a kernel's update, before the learning rate; with 0.2,
            learning rates tuned for AdamW are suitable. 0 scales updates by sqrt(max(1, output
            width / input width)) instead, as in Jordan et al. (2024).
        adam_beta1: decay rate of the running mean of gradients, for parameters other than kernels.
        adam_beta2: decay rate of the running mean of squared gradients, for parameters other than
            kernels.
        weight_decay: decoupled weight decay of kernels, scaled by the learning rate; other
            parameters never decay.
        clip_norm: largest global norm of the gradients; larger ones are scaled down to it; 0 = no
            clipping.

    References:
        Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024; Liu et al.,
        "Muon is Scalable for LLM Training", 2025 (weight decay and update_rms).
    """

    name: Literal["muon"] = "muon"
    learning_rate: PositiveFloat
    beta: BelowOne = 0.95
    nesterov: bool = True
    update_rms: NonNegativeFloat = 0.2
    adam_beta1: BelowOne = 0.9
    adam_beta2: BelowOne = 0.95
    weight_decay: NonNegativeFloat = 0.1
    clip_norm: NonNegativeFloat = 1.0


OptimizerConfig = AdamWConfig | SgdConfig | LionConfig | AdafactorConfig | MuonConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleConfig(Config):
    """Learning-rate schedule: a linear warmup, then a constant rate or a decay.

    Args:
        name: learning rate after the warmup: "cosine" and "linear" decay from the peak to
            final_scale times the peak; "constant" stays at the peak; "warmup_stable_decay" stays
            there until decay_start, and then decays linearly; "noam" decays with the inverse square
            root of the step, as peak * sqrt(warmup_steps / step), without end. For "noam" as in
            Vaswani et al. (2017), set optimizer.learning_rate to (model.d_model *
            warmup_steps) ** -0.5.
        warmup_steps: number of steps of linear warmup from 0 to the peak; "noam" needs at least 1.
        decay_start: step at which the decay of "warmup_stable_decay" begins. A run that was stopped
            at or before this step can be resumed with a later decay_start; the decay then ends at
            decay_steps or, if not set, at training.steps.
        decay_steps: step at which the decay of "cosine", "linear" and "warmup_stable_decay" ends,
            counted from the start of the warmup; training.steps if not set. If a run is resumed
            with more steps, the decay still ends at the same step, unless decay_start changes, and
            the added steps have the final rate.
        final_scale: learning rate after the decay, as a fraction of the peak, from 0 to 1.

    References:
        Hu et al., "MiniCPM: Unveiling the Potential of Small Language Models with Scalable Training
        Strategies", 2024 (warmup_stable_decay).
    """

    name: Literal["cosine", "linear", "constant", "noam", "warmup_stable_decay"] = "cosine"
    warmup_steps: NonNegativeInt = 0
    decay_start: int | None = None
    decay_steps: int | None = None
    final_scale: UpToOne = 0.1

    ONLY_FOR: ClassVar = {
        (name, "name"): ("cosine", "linear", "warmup_stable_decay")
        for name in ("final_scale", "decay_steps")
    }

    def _mistakes(self) -> Iterator[str]:
        if self.name == "noam" and self.warmup_steps == 0:
            yield "schedule.name 'noam' needs schedule.warmup_steps, got 0; its paper uses 4000"
        if (self.decay_start is None) == (self.name == "warmup_stable_decay"):
            yield (
                "decay_start, the step at which the decay begins, is for the schedule "
                f"'warmup_stable_decay', which needs it, {self.got('decay_start', 'name')}"
            )
        if self.decay_steps is None:
            return
        if self.decay_steps <= self.warmup_steps:
            yield (
                "decay_steps must be larger than warmup_steps, which it includes, "
                + self.got("decay_steps", "warmup_steps")
            )
        start = self.decay_start
        if start is not None and not self.warmup_steps <= start < self.decay_steps:
            yield (
                "decay_start must be in warmup_steps .. decay_steps - 1, "
                + self.got("decay_start", "warmup_steps", "decay_steps")
            )

    def ending_at(self, step: int) -> "ScheduleConfig":
        """The schedule with decay_steps filled in: a step, or a later one just after the warmup."""
        if self.decay_steps is not None or self.name in ("constant", "noam"):
            return self
        first = 1 + max(self.warmup_steps, self.decay_start or 0)
        return dataclasses.replace(self, decay_steps=max(step, first))
