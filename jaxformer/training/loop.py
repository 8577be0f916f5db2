"""The training loop: steps, metrics, evaluations, checkpoints, and stopping when asked."""

import math
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError, TrainingError
from jaxformer.training.checkpoints import Checkpoints
from jaxformer.training.losses import LossFunction
from jaxformer.training.metrics import MetricsWriter
from jaxformer.training.optimizers import make_optimizer, make_schedule
from jaxformer.training.parallel import Runner
from jaxformer.training.progress import TrainingProgress
from jaxformer.training.state import TrainState
from jaxformer.training.step import make_eval_step, make_train_step

__all__ = ["Evaluation", "FitResult", "TrainingData", "evaluate", "fit"]

_DIVERGED = (
    "{} is not finite at step {}; the run is saved up to step {}; lower optimizer.learning_rate or "
    "optimizer.clip_norm, and choose another out"
)

HostBatch = dict[str, np.ndarray]


class BatchSource(Protocol):
    """Batches by step."""

    def __getitem__(self, step: int) -> HostBatch: ...


class TrainingData(NamedTuple):
    """What a run trains on, and what it is measured by.

    Args:
        batches: this host's rows of the batch of any step.
        held_out: makes an iterator over this host's rows of the held-out batches.
        held_out_bytes: UTF-8 bytes of the text that the held-out batches predict; None where
            that is no measure.
        unit: what is predicted, such as a "token", a "masked token" or a "text".
        scores: (params on one device) to figures by name, such as BLEU, taken at every
            evaluation; None for none.
    """

    batches: BatchSource
    held_out: Callable[[], Iterator[HostBatch]]
    held_out_bytes: int | None
    unit: str = "token"
    scores: Callable[[Any], dict[str, float]] | None = None


