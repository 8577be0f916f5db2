"""The training loop: steps, metrics, validation, checkpoints, and stop signals."""

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax

from jaxformer.functional.attention.program import observed_choices
from jaxformer.stopping import StopRequest
from jaxformer.training.attention_report import describe_choices
from jaxformer.training.data import ValidationBatches, batch_at, check_rows, joined_runs
from jaxformer.training.evaluation import loss_sums
from jaxformer.training.parallel import Runner, is_first_process, is_stop_reached
from jaxformer.training.records import (
    Activity,
    NotFinite,
    Recorder,
    StepProfiler,
    TrainingProgress,
    WallClock,
)
from jaxformer.training.records.clock import meter_text
from jaxformer.training.records.profiles import STEP
from jaxformer.training.trial import RunSpec, make_programs

T = TypeVar("T")


class TrainingLoop:
    """Trains runs with the same program at once, from the same step; `fit` has one run."""

    def __init__(
        self, specs: Sequence[RunSpec], runner: Runner, profile: range | None = None
    ) -> None:
        self.clock = WallClock()
        self.runner, self.config, self.step = runner, specs[0].loop, specs[0].step
        recipe = specs[0].recipe
        self.programs = make_programs(recipe.make, self.config, runner)
        self.data = joined_runs([spec.data for spec in specs])
        self.stop = StopRequest(is_shared=runner.num_hosts > 1)
        self.stop_signal: signal.Signals | None = None  # that stopped the training, on all hosts
        numbers = runner.join([spec.recipe.arguments for spec in specs])
        # The initial state is computed by one program: eagerly, each leaf compiles one.
        self.state = runner.create(self.programs.create, (numbers, recipe.params))
        frozen = runner.place_frozen(recipe.frozen)
        self.arguments = runner.place_frozen(numbers), frozen
        # Of each run; none of a training without a folder.
        self.checkpoints = [spec.checkpoints for spec in specs if spec.checkpoints is not None]
        if self.step:  # the initial state is the template
            self.state = runner.join([
                checkpoints.restore(runner.take(self.state, index))
                for index, checkpoints in enumerate(self.checkpoints)
            ])  # fmt: skip
        self.progress = TrainingProgress(
            self.step, self.config.steps, unit=specs[0].data.unit, is_quiet=not is_first_process()
        )
        self.runs = [
            Recorder(
                spec=spec._replace(recipe=spec.recipe._replace(params=None, frozen=frozen)),
                index=index, runner=runner, progress=self.progress, last_saved=self.step,
            )
            for index, spec in enumerate(specs)
        ]  # fmt: skip
        self.profiler = StepProfiler(
            self.clock, profile if is_first_process() else None, specs[0].folder, start=self.step,
            programs=(self.programs.train, self.programs.evaluate),
        )  # fmt: skip
        self._last_metrics: dict[str, jax.Array] = {}
        self._unlogged: list[Any] = []  # metrics of the steps since the last log, on the devices

    @property
    def training(self) -> list[Recorder]:
        """The runs that have not left."""
        return [run for run in self.runs if not run.has_left]

    def train(self) -> None:
        """Takes the remaining steps, or stops after the step during which a signal arrives."""
        with contextlib.ExitStack() as stack, self.progress, self.stop:
            for run in self.runs:
                stack.enter_context(run)
            if self.step:
                count = f"{len(self.runs)} runs " if len(self.runs) > 1 else ""
                start = f"resuming {count}at step {self.step} of {self.config.steps}"
                self.progress.print(start)
            with self.profiler:
                try:
                    with self.clock.during(Activity.STEPS):
                        self.take_steps()
                finally:
                    self.wait()
            for run in self.training:
                run.leave(self.state)
                if run.stopped_by is not None:
                    self.progress.print(f"stopped at step {self.step} by {run.stopped_by}")
            self.progress.print(self.clock.summary())
        self.stop_signal = self.stop_signal or self.stop.received

    def take_steps(self) -> None:
        """Takes the remaining steps; a signal stops after one of them."""
        config = self.config
        parts = self.runner.num_local_shards * config.accumulate_steps
        self._start()
        stopped, started_at = self.must_stop(), self.step
        while self.step < config.steps and not stopped:
            is_first = self.step == started_at
            self.profiler.before(self.step + 1, self._last_metrics)
            with self.clock.during(Activity.DATA, counts=self._has_no_step_in_flight):
                batch = batch_at(self.data.batches, self.step, parts)
            train = self.programs.train
            if not train.is_compiled(batch):
                jax.block_until_ready(self._last_metrics)
                with self.clock.during(Activity.COMPILING):
                    with observed_choices() as choices:
                        train.compile(self.state, batch, *self.arguments)
                    if is_first and (kinds := describe_choices(choices)):
                        self.progress.print(f"attention: {'; '.join(kinds)}")
                    if self.runner.accelerator is not None:
                        train.count_flops(self.state, batch, *self.arguments)
            self.clock.add_flops(train.model_flops(batch))
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
            stopped = stopped or self.must_stop()
            if self.step % config.checkpoint_every == 0 or last or stopped:
                self.save(self.training)

    def _start(self) -> None:
        """Gives callbacks the records of earlier steps, and makes up for a missing validation."""
        for run in self.runs:
            run.resume_callbacks()
        self.clock.start_steps()
        if self.step and self.is_evaluation_due():
            # A signal may have cut this validation short; the best checkpoint needs its loss.
            for run, checkpoints in zip(self.runs, self.checkpoints, strict=True):
                run.validation_loss = checkpoints.validation_loss(self.step)
            if lacking := [run for run in self.runs if run.validation_loss is None]:
                self.evaluate(lacking)
                for run in lacking if self.stop_signal is None else ():
                    run.save(self.state)

    def for_each(self, runs: Sequence[Recorder], act: Callable[[Recorder], T]) -> list[T]:
        """Results of a function of each run; a run that diverges leaves."""
        results = []
        for run in runs:
            try:
                results.append(act(run))
            except NotFinite as error:
                run.failure = error
                run.leave(self.state)
                if run.name:
                    self.progress.print_of(run.name, str(error))
        return results

    def must_stop(self) -> bool:
        """Whether to stop here; all hosts ask at the same places and get the same answer."""
        if self.stop_signal is None:
            if self.runner.num_hosts == 1:
                self.stop_signal = self.stop.received
            elif is_stop_reached():
                self.stop_signal = signal.SIGTERM
        is_asked = any(run.stopped_by is not None for run in self.runs)  # by a callback
        return self.stop_signal is not None or is_asked or not self.training

    def is_evaluation_due(self) -> bool:
        """Whether the validation loss is measured after this step."""
        return self.step % self.config.eval_every == 0 or self.step == self.config.steps

    def log(self) -> None:
        """Records the mean loss and the speed of the steps since the last log."""
        steps = jax.device_get(self._unlogged)
        meters = self.clock.read_steps(len(steps), self.runner)
        logged = self.for_each(self.training, lambda run: run.log(steps, self.step, meters))
        self._unlogged = []
        if logged:
            losses, speeds = zip(*logged, strict=True)
            self.progress.update(
                self.step, losses, per_second=sum(speeds), meters=meter_text(meters)
            )

    def _has_no_step_in_flight(self) -> bool:
        """Whether the devices have nothing to do."""
        return all(leaf.is_ready() for leaf in jax.tree.leaves(self._last_metrics))

    def evaluate(self, runs: Sequence[Recorder]) -> None:
        """Computes and records validation loss and scores, if there is validation data."""
        if self.data.validation is None or not runs:
            return
        params = self.state.evaluated
        jax.block_until_ready(self._last_metrics)
        with self.clock.during(Activity.EVALUATING):
            sums = loss_sums(
                lambda params, batch: self.programs.evaluate(params, batch, *self.arguments),
                params, self._validation_batches(),
            )  # fmt: skip
            if self.stop_signal is None:  # otherwise batches are missing
                self.for_each(runs, lambda run: run.evaluate(self.step, params, sums))

    def _validation_batches(self) -> ValidationBatches:
        """Checked validation batches, which end after a signal."""
        assert self.data.validation is not None
        batches = self.data.validation()
        if isinstance(batches, Mapping):
            return {name: self._checked(part) for name, part in batches.items()}
        return self._checked(batches)

    def _checked(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            if self.stop_signal is not None:  # as known since the batch before
                return
            check_rows("a validation batch", batch, self.runner.num_local_shards)
            yield batch
            self.must_stop()

    def save(self, runs: Sequence[Recorder]) -> None:
        """Saves the states of runs, if they are finite."""
        metrics = jax.device_get(self._last_metrics)
        self.for_each(runs, lambda run: run.check(metrics))
        if not (runs := [run for run in runs if not run.has_left]):
            return
        with self.clock.during(Activity.SAVING):
            for run in runs:
                run.save(self.state)

    def wait(self) -> None:
        """Waits until all that is saved is on disk."""
        with self.clock.during(Activity.SAVING):
            for checkpoints in self.checkpoints:
                checkpoints.wait()
