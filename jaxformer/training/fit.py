"""`fit`: trains parameters on batches."""

import contextlib
import pathlib
import signal
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxformer.config import LoopConfig
from jaxformer.errors import ConfigError, TrainingError
from jaxformer.storage import as_path
from jaxformer.training.callbacks import Callback
from jaxformer.training.checkpoints.locked_folder import lock_folder
from jaxformer.training.data import TrainingData, check_data
from jaxformer.training.evaluation import Evaluation
from jaxformer.training.loop import TrainingLoop
from jaxformer.training.parallel import Runner, in_first_process, make_runner
from jaxformer.training.records import Recorder
from jaxformer.training.records.profiles import check_profile
from jaxformer.training.records.trackers import require_trackers
from jaxformer.training.trial import Recipe, RunSpec, Trial


class FitResult(NamedTuple):
    """Result of `fit`.

    Args:
        step: total number of optimizer steps taken.
        params: trained parameters after that step; with `average_decay`, their average. They are on
            one device, unless a mesh splits them.
        evaluation: latest validation of this call, if any.
        stop_signal: SIGINT or SIGTERM if one of them stopped the training, else None.
        records: what `metrics.jsonl` has, or would have if there were a folder.
    """

    step: int
    params: Any
    evaluation: Evaluation | None = None
    stop_signal: signal.Signals | None = None
    records: Sequence[Mapping[str, Any]] = ()


def fit(
    trial: Trial,
    data: TrainingData,
    folder: str | pathlib.Path | None,
    loop: LoopConfig,
    *,
    runner: Runner | None = None,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    profile: range | None = None,
) -> FitResult:
    """Trains up to `loop.steps`; resumes from the newest checkpoint in the folder if there is one.

    A resumed run equals an uninterrupted one bit for bit (on a CPU, with the same number of
    devices), if the trial, the data and the seed are the same, which is up to you: only shapes are
    compared.

    Args:
        trial: the loss, the initial parameters, and the optimizer.
        data: training batches, and optionally validation batches.
        folder: run folder, created if missing, for checkpoints/, metrics.jsonl, and what
            tensorboard and the tools of `loop.log_to` write.
            None writes nothing; such a training cannot be resumed.
        loop: number of steps; intervals of metrics, validation and checkpoints.
        runner: where steps run, from `make_runner`; data-parallel over all devices when not given.
        seed: seed of the parameters and of dropout.
        callbacks: called as (step, metrics) with each record of `metrics.jsonl`, in the first
            process of a job. If one returns True, training stops after this step, which is saved.
            If a callback has a method `resume`, as
            `EarlyStopping` does, it gets the earlier records, each with its "step", before the
            first step; it may return True, too.
        profile: steps to trace with `jax.profiler`, counted from 1, such as range(20, 25) for steps
            20 to 24. The first process of a job writes the trace to profile/ in the folder;
            `read_profile` reads it, and so do XProf, TensorBoard and Perfetto. Training waits for
            the devices before the first traced step and after the last. A resumed training traces
            those of the steps that are left.

    Returns:
        The parameters, and how training ended. On SIGINT or SIGTERM, the step in progress is
        finished and saved, and a validation stops after its current batch. A second signal goes to
        the handlers that the process had before.

    Raises:
        ConfigError: the newest checkpoint is beyond `loop.steps`, the loss returns something else,
            a tool of `loop.log_to` is missing or has no folder, only one of frozen and combine is
            given, a callback needs validation data and there is none, or profile has steps beyond
            `loop.steps` or no folder.
        DataError: batches cannot be indexed by step, or the rows of a batch do not divide over the
            devices.
        CheckpointError: a checkpoint is damaged or has parameters of other shapes, or another
            process is training in the folder.
        OSError: a file cannot be written.
        TrainingError: the loss, a gradient or the validation loss is not finite.

    Example:
        >>> import numpy as np, optax
        >>> def loss(params, batch, dropout_rng):
        ...     error = batch["x"] @ params - batch["y"]
        ...     return (error**2).sum(), error.size
        >>> rng = np.random.default_rng(0)
        >>> xs = rng.normal(size=(20, 8, 3)).astype(np.float32)
        >>> data = TrainingData([{"x": x, "y": x @ np.float32([1, 2, 3])} for x in xs], unit="row")
        >>> trial = Trial(loss, np.zeros(3, np.float32), optax.sgd(0.3))
        >>> result = fit(
        ...     trial, data, None, LoopConfig(steps=20, log_every=20)
        ... )  # doctest: +ELLIPSIS
        step 20/20  loss ...
        >>> result.params.round(1).tolist()
        [1.0, 2.0, 3.0]
    """
    runner, path = runner or make_runner(), None if folder is None else as_path(folder)
    if profile is not None:
        check_profile(profile, path, loop.steps)
    in_first_process("log as log_to says", lambda: require_trackers(loop.log_to, path))
    spec = RunSpec(Recipe.of(trial, seed), data, loop, tuple(callbacks))
    check_run(spec)
    with contextlib.ExitStack() as stack:
        if path is not None:
            locked = stack.enter_context(lock_folder(path, loop.keep_checkpoints))
            spec = spec._replace(locked=locked)
        return fit_run(spec, runner, profile=profile)


def fit_run(spec: RunSpec, runner: Runner, *, profile: range | None = None) -> FitResult:
    """`fit` in an open run folder, of a run that was checked."""
    training = TrainingLoop([spec], runner, profile)
    training.train()
    (run,) = training.runs
    if run.failure is not None:
        schedule = run.trial.learning_rate
        rate = "" if schedule is None else f", {float(schedule(run.step)):.4g} at this step"
        raise TrainingError(
            f"{run.failure}; the run is saved up to step {run.last_saved}; unless the batch is "
            f"bad, the likeliest cause is the learning rate{rate}: lower it, or the norm to which "
            "gradients are clipped, and choose another folder"
        ) from run.failure
    return result_of(run, training)


def result_of(run: Recorder, training: TrainingLoop) -> FitResult:
    """The result of a run of a training that has ended."""
    return FitResult(
        run.step, run.params, run.evaluation, training.stop_signal, run.metrics.records
    )


def check_run(spec: RunSpec) -> None:
    """Raises DataError for data that cannot be used, and ConfigError if validation is missing."""
    check_data(spec.data, spec.loop.steps)
    for callback in spec.callbacks:
        if spec.data.validation is None and getattr(callback, "needs_validation", False):
            raise ConfigError(f"{callback} needs validation data, got none; add it, or remove this")
