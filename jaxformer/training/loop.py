"""The training loop: steps, metrics, validation, checkpoints, and stop signals."""

import contextvars
import dataclasses
import functools
import itertools
import math
import pathlib
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
import optax

from jaxformer import stopping
from jaxformer.config import LoopConfig
from jaxformer.errors import StorageError
from jaxformer.training.callbacks import Callback
from jaxformer.training.checkpoints import Checkpoints
from jaxformer.training.data import TrainingData, ValidationBatches, batch_at, check_rows
from jaxformer.training.evaluation import Evaluation, evaluate
from jaxformer.training.health import Health, diverged
from jaxformer.training.losses import Combine
from jaxformer.training.metrics import MetricsWriter
from jaxformer.training.parallel import Program, Runner, StopAgreement, is_first_process
from jaxformer.training.progress import TrainingProgress
from jaxformer.training.state import TrainState

__all__ = ["TrainingLoop"]

T = TypeVar("T")


@dataclasses.dataclass(kw_only=True)
class TrainingLoop:
    """A training run in progress: its state, and the work at each interval."""

    config: LoopConfig
    data: TrainingData
    runner: Runner
    learning_rate: optax.Schedule | None
    train_step: Program
    eval_step: Program
    folder: pathlib.Path | None
    checkpoints: Checkpoints
    metrics: MetricsWriter
    progress: TrainingProgress
    health: Health
    signals: stopping.StopSignals
    agreement: StopAgreement
    state: TrainState
    step: int
    last_saved: int
    stop_signal: signal.Signals | None = None
    """Signal that stops the training, on all hosts."""
    callbacks: Sequence[Callback] = ()
    frozen: Any = None
    combine: Combine | None = None
    evaluation: Evaluation | None = None
    validation_loss: float | None = None
    """Validation loss of the current state; None if not measured."""
    last_metrics: dict[str, jax.Array] = dataclasses.field(default_factory=dict)
    unlogged: list[Any] = dataclasses.field(default_factory=list)
    """Metrics of the steps since the last log, still on the devices."""
    unlogged_since: float = 0.0
    """Start of the first of these steps, in seconds, shifted by pauses such as validation."""

    def train(self) -> None:
        """Takes the remaining steps, or stops after the step during which a signal arrives.

        Raises:
            StorageError: a file cannot be written; the message also says what is saved.
            TrainingError: as in `fit`.
        """
        self.describe()
        try:
            try:
                self.take_steps()
            except stopping.Stopped:
                self.signals.finish_first()
                if self.signals.owns_process and self.step == self.last_saved:
                    raise  # nothing to save, and the state may still be being computed
                self.save_checked()
            finally:
                self.checkpoints.wait()
        except StorageError as error:
            raise StorageError(
                f"{error}; the run is saved up to step {self.checkpoints.latest_step or 0}"
            ) from None
        finally:
            self.describe()

    def take_steps(self) -> None:
        """Takes the remaining steps; raises `Stopped` if a signal cuts, say, compiling short."""
        config = self.config
        parts = self.runner.num_local_shards * config.accumulate_steps
        self.ask(
            lambda callback: hasattr(callback, "resume") and callback.resume(self.metrics.records)
        )
        self.unlogged_since = time.monotonic()
        if self.step:
            seconds, self.unlogged = self.checkpoints.unlogged(self.step)
            self.unlogged_since -= seconds
        if self.step and self.is_evaluation_due():
            # A signal may have cut this validation short; the best checkpoint needs its loss.
            self.validation_loss = self.checkpoints.validation_loss(self.step)
            if self.validation_loss is None:
                self.evaluate()
                self.checkpoints.save(self.state, validation_loss=self.validation_loss)
        stopped, started_at = self.must_stop(), self.step
        while self.step < config.steps and not stopped:
            self.checkpoints.raise_if_failed()
            # A signal may abort the first step: it may take minutes, and only it would be lost.
            is_first = self.step == started_at
            make = functools.partial(self.may_be_cut_short, batch_at) if is_first else batch_at
            batch = make(self.data.batches, self.step, parts)
            if not self.train_step.is_compiled(batch):
                self.may_be_cut_short(self.train_step.compile, self.state, batch)
            self.state, metrics = self.train_step(self.state, batch)
            if is_first and self.runner.num_hosts == 1 and self.signals.owns_process:
                self.signals.cut_short(jax.block_until_ready, metrics)
            # Waits for the previous step: one step stays queued, so that the device does not wait
            # for the host. More of them would delay the end after a signal.
            jax.block_until_ready(self.last_metrics)
            self.unlogged.append(metrics)
            self.last_metrics = metrics
            self.step += 1
            self.validation_loss = None
            stopped = self.must_stop()
            last = self.step == config.steps
            first = self.step == 1 and config.steps < config.log_every
            if self.step % config.log_every == 0 or first or last:
                self.log()
            # Not after a signal, which may leave little time: resuming makes up for it.
            if not stopped and self.is_evaluation_due():
                self.evaluate()
            stopped = stopped or self.must_stop()
            if self.step % config.checkpoint_every == 0 or last or stopped:
                self.save()

    def must_stop(self) -> bool:
        """Whether to stop here; all hosts ask at the same places and get the same answer."""
        reached = self.agreement.reached()
        self.stop_signal = signal.Signals(reached) if reached else None
        return reached is not None

    def is_evaluation_due(self) -> bool:
        """Whether the validation loss is measured after this step."""
        return self.step % self.config.eval_every == 0 or self.step == self.config.steps

    def may_be_cut_short(self, function: Callable[..., T], *args: Any) -> T:
        """Calls a function that does not change the state and that a signal may cut short.

        Unsaved steps are checked first, so that they can be saved while the function still occupies
        the devices: a second program could deadlock with it. On several hosts nothing is cut short,
        because no host may stop alone.
        """
        if self.step > self.last_saved:
            self.check()
        if self.runner.num_hosts > 1:
            return function(*args)
        save = functools.partial(contextvars.copy_context().run, self.save_checked)
        return self.signals.cut_short(function, *args, save=save)

    def describe(self) -> None:
        """Updates the note on what is saved, which is printed if a signal ends the process."""
        self.signals.note = stopping.saved_note(self.checkpoints.latest_step, self.folder or "")

    def log(self) -> None:
        """Records the mean loss and the speed of the steps since the last log."""
        recent = self.health.read(self.unlogged, self.state.params, self.step, self.last_saved)
        now = time.monotonic()
        per_second = recent.weight / (now - self.unlogged_since)
        self.unlogged_since, self.unlogged = now, []
        values: dict[str, float] = {}
        if recent.loss is not None and recent.grad_norm is not None:
            values = {"loss": recent.loss, "grad_norm": recent.grad_norm}
        if self.learning_rate is not None:
            # The optimizer does not count skipped steps.
            taken = self.step - recent.skipped_steps
            values["learning_rate"] = float(self.learning_rate(max(taken - 1, 0)))
        if self.config.skip_bad_steps:
            values["skipped_steps"] = recent.skipped_steps
        values[f"{self.data.unit.replace(' ', '_')}s_per_second"] = per_second
        self.record(values)
        loss = math.nan if recent.loss is None else recent.loss
        self.progress.update(self.step, loss=loss, per_second=per_second)

    def record(self, values: dict[str, float]) -> None:
        """Writes metrics, and calls the callbacks in the first process of a job."""
        self.metrics.write(self.step, **values)
        self.ask(lambda callback: callback(self.step, values))

    def ask(self, question: Callable[[Callback], Any]) -> None:
        """Asks every callback, and stops the training if one answers True."""
        for callback in self.callbacks if is_first_process() else ():
            if isinstance(answer := question(callback), bool | np.bool_) and answer:
                self.progress.print(f"stopped at step {self.step} by {callback}")
                self.agreement.request()

    def evaluate(self) -> None:
        """Computes and records validation loss and scores, if there is validation data."""
        data, began = self.data, time.monotonic()
        if data.validation is None:
            return
        result = self.may_be_cut_short(
            evaluate, self.eval_step, self.state.evaluated, self._validation_batches(),
            data.validation_bytes, data.unit,
        )  # fmt: skip
        if result.bad_batch is not None:
            where = f"the first bad validation batch is number {result.bad_batch}, counted from 0"
            raise diverged("validation loss", self.step, self.last_saved, where, self.learning_rate)
        if data.scores is not None:
            params = self.runner.on_one_host(self.state.evaluated)
            if self.combine is not None:
                params = self.combine(params, self.runner.on_one_host(self.frozen))
            scores = self.may_be_cut_short(data.scores, params)
            result = result._replace(scores={**result.scores, **scores})
        self.record(result.figures)
        self.progress.print(f"step {self.step}: validation loss {result}")
        self.evaluation, self.validation_loss = result, result.loss
        self.unlogged_since += time.monotonic() - began  # this time does not count as training

    def _validation_batches(self) -> ValidationBatches:
        """Checked validation batches; those of all parts are numbered consecutively."""
        assert self.data.validation is not None
        found, numbers = self.data.validation(), itertools.count()
        if isinstance(found, Mapping):
            return {name: self._checked(part, numbers) for name, part in found.items()}
        return self._checked(found, numbers)

    def _checked(self, batches: Iterable[Any], numbers: Iterator[int]) -> Iterator[Any]:
        for batch in batches:
            check_rows(f"validation batch {next(numbers)}", batch, self.runner.num_local_shards)
            yield batch
            if self.runner.num_hosts > 1 and self.must_stop() and self.stop_signal is not None:
                raise stopping.Stopped(self.stop_signal)

    def save(self) -> None:
        """Saves the state after checking it."""
        self.check()
        self._save()

    def _save(self) -> None:
        steps = jax.device_get(self.unlogged)
        unlogged = [{name: float(one[name]) for name in one} for one in steps]
        seconds = time.monotonic() - self.unlogged_since
        self.checkpoints.save(self.state, self.validation_loss, (seconds, unlogged))
        self.last_saved = self.step

    def check(self) -> None:
        """Raises TrainingError if the state is not finite, or differs between devices."""
        self.health.check(self.last_metrics, self.state.params, self.last_saved)
        self.runner.check_replicas(self.state.params)
        if self.state.average is not None:
            self.runner.check_replicas(self.state.average)

    def save_checked(self) -> None:
        """Saves the state, which `may_be_cut_short` has checked, and waits for the disk."""
        if self.step > self.last_saved:
            self._save()
        self.checkpoints.wait()
        self.describe()
