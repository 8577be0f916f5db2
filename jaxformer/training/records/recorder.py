"""Records of one run while it trains: metrics, validations, checkpoints, and why it ended."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxformer.errors import ConfigError, TrainingError
from jaxformer.training.callbacks import Callback
from jaxformer.training.evaluation import Evaluation, LossSums
from jaxformer.training.parallel import (
    Runner,
    from_first_process,
    in_first_process,
    is_first_process,
)
from jaxformer.training.records.metrics import MetricsWriter
from jaxformer.training.records.progress import TrainingProgress
from jaxformer.training.state import TrainState
from jaxformer.training.step import METRICS
from jaxformer.training.trial import RunSpec


class NotFinite(TrainingError):
    """A number of a run, such as a loss, that is not finite."""


@dataclasses.dataclass(kw_only=True)
class Recorder:
    """Records one run of a training loop; raises NotFinite if its numbers are not."""

    spec: RunSpec
    index: int
    """Index among the runs that are trained together."""
    runner: Runner
    progress: TrainingProgress
    last_saved: int
    """Step of the newest checkpoint, from which it is trained."""
    evaluation: Evaluation | None = None
    validation_loss: float | None = None
    """Validation loss of the current state; None if not measured."""
    stopped_by: Callback | None = None
    """Callback that stops this run."""
    failure: NotFinite | None = None
    """Why this run left early."""
    has_left: bool = False
    """Whether this run trains no longer."""
    step: int = 0
    """Number of steps taken when it left."""
    params: Any = None
    """Its parameters then."""

    def __post_init__(self) -> None:
        self.trial = self.spec.recipe.trial
        is_first = is_first_process()
        self.metrics = MetricsWriter(
            self.spec.folder, self.last_saved, log_to=self.spec.loop.log_to,
            settings=self.spec.settings, writes=is_first,
        )  # fmt: skip

    def __enter__(self) -> "Recorder":
        in_first_process("open the tools of log_to", self.metrics.__enter__)
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if error is None and self.failure is not None:  # which ended this run alone
            kind, error = type(self.failure), self.failure
        self.metrics.__exit__(kind, error, traceback)

    @property
    def name(self) -> str:
        """Name of the run in a sweep; empty for a run that trains alone."""
        return self.spec.name

    def part(self, tree: Any) -> Any:
        """This run's part of state or parameters on the devices."""
        return self.runner.take(tree, self.index)

    def select(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """This run's metrics of a step, from those of all runs, on the host."""
        return {name: float(np.ravel(values)[self.index]) for name, values in metrics.items()}

    def leave(self, state: TrainState) -> None:
        """Ends this run, whose parameters later steps of the others do not change."""
        self.has_left, self.step = True, int(self.part(state.step))
        params = self.part(state.evaluated)
        self.params = self.runner.on_one_host(params) if self.runner.has_all_params else params

    def check(self, metrics: Mapping[str, Any]) -> None:
        """Raises NotFinite if a step was not finite."""
        if (bad := int(self.select(metrics)["bad_step"])) >= 0:
            raise NotFinite(f"loss or gradient is not finite at step {bad + 1}")

    def log(
        self, metrics: Sequence[Mapping[str, Any]], step: int, meters: Mapping[str, float]
    ) -> tuple[float, float]:
        """Records the steps since the last record; returns mean loss and labels/s."""
        self.check(metrics[-1])
        steps = [self.select(values) for values in metrics]
        weights = [values["weight"] for values in steps]

        def mean(name: str) -> float:
            return float(np.average([values[name] for values in steps], weights=weights))

        values = {"loss": mean("loss"), "grad_norm": steps[-1]["grad_norm"]}
        if (schedule := self.trial.learning_rate) is not None:
            values["learning_rate"] = float(schedule(step - 1))
        seconds = meters["seconds_per_step"] * len(steps)
        per_second = sum(weights) / seconds
        values |= {f"{self.spec.data.unit.replace(' ', '_')}s_per_second": per_second, **meters}
        for name in sorted(steps[-1].keys() - METRICS):
            if name in values:
                raise ConfigError(
                    f"a metric of a loss must have another name than {', '.join(values)}, got "
                    f"{name!r}; rename it"
                )
            values[name] = mean(name)
        self.record(step, values)
        return values["loss"], per_second

    def record(self, step: int, values: dict[str, float]) -> None:
        """Writes metrics, and calls the callbacks in the first process of a job."""
        self.metrics.write(step, **values)
        self.ask(lambda callback: callback(step, values))

    def resume_callbacks(self) -> None:
        """Gives the records of earlier steps to the callbacks that want them."""
        records = self.metrics.records
        self.ask(lambda callback: hasattr(callback, "resume") and callback.resume(records))

    def ask(self, question: Callable[[Callback], Any]) -> None:
        """Asks every callback, in the first process; one that answers True stops the run."""
        callbacks, stops = self.spec.callbacks, -1
        for index, callback in enumerate(callbacks if is_first_process() else ()):
            if isinstance(answer := question(callback), bool | np.bool_) and answer:
                stops = index
        if callbacks and self.runner.num_hosts > 1:
            stops = from_first_process(stops)
        if stops >= 0:
            self.stopped_by = callbacks[stops]

    def evaluate(self, step: int, params: Any, sums: LossSums) -> None:
        """Records and prints the validation, from parameters and losses of all runs."""
        data = self.spec.data
        evaluation = sums.evaluation(data.validation_bytes, data.unit, self.index)
        if not math.isfinite(evaluation.loss):
            raise NotFinite(f"validation loss is not finite at step {step}")
        if data.scores is not None:
            scores = data.scores(self._whole_params(self.part(params)))
            evaluation = evaluation._replace(scores={**evaluation.scores, **scores})
        self.record(step, evaluation.figures)
        self.evaluation, self.validation_loss = evaluation, evaluation.loss
        where = f"{self.name}, " if self.name else ""
        self.progress.print(f"{where}step {step}: validation loss {evaluation}")

    def _whole_params(self, params: Any) -> Any:
        """Parameters of the whole model, on one host, for scores."""
        params, combine = self.runner.on_one_host(params), self.trial.combine
        if combine is None:
            return params
        return combine(params, self.runner.on_one_host(self.trial.frozen))

    def save(self, state: TrainState) -> None:
        """Saves the run's part of the state of all runs."""
        self.metrics.flush()  # a run that resumes from a checkpoint has the records up to it
        state = self.part(state)
        if (checkpoints := self.spec.checkpoints) is not None:
            checkpoints.save(state, self.validation_loss)
        self.last_saved = int(state.step)
