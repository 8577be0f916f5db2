"""The training loop: steps, metrics, validation, checkpoints, resume, and stop signals."""

import contextvars
import dataclasses
import functools
import math
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import jax
import optax

from jaxformer import stopping
from jaxformer.config import LoopConfig
from jaxformer.errors import StorageError
from jaxformer.training.checkpoints import Checkpoints
from jaxformer.training.data import TrainingData, batch_at, check_data, check_rows
from jaxformer.training.evaluation import Evaluation, evaluate
from jaxformer.training.health import Health, diverged
from jaxformer.training.lock import run_lock
from jaxformer.training.losses import LossFunction
from jaxformer.training.metrics import MetricsWriter, read_metrics
from jaxformer.training.parallel import Program, Runner, make_runner
from jaxformer.training.progress import TrainingProgress
from jaxformer.training.state import TrainState, check_optimizer
from jaxformer.training.step import make_eval_step, make_train_step

__all__ = ["FitResult", "fit"]

T = TypeVar("T")


class FitResult(NamedTuple):
    """Result of `fit`.

    Args:
        step: number of optimizer steps taken in all.
        params: parameters after that step, on one device.
        evaluation: latest validation of this call; None where there was none.
        stop_signal: SIGINT or SIGTERM if that stopped the training, else None.
    """

    step: int
    params: Any
    evaluation: Evaluation | None = None
    stop_signal: signal.Signals | None = None


def fit(
    loss: LossFunction,
    init_params: Any,
    optimizer: optax.GradientTransformation,
    data: TrainingData,
    folder: str | pathlib.Path,
    loop: LoopConfig,
    *,
    runner: Runner | None = None,
    validation_loss: LossFunction | None = None,
    learning_rate: optax.Schedule | None = None,
    seed: int = 0,
) -> FitResult:
    """Trains up to `loop.steps`; resumes from the newest checkpoint in the folder if there is one.

    A resumed run is bit for bit equal to an uninterrupted one (on a CPU, with the same number of
    devices), as long as loss, optimizer, data and seed are the same.

    Args:
        loss: function of (params, batch, dropout_rng) to (loss_sum, weight_sum), both summed over
            the rows of the batch; the mean loss is their quotient. dropout_rng is None in
            validation.
        init_params: initial parameters, a pytree of arrays; or a function of a PRNG key to them.
        optimizer: any optax transformation.
        data: training batches, and validation batches if there are any.
        folder: run folder, created if missing, for checkpoints/, metrics.jsonl, tensorboard/, and
            spikes/ with the batches of steps whose loss was far above that of those before.
        loop: number of steps, intervals of metrics, validation and checkpoints, and how many steps
            that are not finite may be skipped.
        runner: where steps run; data-parallel over all devices when not given.
        validation_loss: loss of the validation batches; `loss` when not given.
        learning_rate: the optimizer's schedule, to record the learning rate with the metrics.
        seed: seed of the parameters and of dropout.

    Returns:
        The parameters, and how training ended. On SIGINT or SIGTERM the step in progress is
        finished and saved first; compiling and validation are cut short, as soon as Python gets
        to it, and what was computed before is saved.

    Raises:
        ConfigError: the newest checkpoint is beyond `loop.steps`, the optimizer is not an optax
            transformation, or the loss does not return two numbers.
        DataError: batches cannot be indexed by step, or one is no pytree of arrays whose rows
            divide over the devices.
        CheckpointError: a checkpoint is damaged, or has other parameters; or another process
            trains in the folder.
        StorageError: a file cannot be written; the message says up to which step the run is saved.
        TrainingError: the loss or a gradient is not finite, in more steps than
            `loop.skip_bad_steps`; or the validation loss is not.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> def loss(params, batch, dropout_rng):
        ...     error = batch["x"] @ params - batch["y"]
        ...     return (error**2).sum(), error.size
        >>> rng = np.random.default_rng(0)
        >>> xs = rng.normal(size=(20, 8, 3)).astype(np.float32)
        >>> data = TrainingData([{"x": x, "y": x @ np.float32([1, 2, 3])} for x in xs], unit="row")
        >>> result = fit(
        ...     loss, np.zeros(3, np.float32), optax.sgd(0.3), data, tempfile.mkdtemp(),
        ...     LoopConfig(steps=20, log_every=20),
        ... )  # doctest: +ELLIPSIS
        step 20/20  loss ...
        >>> result.params.round(1).tolist()
        [1.0, 2.0, 3.0]
    """
    check_optimizer(optimizer)
    check_data(data, loop.steps)
    if runner is None:
        runner = make_runner(
            "pmap", devices=None, batch_size=None, accumulate_steps=loop.accumulate_steps
        )
    train_step = make_train_step(
        loss, optimizer, seed=seed, accumulate_steps=loop.accumulate_steps,
        skip_bad_steps=loop.skip_bad_steps, axis_name=runner.axis_name,
    )  # fmt: skip
    eval_step = make_eval_step(validation_loss or loss, axis_name=runner.axis_name)
    folder = pathlib.Path(folder)
    with (
        run_lock(folder),
        Checkpoints(folder / "checkpoints", keep=loop.keep_checkpoints) as checkpoints,
    ):
        start = checkpoints.step_to_resume(loop.steps)
        state = runner.place(_initial_state(init_params, optimizer, seed))
        if start:
            state = checkpoints.restore(state)  # the initial state says shapes and placement
        with (
            MetricsWriter(folder, start) as metrics,
            TrainingProgress(start, loop.steps, unit=data.unit) as progress,
            stopping.finishing() as signals,
        ):
            if start:
                progress.print(f"resuming at step {start} of {loop.steps}")
            run = _Loop(
                config=loop, data=data, runner=runner, learning_rate=learning_rate, state=state,
                train_step=runner.compile_train(train_step),
                eval_step=runner.compile_eval(eval_step),
                folder=folder, checkpoints=checkpoints, metrics=metrics, progress=progress,
                signals=signals, step=start, last_saved=start,
                lacks_evaluation=_lacks_evaluation(folder, start, loop),
                health=Health(
                    loss=loss, seed=seed, data=data, runner=runner, config=loop, folder=folder,
                    print_line=progress.print,
                ),
            )  # fmt: skip
            run.train()
    return FitResult(run.step, runner.one_copy(run.state.params), run.evaluation, signals.received)


