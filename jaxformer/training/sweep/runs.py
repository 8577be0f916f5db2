"""What a run of a sweep is, before and after it is trained."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import optax

from jaxformer.config import LoopConfig
from jaxformer.training.callbacks import Callback
from jaxformer.training.data import TrainingData
from jaxformer.training.fit import FitResult
from jaxformer.training.losses import LossFunction

__all__ = ["SweepRun", "SweepSpec", "Trial"]


class Trial(NamedTuple):
    """What a run of a sweep trains; each as in `fit`.

    Args:
        loss: function of (params, batch, dropout_rng) that returns (loss_sum, weight_sum).
        init_params: initial parameters, or a function of a PRNG key that returns them.
        optimizer: any optax transformation.
        validation_loss: loss of the validation batches; `loss` when not given.
        learning_rate: the optimizer's schedule, to record the learning rate with the metrics.
    """

    loss: LossFunction
    init_params: Any
    optimizer: optax.GradientTransformation
    validation_loss: LossFunction | None = None
    learning_rate: optax.Schedule | None = None


class SweepRun(NamedTuple):
    """A run of a sweep.

    Args:
        name: name of the run, and of its folder.
        values: what distinguishes it, by name.
        result: how its training ended; its params, after the last step that it took part in. They
            are None if the run failed in an earlier call, or if a signal stopped the sweep before
            the run began.
        failure: why the run left the sweep early, such as a loss that is not finite.
    """

    name: str
    values: Mapping[str, Any]
    result: FitResult
    failure: str | None = None


class SweepSpec(NamedTuple):
    """A run of a sweep before it is trained.

    Args:
        name: name of the run, and of its folder.
        values: what distinguishes it, for people.
        numbers: its numbers, by name, "seed" among them. They are arguments of the program.
        make: function of the numbers except the seed to a `Trial`. Runs with the same function
            share a program.
        loop: settings of the loop. Runs that share a program share them, too.
        data: batches.
        callbacks: as in `fit`.
        num_devices: number of local devices to split the runs of a program over; all if None.
    """

    name: str
    values: Mapping[str, Any]
    numbers: Mapping[str, float]
    make: Callable[..., Trial]
    loop: LoopConfig
    data: TrainingData
    callbacks: Sequence[Callback] = ()
    num_devices: int | None = None