class Evaluation(NamedTuple):
    """Held-out loss, and figures beside it.

    Args:
        loss: nats per token, or per text.
        predicted: how many tokens or texts.
        bits_per_byte: bits per byte of text, comparable across tokenizers that lose nothing of it:
            all but the word tokenizer; None where not all of the text is predicted.
        unit: what the loss is the mean over, such as "token", "masked token" or "text".
        scores: other figures by name.
        details: lines that say how they were computed.
    """

    loss: float
    predicted: int
    bits_per_byte: float | None = None
    unit: str = "token"
    scores: Mapping[str, float] = MappingProxyType({})
    details: tuple[str, ...] = ()

    @property
    def perplexity(self) -> float:
        """The exponential of the loss; infinite where a float cannot hold it."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf

    def __str__(self) -> str:
        parts = [f"{self.loss:.4f} nats per {self.unit}"]
        if self.bits_per_byte is not None:
            parts.append(f"{self.bits_per_byte:.4f} bits per byte")
        if self.unit.endswith("token"):
            parts.append(f"perplexity {self.perplexity:.2f}")
        parts += [f"{name} {value:.4g}" for name, value in self.scores.items()]
        return ", ".join(parts)


class FitResult(NamedTuple):
    """How a call of `fit` ended.

    Args:
        step: optimizer steps taken in all.
        stop_signal: SIGINT or SIGTERM if that is what ended it, else None.
    """

    step: int
    stop_signal: signal.Signals | None


def evaluate(
    eval_step: Callable[..., Any],
    params: Any,
    batches: Iterator[HostBatch],
    num_bytes: int | None = None,
    unit: str = "token",
) -> Evaluation:
    """Measures the loss over all batches.

    Args:
        eval_step: (params, batch) to (loss_sum, weight_sum).
        params: the model's parameters.
        batches: of the held-out text.
        num_bytes: UTF-8 bytes of the text that the batches predict, for bits per byte.
        unit: what is predicted, such as a "token", a "masked token" or a "text".

    Returns:
        The mean loss, exact however the batches are cut.
    """
    sums = [eval_step(params, batch) for batch in batches]
    losses, weights = np.asarray(jax.device_get(sums), np.float64).T
    return Evaluation(
        loss=losses.sum() / weights.sum(),
        predicted=int(weights.sum()),
        bits_per_byte=None if num_bytes is None else losses.sum() / math.log(2) / num_bytes,
        unit=unit,
    )


def fit(
    config: ExperimentConfig,
    data: TrainingData,
    loss_function: LossFunction,
    held_out_loss: LossFunction,
    init_params: Callable[[jax.Array], Any],
    runner: Runner,
    folder: pathlib.Path,
) -> FitResult:
    """Trains to `config.training.steps`, from the newest checkpoint in the folder if there is one.

    Args:
        config: the experiment.
        data: batches and held-out batches.
        loss_function: (params, batch, dropout_rng) to (loss_sum, weight_sum).
        held_out_loss: likewise, of the held-out batches.
        init_params: makes the parameters from a PRNG key.
        runner: where steps run.
        folder: the run folder; gets checkpoints/, metrics.jsonl and tensorboard/.

    Returns:
        How it ended. On SIGINT or SIGTERM the step in progress is finished and saved first.

    Raises:
        ConfigError: the newest checkpoint is beyond `config.training.steps`.
        CheckpointError: a checkpoint is damaged.
        TrainingError: the loss or a gradient stopped being finite.
    """
    training = config.training
    optimizer = make_optimizer(config.optimizer, config.schedule)
    schedule = make_schedule(config.optimizer.learning_rate, config.schedule)
    train_step = runner.compile_train(
        make_train_step(
            loss_function,
            optimizer,
            seed=config.seed,
            accumulate_steps=training.accumulate_steps,
            axis_name=runner.axis_name,
        )
    )
    eval_step = runner.compile_eval(make_eval_step(held_out_loss, axis_name=runner.axis_name))
    create = jax.jit(lambda rng: TrainState.create(init_params(rng), optimizer))
    state = runner.place(create(jax.random.key(config.seed)))

    with Checkpoints(folder / "checkpoints", keep=training.keep_checkpoints) as checkpoints:
        start = checkpoints.latest_step or 0
        if start > training.steps:
            raise ConfigError(
                f"{folder} has been trained to step {start} already, got training.steps="
                f"{training.steps}; set it to {start} or more, or choose another out"
            )
        if start:
            state = checkpoints.restore(state)
        with (
            MetricsWriter(folder, start) as metrics_writer,
            TrainingProgress(start, training.steps, unit=data.unit) as progress,
            _StopSignals() as stop,
        ):
            if start:
                progress.print(f"resuming at step {start} of {training.steps}")
            clock = time.monotonic()
            evaluated: tuple[int, float] | None = None
            step, last_saved, last = start, start, start == training.steps
            recent: list[dict[str, jax.Array]] = []
            while not last:
                state, metrics = train_step(state, data.batches[step])
                recent.append(metrics)
                step += 1
                last = step == training.steps or stop.received is not None
                if step % training.log_every == 0 or last:
                    values = _read(recent, last_saved)
                    now = time.monotonic()
                    per_second = values["weight"] / (now - clock)
                    clock, recent = now, []
                    metrics_writer.write(
                        step,
                        loss=values["loss"],
                        grad_norm=values["grad_norm"],
                        learning_rate=float(schedule(step - 1)),
                        **{f"{data.unit.replace(' ', '_')}s_per_second": per_second},
                    )
                    progress.update(step, loss=values["loss"], per_second=per_second)
                if step % training.eval_every == 0 or step == training.steps:
                    result = evaluate(
                        eval_step, state.params, data.held_out(), data.held_out_bytes, data.unit
                    )
                    if not math.isfinite(result.loss):
                        raise TrainingError(_DIVERGED.format("held-out loss", step, last_saved))
                    if data.scores is not None:
                        scores = data.scores(runner.one_copy(state.params))
                        result = result._replace(scores=scores)
                    evaluated = step, result.loss
                    metrics_writer.write(step, **_figures(result))
                    progress.print(f"step {step}: held-out loss {result}")
                    clock = time.monotonic()  # so that the evaluation does not count
                if step % training.checkpoint_every == 0 or last:
                    _read([metrics], last_saved)
                    runner.check_replicas(state.params)
                    loss = evaluated[1] if evaluated and evaluated[0] == step else None
                    checkpoints.save(state, held_out_loss=loss)
                    last_saved = step
            return FitResult(step, stop.received)


def _figures(result: Evaluation) -> dict[str, float]:
    """What is written down of an evaluation."""
    figures = {"held_out_loss": result.loss, **result.scores}
    if result.bits_per_byte is not None:
        figures["bits_per_byte"] = result.bits_per_byte
    return figures


def _read(recent: list[dict[str, jax.Array]], last_saved: int) -> dict[str, float]:
    """Brings the metrics of some steps to the host, and raises if a step was not finite.

    Returns:
        The mean loss over all their tokens, how many those were, and the last gradient norm.
    """
    steps = jax.device_get(recent)
    if steps[-1]["bad_step"] >= 0:
        bad = int(steps[-1]["bad_step"]) + 1
        raise TrainingError(_DIVERGED.format("loss or gradient", bad, last_saved))
    losses, weights = (
        np.array([step[name] for step in steps], np.float64) for name in ("loss", "weight")
    )
    return {
        "loss": float((losses * weights).sum() / weights.sum()),
        "weight": float(weights.sum()),
        "grad_norm": float(steps[-1]["grad_norm"]),
    }


class _StopSignals:
    """Notes the first SIGINT or SIGTERM, so that the loop can save; the second one acts at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "_StopSignals":
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._previous[number] = signal.signal(number, self._note)
            except ValueError:  # not in the main thread, where Python allows no handlers
                break
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _note(self, number: int, _: FrameType | None) -> None:
        self.received = signal.Signals(number)
        self._restore()
