"""`fit`: trains parameters on batches, with checkpoints and metrics in a run folder."""

import contextlib
import functools
import pathlib
import signal
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxformer.config import LoopConfig
from jaxformer.errors import ConfigError
from jaxformer.stopping import StopRequest
from jaxformer.storage import as_path
from jaxformer.training.callbacks import Callback
from jaxformer.training.checkpoints import NoCheckpoints
from jaxformer.training.data import TrainingData, check_data
from jaxformer.training.evaluation import Evaluation
from jaxformer.training.fingerprint import record_program, shapes_of
from jaxformer.training.loop import TrainingLoop
from jaxformer.training.open_run import OpenRun, open_run, remove_written
from jaxformer.training.parallel import Runner, is_first_process, make_runner
from jaxformer.training.profiles import StepProfiler, check_profile
from jaxformer.training.records import (
    MetricsWriter,
    Recorder,
    TrainingProgress,
    WallClock,
)
from jaxformer.training.trial import Programs, Recipe, Trial, check_trial, make_programs


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
    restart: bool = False,
) -> FitResult:
    """Trains up to `loop.steps`; resumes from the newest checkpoint in the folder if there is one.

    A resumed run equals an uninterrupted one bit for bit (on a CPU, with the same number of
    devices), if loss, optimizer, data and seed are the same. A run whose loss (and so its model),
    optimizer, initializer or seed has changed is not resumed. Initial parameters that are arrays,
    frozen parameters and the content of the data are not compared.

    Args:
        trial: the loss, the initial parameters, and the optimizer.
        data: training batches, and optionally validation batches.
        folder: run folder, created if missing, for checkpoints/, metrics.jsonl and tensorboard/.
            None writes nothing; such a training cannot be resumed.
        loop: number of steps; intervals of metrics, validation and checkpoints; number of
            non-finite steps that may be skipped.
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
        restart: remove what an earlier call has written to the folder, and train anew.

    Returns:
        The parameters, and how training ended. On SIGINT or SIGTERM, the step in progress is
        finished and saved, and a validation stops after its current batch. A second signal goes to
        the handlers that the process had before.

    Raises:
        ConfigError: the newest checkpoint is beyond `loop.steps`, the optimizer is not an optax
            transformation, the loss does not return two numbers, only one of frozen and combine is
            given, a callback needs validation data and there is none, or profile has steps beyond
            `loop.steps` or no folder.
        DataError: batches cannot be indexed by step, or a batch is not a pytree of arrays whose
            rows divide over the devices.
        CheckpointError: a checkpoint is damaged or has different parameters, the folder was trained
            by another program or seed, or another process is training in it.
        StorageError: a file cannot be written; the message says up to which step the run is saved.
        TrainingError: the loss or a gradient is not finite in more than `loop.skip_bad_steps`
            steps, or the validation loss is not finite.

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
    check_trial(trial)
    recipe, runner = Recipe.of(trial, seed), runner or make_runner()
    path = None if folder is None else as_path(folder)
    if profile is not None:
        check_profile(profile, path, loop.steps)
    check_data(data, loop.steps)
    programs = make_programs(recipe.make, loop, runner)
    with contextlib.ExitStack() as stack:
        run = None
        if path is not None:
            prepare = functools.partial(remove_written, path) if restart else lambda: None
            run = stack.enter_context(open_run(path, loop.keep_checkpoints, prepare=prepare))
        return fit_recipe(
            recipe, programs, data, run, loop, runner=runner, callbacks=callbacks, profile=profile
        )


def fit_recipe(
    recipe: Recipe,
    programs: Programs,
    data: TrainingData,
    run: OpenRun | None,
    loop: LoopConfig,
    *,
    runner: Runner,
    callbacks: Sequence[Callback] = (),
    profile: range | None = None,
    compares_program: bool = True,
) -> FitResult:
    """`fit` in an open run folder, with the programs of a recipe, which are for this runner.

    Without compares_program, a config that was compared already says all that is trained.
    """
    clock = WallClock()
    check_data(data, loop.steps)
    for callback in callbacks:
        if data.validation is None and getattr(callback, "needs_validation", False):
            raise ConfigError(f"{callback} needs validation data, got none; add it, or remove this")
    path = None if run is None else run.folder
    checkpoints = NoCheckpoints() if run is None else run.checkpoints
    start = 0 if run is None else checkpoints.step_to_resume(loop.steps)
    shapes = recipe._replace(params=shapes_of(recipe.params), frozen=shapes_of(recipe.frozen))
    # The initial state is computed by one program: eagerly, each leaf compiles one.
    state = runner.create(programs.create, (recipe.arguments, recipe.params), recipe.frozen)
    recipe = recipe._replace(params=None, frozen=runner.place_frozen(recipe.frozen))
    numbers = runner.place_frozen(recipe.arguments)
    if start:
        state = checkpoints.restore(state)  # the initial state is the template
    with (
        MetricsWriter(path, start, writes=is_first_process()) as metrics,
        TrainingProgress(
            start, loop.steps, unit=data.unit, is_quiet=not is_first_process()
        ) as progress,
        StopRequest(is_shared=runner.num_hosts > 1) as stop,
    ):
        if start:
            progress.print(f"resuming at step {start} of {loop.steps}")
        profiler = StepProfiler(
            clock, profile if is_first_process() else None, path, start=start,
            programs=(programs.train, programs.evaluate),
        )  # fmt: skip
        recorder = Recorder(
            config=loop, trial=recipe.trial, seed=recipe.seed, data=data, runner=runner,
            folder=path, checkpoints=checkpoints, metrics=metrics, print_line=progress.print,
            last_saved=start, callbacks=callbacks,
        )  # fmt: skip
        training = TrainingLoop(
            config=loop, runs=[recorder], data=data, runner=runner, state=state, step=start,
            programs=programs, arguments=(numbers, recipe.frozen),
            progress=progress, stop=stop, clock=clock, profiler=profiler,
        )  # fmt: skip
        if compares_program:
            training.check_program = functools.partial(
                record_program, path, shapes, data, loop, resumes=start > 0,
                num_hosts=runner.host.count, print_line=progress.print,
            )  # fmt: skip
        training.train()
        params = training.state.evaluated
        if runner.has_all_params:  # inside `with`: all hosts take part, so none may stop yet
            params = runner.on_one_host(params)
    stop_signal = training.stop_signal or stop.received
    return FitResult(training.step, params, recorder.evaluation, stop_signal, metrics.records)
