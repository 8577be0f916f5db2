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
from jaxformer.runs.weights.trials import run_recipe, training_runner
from jaxformer.storage import LOCK, as_path, lock_holder
from jaxformer.training import FitResult, make_schedule
from jaxformer.training.callbacks import Callback
from jaxformer.training.checkpoints.locked_folder import LockedFolder, lock_folder
from jaxformer.training.fit import check_run, fit_run
from jaxformer.training.parallel import (
    Runner,
    gather_texts,
    in_first_process,
    is_first_process,
    require_same,
)
from jaxformer.training.records.profiles import check_profile
from jaxformer.training.records.trackers import require_trackers
from jaxformer.training.trial import RunSpec

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
    log_to = config.training.log_to
    in_first_process("log as log_to says", lambda: require_trackers(log_to, folder))
    with take_folder(folder, config.training.keep_checkpoints, restart=restart) as locked:
        runner = training_runner(config)
        run_task, spec = start_run(config, locked, runner, task=task, base=base)
        if on_start is not None:
            on_start(run_task)
        spec = spec._replace(callbacks=tuple(callbacks))
        check_run(spec)
        return fit_run(spec, runner, profile=profile)


def take_folder(
    folder: pathlib.Path, keep: int, *, restart: bool = False
) -> contextlib.AbstractContextManager[LockedFolder]:
    """Locks what is or becomes a run folder, with `keep` checkpoints; `restart` removes the run."""

    def check() -> None:
        if not files.is_run(folder) and not (folder / LOCK).exists():
            files.require_free(folder)  # before anything, even the lock, is written there

    def prepare() -> None:
        if not files.is_run(folder):
            files.require_free(folder)
        elif restart:
            files.remove_run(folder)

    return lock_folder(folder, keep, before=check, prepare=prepare)


def start_run(
    config: ExperimentConfig,
    locked: LockedFolder,
    runner: Runner,
    *,
    task: type[Task] | None = None,
    base: str | os.PathLike[str] | None = None,
    prepared: Task | None = None,
) -> tuple[Task, RunSpec]:
    """`train_run` up to the first step, in a folder from `take_folder`; it may be `prepared`."""
    folder, trained = locked.folder, 0
    # Verified before anything depends on it.
    stored = files.read_run_config(folder) if files.is_run(folder) else None
    if base is not None and (stored is None or config.lora is None):
        raise ConfigError(
            f"base can be set only for a resumed LoRA run, got {base} for {folder}; omit it"
        )
    if stored is not None:
        trained = locked.checkpoints.step_to_resume(config.training.steps)
    if prepared is None:
        prepared = prepare_task(config, task=task, folder=None if stored is None else folder)
    require_training_memory(prepared.model, runner)
    data = prepared.training_data(runner)
    shapes = getattr(data.batches, "shapes", ())  # of rows in buckets
    summary = dataclasses.replace(prepared.summary, shapes=shapes)
    run_task, source = dataclasses.replace(prepared, summary=summary), prepared.source
    if stored is not None:
        files.check_same_run(folder, stored, run_task.config, summary, trained)
    start: Start | None = None
    if stored is not None and config.lora is not None:
        start = load_base(run_task.model, folder, runner, base)
    elif source is not None and not trained:
        start = _started_from(source, run_task.model, runner)
    _log_settings(run_task)
    recipe = run_recipe(run_task.model, start)
    values = {"data": summary.fingerprint, "the newest checkpoint": trained}
    if source is not None and not trained and runner.num_hosts > 1:
        values["init_from"] = f"{source.name}, {source.digest}"  # which reads all weights
    require_same("data", values)
    in_first_process("start the run folder", lambda: _write_folder(folder, run_task))
    _require_shared(folder)
    settings = dataclasses.asdict(run_task.config)
    training = run_task.config.training
    return run_task, RunSpec(recipe, data, training, locked=locked, settings=settings)


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


def _started_from(source: WeightSource, model: TextModel, runner: Runner) -> Start:
    """Reads the weights that a run starts from."""
    start = source.start(model, runner)
    at = "" if source.step is None else f" at step {source.step}"
    anew = "; the scores of the classes start anew" if start.new else ""
    _LOG.info(f"starting from the weights and tokenizers of {source.path}{at}{anew}")
    return start


def _log_settings(task: Task) -> None:
    """Logs a decay that does not end with training, and how layers run."""
    config = task.config
    steps, schedule = config.training.steps, config.schedule
    if schedule.decay_steps not in (None, steps):
        share = float(make_schedule(1.0, schedule)(steps))
        _LOG.warning(
            f"the decay of the learning rate ends at step {schedule.decay_steps:,}, training at "
            f"step {steps:,}, with {share:.0%} of the peak"
        )
    _LOG.info(f"layers run as a {layer_execution(config.model)}")


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