def _initial_state(
    init_params: Any, optimizer: optax.GradientTransformation, seed: int
) -> TrainState:
    """State before the first step; compiled as a whole, since eagerly each leaf is a program."""

    def create(start: Any) -> TrainState:
        params = init_params(start) if callable(init_params) else start
        return TrainState.create(params, optimizer)

    return jax.jit(create)(jax.random.key(seed) if callable(init_params) else init_params)


def _lacks_evaluation(folder: pathlib.Path, start: int, loop: LoopConfig) -> bool:
    """Tells whether a signal has cut off the validation of the step that a run resumes from."""
    if start == 0 or (start % loop.eval_every and start != loop.steps):
        return False
    records = (record for record in read_metrics(folder) if record["step"] == start)
    return not any("validation_loss" in record for record in records)


@dataclasses.dataclass(kw_only=True)
class _Loop:
    """A training run in progress: its state, and what is done at each interval."""

    config: LoopConfig
    data: TrainingData
    runner: Runner
    learning_rate: optax.Schedule | None
    train_step: Program
    eval_step: Program
    folder: pathlib.Path
    checkpoints: Checkpoints
    metrics: MetricsWriter
    progress: TrainingProgress
    health: Health
    signals: stopping.StopSignals
    state: TrainState
    step: int
    last_saved: int
    lacks_evaluation: bool
    evaluation: Evaluation | None = None
    last_metrics: dict[str, jax.Array] = dataclasses.field(default_factory=dict)
    unlogged: list[dict[str, jax.Array]] = dataclasses.field(default_factory=list)
    """Metrics of the steps since the last log, still on the devices."""
    unlogged_since: float = 0.0
    """Time at which the first of these steps began, in seconds."""

    def train(self) -> None:
        """Takes the remaining steps, or stops after the step in which a signal arrives.

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
        """Takes the remaining steps; `Stopped` where a signal cuts a compilation or the like."""
        config = self.config
        parts = self.runner.num_local_devices * config.accumulate_steps
        self.unlogged_since = time.monotonic()
        if self.lacks_evaluation:
            # The checkpoint was saved without the loss, by which the best one is chosen.
            self.checkpoints.save(self.state, validation_loss=self.evaluate())
        stopped = self.signals.received is not None
        while self.step < config.steps and not stopped:
            self.checkpoints.raise_if_failed()
            batch = batch_at(self.data.batches, self.step, parts)
            if not self.train_step.is_compiled(batch):
                self.may_be_cut_short(self.train_step.compile, self.state, batch)
            self.state, metrics = self.train_step(self.state, batch)
            # Not read here: the host would wait for the device, and queue no further step.
            self.unlogged.append(metrics)
            self.last_metrics = metrics
            self.step += 1
            stopped = self.signals.received is not None
            last = self.step == config.steps or stopped
            if self.step % config.log_every == 0 or last:
                self.log()
            validation_loss = None
            # Not after a signal, which may leave little time: it is made up for on resuming.
            if not stopped and (self.step % config.eval_every == 0 or self.step == config.steps):
                validation_loss = self.evaluate()
            if self.step % config.checkpoint_every == 0 or last:
                self.save(validation_loss)

    def may_be_cut_short(self, function: Callable[..., T], *args: Any) -> T:
        """Calls a function that leaves the state as it is, and that a signal may cut short.

        What it would lose is checked before, so that it can be saved while the devices are still
        busy with it: two programs at a time could wait for each other.
        """
        if self.step > self.last_saved:
            self.check()
        save = functools.partial(contextvars.copy_context().run, self.save_checked)
        return self.signals.cut_short(
            function, *args, save=save if self.runner.host.count == 1 else None
        )

    def describe(self) -> None:
        """Says what is saved, for the line of a process that a signal stops."""
        step = self.checkpoints.latest_step
        self.signals.note = (
            f"at step {step}, saved in {self.folder}; the same command goes on from there"
            if step
            else "before it took a step; the same command goes on"
        )

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
            # The optimizer's own count of steps, which skipped ones are not among.
            taken = self.step - recent.skipped_steps
            values["learning_rate"] = float(self.learning_rate(max(taken - 1, 0)))
        if self.config.skip_bad_steps:
            values["skipped_steps"] = recent.skipped_steps
        values[f"{self.data.unit.replace(' ', '_')}s_per_second"] = per_second
        self.metrics.write(self.step, **values)
        loss = math.nan if recent.loss is None else recent.loss
        self.progress.update(self.step, loss=loss, per_second=per_second)

    def evaluate(self) -> float | None:
        """Computes and records the validation loss and the scores; returns the loss."""
        data = self.data
        if data.validation is None:
            return None
        result = self.may_be_cut_short(
            evaluate, self.eval_step, self.state.params, self._validation_batches(),
            data.validation_bytes, data.unit,
        )  # fmt: skip
        if result.bad_batch is not None:
            where = f"the first validation batch with such a loss is {result.bad_batch}, from 0"
            raise diverged("validation loss", self.step, self.last_saved, where)
        if data.scores is not None:
            params = self.runner.one_copy(self.state.params)
            result = result._replace(scores=self.may_be_cut_short(data.scores, params))
        self.metrics.write(self.step, **result.figures)
        self.progress.print(f"step {self.step}: validation loss {result}")
        self.evaluation = result
        self.unlogged_since = time.monotonic()  # so that this time does not count as training
        return result.loss

    def _validation_batches(self) -> Iterator[Any]:
        assert self.data.validation is not None
        for index, batch in enumerate(self.data.validation()):
            check_rows(f"validation batch {index}", batch, self.runner.num_local_devices)
            yield batch

    def save(self, validation_loss: float | None) -> None:
        """Saves the state, if it is finite, and the same on every device."""
        self.check()
        self.checkpoints.save(self.state, validation_loss=validation_loss)
        self.last_saved = self.step

    def check(self) -> None:
        """Raises TrainingError where the state is not finite, or not the same on every device."""
        self.health.check(self.last_metrics, self.state.params, self.last_saved)
        self.runner.check_replicas(self.state.params)

    def save_checked(self) -> None:
        """Saves the state that `may_be_cut_short` has checked, and waits until that is done."""
        if self.step > self.last_saved:
            self.checkpoints.save(self.state)
            self.last_saved = self.step
        self.checkpoints.wait()
        self.describe()
        if self.unlogged:
            self.log()
