"""Training in a new or resumed run folder."""

import contextlib
import dataclasses
import logging
import os
import pathlib
import platform
import socket
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax

from jaxformer import __version__
from jaxformer.config import ExperimentConfig, changed_settings
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.modules import layer_execution
from jaxformer.programs import keep_programs
from jaxformer.runs.folder import files
from jaxformer.runs.tasks.task import Task
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.weights.preparing import prepare_task
from jaxformer.runs.weights.run_folder import load_base, write_base
from jaxformer.runs.weights.shapes import require_training_memory
from jaxformer.runs.weights.source import Start, WeightSource
from jaxformer.runs.weights.trials import adapt, run_recipe, training_runner
from jaxformer.storage import LOCK, as_path, lock_holder
from jaxformer.training import FitResult, TrainingData, make_schedule
from jaxformer.training.callbacks import Callback
from jaxformer.training.checkpoints.open_run import OpenRun, open_run
from jaxformer.training.fit import check_run, fit_run
from jaxformer.training.parallel import (
    Runner,
    gather_texts,
    in_first_process,
    is_first_process,
    require_same,
)
from jaxformer.training.records.profiles import check_profile
from jaxformer.training.trial import Recipe, RunSpec, shared_programs

_LOG = logging.getLogger(__name__)
_LAG = 30.0  # seconds until a network file system shows the files of another host


def train_run(
    config: ExperimentConfig,
    *,
    task: type[Task] | None = None,
    on_start: Callable[[Task], None] | None = None,
    base: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (),
    profile: range | None = None,
    restart: bool = False,
) -> FitResult:
    """Creates or resumes the run folder `config.out`, and trains in it while holding its lock.

    A new run starts from random parameters, or from those of `config.init_from`. On several hosts,
    all call this with the same config and data, and share the folder; the first host writes to it.
    Lines on the data and the settings are logged by the logger "jaxformer".

    Args:
        config: the experiment; its out must be set.
        task: task to train; by default the built-in task that the config describes.
        on_start: called with the task before the first step. The task's config includes everything
            that the data determines.
        base: path of the base model of a resumed LoRA run; by default, where it was when the run
            began.
        callbacks: as in `fit`.
        profile: as in `fit`.
        restart: remove the run in the folder, if there is one, and train anew.

    Returns:
        The outcome of the training.

    Raises:
        ConfigError: the config is invalid, or does not fit the machine, the data or the model of
            `init_from`; the run already has more steps; the task lacks a method; hosts differ in
            versions, config, devices or data; base is given, but this is no resumed LoRA run; or
            profile has steps beyond the last one.
        CheckpointError: out is no run folder, has another config, or is locked by another process;
            a checkpoint is missing or damaged; or the base of a LoRA run is missing or has changed.
        OSError: a file cannot be written.
        DataError: the data cannot be used, or a sample prompt is too long.
    """
    if config.out is None:
        raise ConfigError("out, the run folder, must be set")
    folder = as_path(config.out)
    if profile is not None:
        check_profile(profile, folder, config.training.steps)  # before the data is read
    keep_programs()
    require_same("versions, devices and config", _versions() | changed_settings(config))
    with take_folder(folder, config.training.keep_checkpoints, restart=restart) as opened:
        runner = training_runner(config)
        run = start_run(config, opened, runner, task=task, base=base)
        if on_start is not None:
            on_start(run.task)
        loop = run.task.config.training
        programs = shared_programs(run.recipe.make, loop, runner)
        spec = RunSpec(run.recipe, run.data, loop, tuple(callbacks), opened)
        check_run(spec)
        return fit_run(spec, runner, programs, profile=profile)


def take_folder(
    folder: pathlib.Path, keep: int, *, restart: bool = False
) -> contextlib.AbstractContextManager[OpenRun]:
    """Locks what is or becomes a run folder, with `keep` checkpoints; `restart` removes the run."""

    def check() -> None:
        if not files.is_run(folder) and not (folder / LOCK).exists():
            files.require_free(folder)  # before anything, even the lock, is written there

    def prepare() -> None:
        if not files.is_run(folder):
            files.require_free(folder)
        elif restart:
            files.remove_run(folder)

    return open_run(folder, keep, before=check, prepare=prepare)


class StartedRun(NamedTuple):
    """Task, data and recipe of a run whose folder stands."""

    task: Task
    data: TrainingData
    recipe: Recipe


