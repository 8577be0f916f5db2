"""Records of one run while it trains: metrics, validations, checkpoints, and why it ended."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxformer.config import LoopConfig
from jaxformer.errors import TrainingError
from jaxformer.training.callbacks import Callback
from jaxformer.training.checkpoints import Checkpoints
from jaxformer.training.data import TrainingData, batch_at
from jaxformer.training.evaluation import Evaluation
from jaxformer.training.parallel import Runner, from_first_process, is_first_process
from jaxformer.training.records.diagnosis import Diagnosis
from jaxformer.training.records.metrics import MetricsWriter
from jaxformer.training.state import TrainState
from jaxformer.training.trial import Trial


@dataclasses.dataclass(kw_only=True)
class Recorder:
    """Records one run of a training loop; raises TrainingError if its numbers are not finite."""

    config: LoopConfig
    trial: Trial
    seed: int
    data: TrainingData
    runner: Runner
    folder: pathlib.Path | None
    checkpoints: Checkpoints
    metrics: MetricsWriter
    print_line: Callable[[str], None]
    last_saved: int
    """Step of the newest checkpoint."""
    callbacks: Sequence[Callback] = ()
    name: str = ""
    index: int | None = None
    """Index of the run in a sweep; None for a run that trains alone."""
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

    def __post_init__(self) -> None:
        # A run that resumes from a checkpoint has the records up to it.
        self.checkpoints.before_save = self.metrics.flush

    def part(self, tree: Any) -> Any:
        """This run's part of state or parameters on the devices."""
        return tree if self.index is None else self.runner.take(tree, self.index)

    def leave(self, state: TrainState) -> None:
        """Ends this run of a sweep, whose parameters later steps of the others do not change."""
        self.has_left, self.step = True, int(self.part(state.step))
        self.params = self.part(state.evaluated)

    def whole_params(self, params: Any) -> Any:
        """Parameters of the whole model, on one host, for scores."""
        params, combine = self.runner.on_one_host(params), self.trial.combine
        if combine is None:
            return params
        return combine(params, self.runner.on_one_host(self.trial.frozen))

    def own(self, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
        """This run's metrics of a step, from those of all runs, on the host."""
        if self.index is None:
            return metrics
        return {name: array[self.index] for name, array in metrics.items()}

    def check(self, metrics: Mapping[str, Any], params: Callable[[], Any]) -> None:
        """Raises TrainingError if a step was not finite, and no more could be skipped."""
        own = self.own(metrics)
        bad, skipped = int(own["bad_step"]), int(own["skipped_steps"])
        if bad >= 0:
            where = ""
            if self.index is None:
                self.print_line(f"step {bad + 1} is not finite; computing it again, row by row")
                parts = self.runner.num_local_shards * self.config.accumulate_steps
                explain = Diagnosis(
                    trial=self.trial, seed=self.seed, runner=self.runner,
                    accumulate_steps=self.config.accumulate_steps,
                    batch_at=functools.partial(batch_at, self.data.batches, parts=parts),
                )  # fmt: skip
                where = explain(bad, params())
            if skipped:
                where += f"; {skipped} such steps before it were skipped"
            raise self.diverged("loss or gradient", bad + 1, where)

    def diverged(self, what: str, step: int, where: str) -> TrainingError:
        """Error of a run that stops because `what`, such as a loss, is not finite at a step."""
        if self.index is not None:
            return TrainingError(f"{what} is not finite at step {step}")
        schedule = self.trial.learning_rate
        rate = "" if schedule is None else f", {float(schedule(step - 1)):.4g} at this step"
        return TrainingError(
            f"{what} is not finite at step {step}; the run is saved up to step {self.last_saved}; "
            f"{where}; unless the data is bad, the likeliest cause is the learning rate{rate}: "
            "lower it, or the norm to which gradients are clipped, and choose another folder"
        )

    def log(
        self, steps: Sequence[Mapping[str, Any]], params: Callable[[], Any], step: int,
        meters: Mapping[str, float],
    ) -> tuple[float, float]:  # fmt: skip
        """Records the mean loss and the speed of the steps since the last record.

        Takes the metrics of these steps, of all runs, and their meters. Returns the mean loss, NaN
        if all were skipped, and labels per second.
        """
        self.check(steps[-1], params)
        own = [self.own(one) for one in steps]
        losses, weights, norms = (
            np.array([one[name] for one in own], np.float64)
            for name in ("loss", "weight", "grad_norm")
        )
        healthy = np.isfinite(losses) & np.isfinite(norms)  # the same test as in the train step
        for index in np.flatnonzero(~healthy):
            self.print_line(
                f"step {step - len(own) + index + 1}: loss or gradient is not finite; skipped its "
                f"batch, {int(own[index]['skipped_steps'])} of at most {self.config.skip_bad_steps}"
            )
        skipped, values, mean = int(own[-1]["skipped_steps"]), dict[str, float](), math.nan
        if healthy.any():
            mean = float((losses * weights)[healthy].sum() / weights[healthy].sum())
            values = {"loss": mean, "grad_norm": float(norms[healthy][-1])}
        if (schedule := self.trial.learning_rate) is not None:
            # The optimizer does not count skipped steps.
            values["learning_rate"] = float(schedule(max(step - skipped - 1, 0)))
        if self.config.skip_bad_steps:
            values["skipped_steps"] = skipped
        seconds = meters["seconds_per_step"] * len(own)
        per_second = float(weights[np.isfinite(weights)].sum()) / seconds
        values[f"{self.data.unit.replace(' ', '_')}s_per_second"] = per_second
        self.record(step, {**values, **meters})
        return mean, per_second

    def record(self, step: int, values: dict[str, float]) -> None:
        """Writes metrics, and calls the callbacks in the first process of a job."""
        self.metrics.write(step, **values)
        self.ask(lambda callback: callback(step, values))

    def resume_callbacks(self) -> None:
        """Gives the records of earlier steps to the callbacks that want them."""
        self.ask(lambda one: hasattr(one, "resume") and one.resume(self.metrics.records))

    def ask(self, question: Callable[[Callback], Any]) -> None:
        """Asks every callback, in the first process; one that answers True stops the run."""
        stops = -1
        for index, callback in enumerate(self.callbacks if is_first_process() else ()):
            if isinstance(answer := question(callback), bool | np.bool_) and answer:
                stops = index
        if self.callbacks and self.runner.num_hosts > 1:
            stops = from_first_process(stops)
        if stops >= 0:
            self.stopped_by = self.callbacks[stops]

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Records a validation of the current state."""
        self.record(step, evaluation.figures)
        self.evaluation, self.validation_loss = evaluation, evaluation.loss

    def save(self, state: TrainState, steps: Sequence[Mapping[str, Any]], seconds: float) -> None:
        """Saves the run's state; `steps` and `seconds` are those since the last record."""
        unlogged = [{name: float(one) for name, one in self.own(each).items()} for each in steps]
        self.checkpoints.save(state, self.validation_loss, (seconds, unlogged))
        self.last_saved = int(state.step)
