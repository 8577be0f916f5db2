"""Training a task in a run folder, which is made or resumed."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError
from jaxformer.runs import folder as files
from jaxformer.runs.memory import require_training_memory
from jaxformer.runs.start import source_folder, start_params, with_start
from jaxformer.runs.task import Task
from jaxformer.runs.trained import task_class
from jaxformer.text import BucketedBatches
from jaxformer.training import (
    Checkpoints,
    FitResult,
    fit,
    make_optimizer,
    make_runner,
    make_schedule,
)
from jaxformer.training.lock import LOCK, run_lock

__all__ = ["train_run"]


def train_run(
    config: ExperimentConfig,
    *,
    task: type[Task] | None = None,
    on_start: Callable[[Task], None] | None = None,
) -> FitResult:
    """Trains in the run folder `config.out`, which it makes, or resumes, and locks meanwhile.

    A new run starts from drawn parameters, or from those of the run `config.init_from`.

    Args:
        config: the experiment, its out set.
        task: what to train; the built-in task that the config means when not given.
        on_start: called before the first step, with the task, in whose config all that the data
            decides is filled in, and whose report says what became of the data.

    Returns:
        How it ended.

    Raises:
        ConfigError: the config is impossible on this machine, with this data, or with the run that
            it starts from; the run has been trained for more steps; or the task lacks a method.
        CheckpointError: out is a folder of something else, or of a run with another config; or a
            checkpoint is missing or damaged; or another process trains in it.
        StorageError: a file cannot be written.
        DataError: the data cannot be used, or a prompt of the samples does not fit.
    """
    if config.out is None:
        raise ConfigError("out, the run folder, must be set")
    folder = pathlib.Path(config.out)
    if not files.is_run(folder) and not (folder / LOCK).exists():
        files.require_free(folder)  # before anything is written there, the lock included
    with run_lock(folder):
        files.tidy(folder)
        if not files.is_run(folder):
            files.require_free(folder)
        return _train(config, folder, task, on_start)


def _train(
    config: ExperimentConfig,
    folder: pathlib.Path,
    task: type[Task] | None,
    on_start: Callable[[Task], None] | None,
) -> FitResult:
    """Does `train_run` in a folder that is locked, and a run folder or free."""
    training = config.training
    resumes, trained = files.is_run(folder), 0
    if resumes:
        files.read_run_config(folder)  # verified before anything is made of it
        trained = _step_to_resume(folder, training.steps)
    runner = make_runner(
        training.runner,
        devices=training.devices,
        batch_size=training.batch_size,
        accumulate_steps=training.accumulate_steps,
    )
    kind = task_class(config) if task is None else task
    config = with_start(config, kind, folder if resumes else None)
    made = kind.prepare(config, folder if resumes else source_folder(config))
    require_training_memory(made, runner)
    config, data = made.config, made.training_data(runner)
    shapes = data.batches.shapes if isinstance(data.batches, BucketedBatches) else ()
    summary = dataclasses.replace(made.summary, shapes=shapes)
    if resumes:
        files.check_same_run(folder, config, summary)
    init_params: Any = made.init_params
    if config.init_from is not None and not trained:
        init_params, report = start_params(made)
        made = dataclasses.replace(made, report=(report, *made.report))
    if resumes:
        files.update_config(folder, config)
    else:
        files.start_folder(folder, config, summary, made.save)
    if on_start is not None:
        on_start(made)
    return fit(
        made.loss(training.label_smoothing),
        init_params,
        make_optimizer(config.optimizer, config.schedule),
        data,
        folder,
        training,
        runner=runner,
        validation_loss=made.loss(0.0),
        learning_rate=make_schedule(config.optimizer.learning_rate, config.schedule),
        seed=config.seed,
    )


def _step_to_resume(folder: pathlib.Path, steps: int) -> int:
    """Step that a run is resumed at, 0 where it has no checkpoint yet."""
    path = folder / files.CHECKPOINTS
    if not path.is_dir():
        return 0
    with Checkpoints(path, read_only=True) as checkpoints:
        return checkpoints.step_to_resume(steps)