def start_run(
    config: ExperimentConfig,
    opened: OpenRun,
    runner: Runner,
    *,
    task: type[Task] | None = None,
    base: str | os.PathLike[str] | None = None,
    prepared: Task | None = None,
) -> StartedRun:
    """`train_run` up to the first step, in a folder from `take_folder`; it may be `prepared`."""
    folder, trained = opened.folder, 0
    is_resumed = files.is_run(folder)
    if base is not None and not (is_resumed and config.lora is not None):
        raise ConfigError(
            f"base can be set only for a resumed LoRA run, got {base} for {folder}; omit it"
        )
    if is_resumed:
        files.read_run_config(folder)  # verified before anything depends on it
        trained = opened.checkpoints.step_to_resume(config.training.steps)
    if prepared is None:
        prepared = prepare_task(config, task=task, folder=folder if is_resumed else None)
    run_task, data = _with_batches(prepared, runner)
    if is_resumed:
        files.check_same_run(folder, run_task.config, run_task.summary, trained)
    _log_settings(run_task, data)
    start = None
    if is_resumed and config.lora is not None:
        start = load_base(run_task.model, folder, runner, base)
    elif run_task.source is not None and not trained:
        start = _started_from(run_task.source, run_task.model, runner)
    recipe = _recipe(run_task.model, start)
    values = {"data": run_task.summary.fingerprint, "the newest checkpoint": trained}
    if run_task.source is not None and not trained and runner.num_hosts > 1:
        # The digest reads all weights.
        values["init_from"] = f"{run_task.source.name}, {run_task.source.digest}"
    require_same("data", values)
    in_first_process("start the run folder", lambda: _write_folder(folder, run_task))
    _require_shared(folder)
    return StartedRun(run_task, data, recipe)


def _write_folder(folder: pathlib.Path, task: Task) -> None:
    """Makes the folder of a new run, or replaces the config of a resumed one."""

    def write(draft: pathlib.Path) -> None:
        task.save(draft)
        if task.source is not None and task.config.lora is not None:
            write_base(draft, task.source)

    if files.is_run(folder):
        files.update_config(folder, task.config)
    else:
        files.start_folder(folder, task.config, task.summary, write)


def _with_batches(task: Task, runner: Runner) -> tuple[Task, TrainingData]:
    """The task without its texts, which frees them, and its batches, if they fit in memory."""
    task = dataclasses.replace(task, split=None)
    require_training_memory(task.model, runner)
    data = task.training_data(runner)
    shapes = getattr(data.batches, "shapes", ())  # of rows in buckets
    summary = dataclasses.replace(task.summary, shapes=shapes)
    return dataclasses.replace(task, summary=summary), data


def _started_from(source: WeightSource, model: TextModel, runner: Runner) -> Start:
    """Reads the weights that a run starts from."""
    start = source.start(model, runner)
    at = "" if source.step is None else f" at step {source.step}"
    anew = "; the scores of the classes start anew" if start.new else ""
    _LOG.info(f"starting from the weights and tokenizers of {source.path}{at}{anew}")
    return start


def _recipe(model: TextModel, start: Start | None) -> Recipe:
    """Recipe of a run, which starts from these weights, or from random ones."""
    if start is None:
        return run_recipe(model, model.initializer)
    if model.config.lora is None:
        return run_recipe(model, start.params)
    return run_recipe(model, *adapt(model, start))


def _log_settings(task: Task, data: TrainingData) -> None:
    """Logs how full rows are, a decay that does not end with training, and how layers run."""
    config, epoch = task.config, getattr(data.batches, "batches_per_epoch", None)
    steps, schedule = config.training.steps, config.schedule
    if epoch and config.has_one_length and task.summary.train_tokens:
        rows = round(epoch * (config.training.batch_size or 0))
        share = min(1, task.summary.train_tokens / (rows * task.max_len))
        line = f"training sequences: {rows:,} of {task.max_len:,} tokens, {share:.0%} full"
        if share >= 0.5:
            _LOG.info(line)
        else:
            _LOG.warning(f"{line}; padding costs time: lower model.max_len")
    if schedule.decay_steps not in (None, steps):
        share = float(make_schedule(1.0, schedule)(steps))
        _LOG.warning(
            f"the decay of the learning rate ends at step {schedule.decay_steps:,}, training at "
            f"step {steps:,}, with {share:.0%} of the peak"
        )
    execution = layer_execution(config.model)
    _LOG.info(f"layers run as a {execution.name}: {execution.reason}")


def _versions() -> dict[str, object]:
    """Versions that must be equal on all hosts, besides config and data."""
    return {
        "jaxformer": __version__,
        "jax": jax.__version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "the number of devices": jax.local_device_count(),
    }


def _require_shared(folder: pathlib.Path) -> None:
    """Raises CheckpointError if a host does not see the first host's run folder."""
    holder = gather_texts(lock_holder(folder))[0]
    deadline = time.monotonic() + _LAG

    def is_seen() -> bool:
        return files.is_run(folder) and lock_holder(folder) == holder

    while not is_seen() and not is_first_process() and time.monotonic() < deadline:
        time.sleep(0.1)
    if hosts := "".join(gather_texts("" if is_seen() else f" {socket.gethostname()}")):
        raise CheckpointError(
            f"out={folder} must be on a file system that all hosts share; the first host's folder "
            f"is not seen by{hosts}"
        )
