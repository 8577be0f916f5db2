"""Trials: a loss, initial parameters and an optimizer, and the programs made of them."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from jaxformer.config import LoopConfig
from jaxformer.errors import ConfigError
from jaxformer.training.callbacks import Callback
from jaxformer.training.checkpoints import Checkpoints
from jaxformer.training.checkpoints.locked_folder import LockedFolder
from jaxformer.training.data import TrainingData
from jaxformer.training.losses import Combine, LossFunction
from jaxformer.training.parallel import Program, Runner
from jaxformer.training.state import TrainState
from jaxformer.training.step import make_eval_step, make_train_step


class Trial(NamedTuple):
    """Loss, initial parameters and optimizer of `fit`, or of a run of a sweep.

    Args:
        loss: function of (params, batch, dropout_rng) that returns (loss_sum, weight_sum), both
            summed over the rows of the batch, and maybe a dict of more metrics, summed likewise,
            which are recorded. The mean loss is loss_sum / weight_sum. dropout_rng
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


class Recipe(NamedTuple):
    """Makes a trial from numbers, which are arguments of its programs."""

    make: Callable[..., Trial]  # of the numbers except "seed"
    numbers: Mapping[str, float]  # "seed", and what `make` takes; traced in programs
    params: Any = None  # None for those of the trial
    frozen: Any = None

    @classmethod
    def of(cls, trial: Trial, seed: int) -> "Recipe":
        """The recipe of a trial, whose only number is the seed; ConfigError for half of a pair."""
        if (trial.frozen is None) != (trial.combine is None):
            name, missing = ("combine", "frozen") if trial.frozen is None else ("frozen", "combine")
            raise ConfigError(
                f"frozen and combine go together, got only {name}; pass {missing}, too"
            )
        params = None if callable(trial.init_params) else trial.init_params
        return cls(lambda: trial, {"seed": seed}, params, trial.frozen)

    @property
    def trial(self) -> Trial:
        """The trial, without initial parameters."""
        # Without initial parameters, which every run of a sweep would hold until the end.
        return make_trial(self.make, self.numbers)._replace(init_params=None, frozen=self.frozen)

    @property
    def arguments(self) -> dict[str, np.generic]:
        """The numbers as programs take them; of the seed, the bits that `jax.random.key` uses."""
        integer, real = map(jax.dtypes.canonicalize_dtype, (np.int64, np.float64))
        return {
            name: np.int64(number).astype(integer) if name == "seed" else real.type(number)
            for name, number in self.numbers.items()
        }


def make_trial(make: Callable[..., Trial], numbers: Mapping[str, Any]) -> Trial:
    """The trial of these numbers, which may be traced."""
    return make(**{name: number for name, number in numbers.items() if name != "seed"})


class RunSpec(NamedTuple):
    """A run before training; runs of a group have recipes that differ in numbers only."""

    recipe: Recipe
    data: TrainingData
    loop: LoopConfig
    callbacks: Sequence[Callback] = ()
    locked: LockedFolder | None = None
    name: str = ""
    settings: Mapping[str, Any] = MappingProxyType({})  # for the tools of `log_to`

    @property
    def folder(self) -> pathlib.Path | None:
        """Its folder, if any."""
        return None if self.locked is None else self.locked.folder

    @property
    def checkpoints(self) -> Checkpoints | None:
        """The checkpoints in its folder, if any."""
        return None if self.locked is None else self.locked.checkpoints

    @property
    def step(self) -> int:
        """Step from which it is trained; ConfigError if that is beyond the last one."""
        return 0 if self.checkpoints is None else self.checkpoints.step_to_resume(self.loop.steps)


class Programs(NamedTuple):
    """What `fit` compiles; numbers and frozen parameters are arguments."""

    create: Callable[[Mapping[str, Any], Any], TrainState]  # of numbers, and params or None
    train: Program  # (state, batch, numbers, frozen) to (state, metrics)
    evaluate: Program  # (params, batch, numbers, frozen) to sums


def make_programs(make: Callable[..., Trial], loop: LoopConfig, runner: Runner) -> Programs:
    """Programs of the recipes with this `make`."""

    def create(numbers: Mapping[str, Any], params: Any) -> TrainState:
        trial = make_trial(make, numbers)
        if params is None:
            init = trial.init_params
            params = init(jax.random.key(numbers["seed"])) if callable(init) else init
        return TrainState.create(params, trial.optimizer, averages=loop.average_decay is not None)

    def train_step(state: TrainState, batch: Any, numbers: Mapping[str, Any], frozen: Any) -> Any:
        trial = make_trial(make, numbers)
        step = make_train_step(
            trial.loss, trial.optimizer, seed=numbers["seed"],
            accumulate_steps=loop.accumulate_steps, average_decay=loop.average_decay,
            axis_name=runner.axis_name, combine=trial.combine,
        )  # fmt: skip
        return step(state, batch, frozen)

    def eval_step(params: Any, batch: Any, numbers: Mapping[str, Any], frozen: Any) -> Any:
        trial = make_trial(make, numbers)
        loss = trial.validation_loss or trial.loss
        step = make_eval_step(loss, axis_name=runner.axis_name, combine=trial.combine)
        return step(params, batch, frozen)

    return Programs(create, runner.compile_train(train_step), runner.compile_eval(eval_step))
