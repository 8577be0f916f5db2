"""The training loop: steps, metrics, validation, checkpoints, and stop signals."""

import dataclasses
import itertools
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from jaxformer.config import LoopConfig
from jaxformer.errors import StorageError, TrainingError
from jaxformer.functional.attention.choice import describe_choices, observed_choices
from jaxformer.stopping import StopRequest
from jaxformer.training.data import TrainingData, ValidationBatches, batch_at, check_rows
from jaxformer.training.evaluation import LossSums, loss_sums
from jaxformer.training.parallel import Runner, is_stop_reached
from jaxformer.training.profiles import STEP, StepProfiler
from jaxformer.training.records import (
    Activity,
    Recorder,
    StepMeters,
    TrainingProgress,
    WallClock,
)
from jaxformer.training.records.meters import meter_text
from jaxformer.training.state import TrainState
from jaxformer.training.trial import Programs

T = TypeVar("T")


@dataclasses.dataclass(kw_only=True)
class TrainingLoop:
    """The training of one run, or of the runs of a sweep at once: the work at each interval."""

    config: LoopConfig
    runs: Sequence[Recorder]
    data: TrainingData
    runner: Runner
    programs: Programs
    arguments: tuple[Any, Any]
    """Numbers and frozen parameters, on the devices."""
    progress: TrainingProgress
    stop: StopRequest
    clock: WallClock
    profiler: StepProfiler
    state: TrainState
    step: int
    check_program: Callable[[], object] = lambda: None
    """Called before the first step; raises CheckpointError if another program began the run."""
    stop_signal: signal.Signals | None = None
    """Signal that stopped the training, on all hosts."""

    def __post_init__(self) -> None:
        self._last_metrics: dict[str, jax.Array] = {}
        self._unlogged: list[Any] = []  # metrics of the steps since the last log, on the devices
        self._meters = StepMeters(self.clock, self.runner)
        self._is_ended = False  # by a callback

    @property
    def training(self) -> list[Recorder]:
        """The runs that have not left."""
        return [run for run in self.runs if not run.has_left]

    def train(self) -> None:
        """Takes the remaining steps, or stops after the step during which a signal arrives."""
        try:
            with self.profiler:
                try:
                    with self.clock.during(Activity.STEPS):
                        self.take_steps()
                finally:
                    self.wait()
            self.progress.print(self.clock.summary())
        except StorageError as error:
            saved = min(run.checkpoints.latest_step or 0 for run in self.runs)
            raise StorageError(f"{error}; the run is saved up to step {saved}") from None

    def take_steps(self) -> None:
        """Takes the remaining steps; a signal or a callback stops after one of them."""
        config = self.config
        parts = self.runner.num_local_shards * config.accumulate_steps
        with self.clock.during(Activity.COMPILING):
            self.check_program()
        self._start()
        stopped, started_at = self.must_stop(), self.step
        while self.step < config.steps and not stopped:
            for run in self.runs:
                run.checkpoints.raise_if_failed()
            is_first = self.step == started_at
            self.profiler.before(self.step + 1, self._last_metrics)
            with self.clock.during(Activity.DATA, counts=self._has_no_step_in_flight):
                batch = batch_at(self.data.batches, self.step, parts)
            train = self.programs.train
            if not train.is_compiled(batch):
                jax.block_until_ready(self._last_metrics)
                with self.clock.during(Activity.COMPILING):
                    choices = self._compile(batch)
                    if is_first and choices:
                        self.progress.print(f"attention: {'; '.join(choices)}")
                    if self.runner.accelerator is not None:
                        train.count_flops(self.state, batch, *self.arguments)
            self._meters.add(train.model_flops(batch))
            with jax.profiler.StepTraceAnnotation(STEP, step_num=self.step + 1):
                self.state, metrics = train(self.state, batch, *self.arguments)
                # Waits for the previous step: one step stays queued, so that the device does not
                # wait for the host. More of them would delay the end after a signal.
                jax.block_until_ready(self._last_metrics)
            self.profiler.after(self.step + 1, metrics)
            self._unlogged.append(metrics)
            self._last_metrics = metrics
            self.step += 1
            for run in self.runs:
                run.validation_loss = None
            stopped = self.must_stop()
            last = self.step == config.steps
            first = self.step == 1 and config.steps < config.log_every
            if self.step % config.log_every == 0 or first or last:
                self.log()
            # Not after a signal, which may leave little time: resuming makes up for it.
            if not stopped and self.is_evaluation_due():
                self.evaluate(self.training)
            self._part_from_stopped()
            stopped = stopped or self.must_stop() or not self.training
            if self.step % config.checkpoint_every == 0 or last or stopped:
                self.save()

    def _compile(self, batch: Any) -> list[str]:
        """Compiles the step for a batch; returns which attention it has, and why no other."""
        with observed_choices() as choices:
            self.programs.train.compile(self.state, batch, *self.arguments)
        return describe_choices(choices)

    def _start(self) -> None:
        """Starts from what the last call has recorded, and makes up for a missing validation."""
        for run in self.runs:
            run.resume_callbacks()
        self._meters.begin()
        if self.step:
            found = [run.checkpoints.unlogged(self.step) for run in self.runs]
            self._meters.begin(max(seconds for seconds, _ in found))
            self._unlogged = found[0][1]
            if self.runs[0].index is not None:
                steps = zip(*(metrics for _, metrics in found), strict=True)
                self._unlogged = [jax.tree.map(lambda *x: np.array(x), *one) for one in steps]
        if self.step and self.is_evaluation_due():
            # A signal may have cut this validation short; the best checkpoint needs its loss.
            for run in self.runs:
                run.validation_loss = run.checkpoints.validation_loss(self.step)
            if lacking := [run for run in self.runs if run.validation_loss is None]:
                self.evaluate(lacking)
                for run in lacking if self.stop_signal is None else ():
                    run.checkpoints.save(run.part(self.state), run.validation_loss)
        self._part_from_stopped()

    def each(self, runs: Sequence[Recorder], act: Callable[[Recorder], T]) -> dict[str, T]:
        """Results of a function of each run, by name; a run of a sweep that diverges leaves."""
        results = {}
        for run in runs:
            try:
                results[run.name] = act(run)
            except TrainingError as error:
                if run.index is None:
                    raise
                run.failure = str(error)
                run.leave(self.state)
                self.progress.leave(run.name, run.failure)
        return results

    def _part_from_stopped(self) -> None:
        """Ends the training if a callback stops it; in a sweep, saves the run, which leaves."""
        for run in self.training:
            if run.stopped_by is None:
                continue
            reason = f"stopped at step {self.step} by {run.stopped_by}"
            if run.index is None:
                self.progress.print(reason)
                run.stopped_by, self._is_ended = None, True
                continue
            if self.step > run.last_saved:
                self._save([run])
            run.leave(self.state)
            self.progress.leave(run.name, reason)

    def must_stop(self) -> bool:
        """Whether to stop here; all hosts ask at the same places and get the same answer."""
        if self.stop_signal is None:
            if self.runner.num_hosts == 1:
                self.stop_signal = self.stop.received
            elif is_stop_reached():
                self.stop_signal = signal.SIGTERM
        return self._is_ended or self.stop_signal is not None

    def is_evaluation_due(self) -> bool:
        """Whether the validation loss is measured after this step."""
        return self.step % self.config.eval_every == 0 or self.step == self.config.steps

    def log(self) -> None:
        """Records the mean loss and the speed of the steps since the last log."""
        steps = jax.device_get(self._unlogged)
        meters = self._meters.read(len(steps))

        def log(run: Recorder) -> tuple[float, float]:
            return run.log(steps, lambda: run.part(self.state.params), self.step, meters)

        logged = self.each(self.training, log)
        self._unlogged = []
        losses = {name: loss for name, (loss, _) in logged.items()}
        speed = sum(one for _, one in logged.values())
        self.progress.update(self.step, losses, per_second=speed, meters=meter_text(meters))

    def _has_no_step_in_flight(self) -> bool:
        """Whether the devices have nothing to do."""
        return all(leaf.is_ready() for leaf in jax.tree.leaves(self._last_metrics))

    def evaluate(self, runs: Sequence[Recorder]) -> None:
        """Computes and records validation loss and scores, if there is validation data."""
        if self.data.validation is None:
            return
        params = self.state.evaluated
        jax.block_until_ready(self._last_metrics)
        with self.clock.during(Activity.EVALUATING):
            batches = self._validation_batches()
            sums = loss_sums(self._eval_step, params, batches)
            if self.stop_signal is None:  # otherwise batches are missing
                self.each(runs, lambda run: self._evaluated(run, params, sums))

    def _eval_step(self, params: Any, batch: Any) -> Any:
        return self.programs.evaluate(params, batch, *self.arguments)

    def _evaluated(self, run: Recorder, params: Any, sums: LossSums) -> None:
        data = run.data
        result = sums.of_run(run.index).evaluation(data.validation_bytes, data.unit)
        if result.bad_batch is not None:
            where = f"the first bad validation batch is number {result.bad_batch}, counted from 0"
            raise run.diverged("validation loss", self.step, where)
        if data.scores is not None:
            scores = data.scores(run.whole_params(run.part(params)))
            result = result._replace(scores={**result.scores, **scores})
        run.evaluated(self.step, result)
        where = f"{run.name}, " if run.name else ""
        self.progress.print(f"{where}step {self.step}: validation loss {result}")

    def _validation_batches(self) -> ValidationBatches:
        """Checked validation batches; those of all parts are numbered consecutively."""
        assert self.data.validation is not None
        found, numbers = self.data.validation(), itertools.count()
        if isinstance(found, Mapping):
            return {name: self._checked(part, numbers) for name, part in found.items()}
        return self._checked(found, numbers)

    def _checked(self, batches: Iterable[Any], numbers: Iterator[int]) -> Iterator[Any]:
        for batch in batches:
            if self.stop_signal is not None:  # as known since the batch before
                return
            check_rows(f"validation batch {next(numbers)}", batch, self.runner.num_local_shards)
            yield batch
            self.must_stop()

    def save(self) -> None:
        """Saves the state after checking it."""
        self.check()
        self._save(self.training)

    def _save(self, runs: Sequence[Recorder]) -> None:
        steps, seconds = jax.device_get(self._unlogged), self._meters.seconds
        with self.clock.during(Activity.SAVING):
            for run in runs:
                run.save(run.part(self.state), steps, seconds)

    def check(self) -> None:
        """Raises TrainingError if the state is not finite, or differs between devices."""
        metrics = jax.device_get(self._last_metrics)
        params = self.state.params
        self.each(self.training, lambda run: run.check(metrics, lambda: run.part(params)))
        for tree in (params, self.state.average):
            if tree is not None:
                self.runner.check_replicas(tree)

    def wait(self) -> None:
        """Waits until all that is saved is on disk."""
        with self.clock.during(Activity.SAVING):
            for run in self.runs:
                run.checkpoints.wait()
