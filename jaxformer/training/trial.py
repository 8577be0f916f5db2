"""Trials: a loss, initial parameters and an optimizer, and the steps made of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from jaxformer.config import LoopConfig
from jaxformer.errors import ConfigError
from jaxformer.training.losses import Combine, LossFunction
from jaxformer.training.state import TrainState, check_optimizer
from jaxformer.training.step import make_eval_step, make_train_step


class Trial(NamedTuple):
    """Loss, initial parameters and optimizer of `fit`, or of a run of a sweep.

    Args:
        loss: function of (params, batch, dropout_rng) that returns (loss_sum, weight_sum), both
            summed over the rows of the batch. The mean loss is loss_sum / weight_sum. dropout_rng
            is None in validation.
        init_params: initial parameters, a pytree of arrays; or a function of a PRNG key that
            returns them.
        optimizer: any optax transformation.
        validation_loss: loss of the validation batches; `loss` when not given.
        learning_rate: the optimizer's schedule, to record the learning rate with the metrics.
        frozen: parameters that no step changes, a pytree of arrays, such as the base weights in
            LoRA; not in a sweep. They have no gradients and no optimizer state, and checkpoints do
            not contain them: pass the same ones to resume.
        combine: function of (params, frozen) that returns the parameters for losses and scores;
            required with frozen. It should only merge the two pytrees, as `combine_low_rank` does,
            because it is also called outside of compiled programs.
    """

    loss: LossFunction
    init_params: Any
    optimizer: optax.GradientTransformation
    validation_loss: LossFunction | None = None
    learning_rate: optax.Schedule | None = None
    frozen: Any = None
    combine: Combine | None = None


def check_trial(trial: Trial) -> None:
    """Raises ConfigError for an optimizer that is none, or only one of frozen and combine."""
    check_optimizer(trial.optimizer)
    if (trial.frozen is None) != (trial.combine is None):
        given, missing = ("combine", "frozen") if trial.frozen is None else ("frozen", "combine")
        raise ConfigError(f"frozen and combine go together, got only {given}; pass {missing}, too")


def first_state(trial: Trial, start: Any, loop: LoopConfig) -> TrainState:
    """State before the first step; `start` are its parameters, or the key to draw them with."""
    params = trial.init_params(start) if callable(trial.init_params) else start
    return TrainState.create(params, trial.optimizer, averages=loop.average_decay is not None)


def steps_of(
    trial: Trial, loop: LoopConfig, seed: int | jax.Array, axis_name: str | None = None
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Training step and evaluation step of a trial."""
    train_step = make_train_step(
        trial.loss, trial.optimizer, seed=seed, accumulate_steps=loop.accumulate_steps,
        skip_bad_steps=loop.skip_bad_steps, average_decay=loop.average_decay,
        axis_name=axis_name, combine=trial.combine,
    )  # fmt: skip
    loss = trial.validation_loss or trial.loss
    return train_step, make_eval_step(loss, axis_name=axis_name, combine=trial.combine)
