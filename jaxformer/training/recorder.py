"""What is kept of one run while it trains: metrics, validations, checkpoints, and why it ended."""

import contextlib
import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import optax

from jaxformer.config import LoopConfig
from jaxformer.training.callbacks import Callback
from jaxformer.training.checkpoints import Checkpoints, NoCheckpoints
from jaxformer.training.data import TrainingData
from jaxformer.training.evaluation import Evaluation
from jaxformer.training.health import Health
from jaxformer.training.lock import run_lock
from jaxformer.training.metrics import MetricsWriter
from jaxformer.training.parallel import is_first_process
from jaxformer.training.state import TrainState

__all__ = ["Recorder", "open_checkpoints"]


@dataclasses.dataclass(kw_only=True)
class Recorder:
    """Records one run of a training loop, which trains one run, or those of a sweep at once.

    Args:
        config: settings of the loop.
        data: the run's data.
        checkpoints: the run's checkpoints.
        metrics: writer of the run's metrics.
        health: reads the metrics of the run's steps.
        last_saved: step of the newest checkpoint.
        learning_rate: the optimizer's schedule, if known.
        callbacks: as in `fit`.
        name: name of the run in a sweep.
        index: index of the run in a sweep; None for a run that trains alone.
    """

    config: LoopConfig
    data: TrainingData
    checkpoints: Checkpoints
    metrics: MetricsWriter
    health: Health
    last_saved: int
    learning_rate: optax.Schedule | None = None
    callbacks: Sequence[Callback] = ()
    name: str = ""
    index: int | None = None
    evaluation: Evaluation | None = None
    validation_loss: float | None = None
    """Validation loss of the current state; None if not measured."""
    stopped_by: Callback | None = None
    """Callback that stops this run."""
    failure: str | None = None
    """Why this run left a sweep early."""
    has_left: bool = False
    """Whether this run of a sweep trains no longer."""
    step: int = 0
    """Number of steps taken when it left."""
    params: Any = None
    """Its parameters then."""

    def own(self, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
        """This run's metrics of a step, from those of all runs, on the host."""
        if self.index is None:
            return metrics
        return {name: array[self.index] for name, array in metrics.items()}

    def log(
        self, steps: Sequence[Mapping[str, Any]], params: Callable[[], Any], step: int,
        seconds: float,
    ) -> tuple[float, float]:  # fmt: skip
        """Records the mean loss and the speed of the steps since the last record.

        Args:
            steps: metrics of these steps, of all runs, on the host.
            params: returns this run's newest parameters.
            step: number of steps taken.
            seconds: how long they took.

        Returns:
            Mean loss, NaN if all steps were skipped, and labels per second.

        Raises:
            TrainingError: as in `Health.read`.
        """
        recent = self.health.read([self.own(one) for one in steps], params, step, self.last_saved)
        per_second = recent.weight / seconds
        values: dict[str, float] = {}
        if recent.loss is not None and recent.grad_norm is not None:
            values = {"loss": recent.loss, "grad_norm": recent.grad_norm}
        if self.learning_rate is not None:
            # The optimizer does not count skipped steps.
            taken = step - recent.skipped_steps
            values["learning_rate"] = float(self.learning_rate(max(taken - 1, 0)))
        if self.config.skip_bad_steps:
            values["skipped_steps"] = recent.skipped_steps
        values[f"{self.data.unit.replace(' ', '_')}s_per_second"] = per_second
        self.record(step, values)
        return math.nan if recent.loss is None else recent.loss, per_second

    def record(self, step: int, values: dict[str, float]) -> None:
        """Writes metrics, and calls the callbacks in the first process of a job."""
        self.metrics.write(step, **values)
        self.ask(lambda callback: callback(step, values))

    def resume_callbacks(self) -> None:
        """Gives the records of earlier steps to the callbacks that want them."""
        self.ask(lambda one: hasattr(one, "resume") and one.resume(self.metrics.records))

    def ask(self, question: Callable[[Callback], Any]) -> None:
        """Asks every callback; one that answers True stops the run."""
        for callback in self.callbacks if is_first_process() else ():
            if isinstance(answer := question(callback), bool | np.bool_) and answer:
                self.stopped_by = callback

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Records a validation of the current state."""
        self.record(step, evaluation.figures)
        self.evaluation, self.validation_loss = evaluation, evaluation.loss

    def save(self, state: TrainState, steps: Sequence[Mapping[str, Any]], seconds: float) -> None:
        """Saves the run's state; `steps` and `seconds` are those since the last record."""
        unlogged = [{name: float(one) for name, one in self.own(each).items()} for each in steps]
        self.checkpoints.save(state, self.validation_loss, (seconds, unlogged))
        self.last_saved = int(state.step)


@contextlib.contextmanager
def open_checkpoints(folder: pathlib.Path | None, keep: int) -> Iterator[Checkpoints]:
    """Opens the checkpoints of a run folder, which is locked meanwhile; none without a folder."""
    if folder is None:
        yield NoCheckpoints()
        return
    with (
        run_lock(folder) if is_first_process() else contextlib.nullcontext(),
        Checkpoints(folder / "checkpoints", keep) as checkpoints,
    ):
        yield checkpoints
