"""Training a task in a run folder, which is made or resumed."""

import dataclasses
import pathlib
from collections.abc import Callable

from jaxformer.config import ExperimentConfig
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.runs import folder as files
from jaxformer.runs.run import task_class
from jaxformer.runs.task import Task
from jaxformer.text import BucketedBatches
from jaxformer.training import (
    Checkpoints,
    FitResult,
    fit,
    make_optimizer,
    make_runner,
    make_schedule,
)

__all__ = ["train_run"]


def train_run(
    config: ExperimentConfig,
    *,
    task: type[Task] | None = None,
    on_start: Callable[[Task], None] | None = None,
) -> FitResult:
    """Trains in the run folder `config.out`, which it makes, or resumes.

    Args:
        config: the experiment, its out set.
        task: what to train; the built-in task that the config means when not given.
        on_start: called before the first step, with the task, in whose config all that the data
            decides is filled in, and whose report says what became of the data.

    Returns:
        How it ended.

    Raises:
        ConfigError: the config is impossible on this machine or with this data, or the task lacks
            a method.
        CheckpointError: out is a folder of something else, or of a run with another config.
        DataError: the data cannot be used, or a prompt of the samples does not fit.
    """
    if config.out is None:
        raise ConfigError("out, the run folder, must be set")
    folder, training = pathlib.Path(config.out), config.training
    resumes = files.is_run(folder)
    if not resumes:
        files.require_free(folder)
    runner = make_runner(
        training.runner,
        devices=training.devices,
        batch_size=training.batch_size,
        accumulate_steps=training.accumulate_steps,
    )
    made = (task_class(config) if task is None else task).prepare(
        config, folder if resumes else None
    )
    config, data = made.config, made.training_data(runner)
    shapes = data.batches.shapes if isinstance(data.batches, BucketedBatches) else ()
    summary = dataclasses.replace(made.summary, shapes=shapes)
    if resumes:
        files.check_same_run(folder, config, summary)
        _check_steps(folder, training.steps)
        files.update_config(folder, config)
    else:
        files.start_folder(folder, config, summary, made.save)
    if on_start is not None:
        on_start(made)
    return fit(
        made.loss(training.label_smoothing),
        made.init_params,
        make_optimizer(config.optimizer, config.schedule),
        data,
        folder,
        training,
        runner=runner,
        validation_loss=made.loss(0.0),
        learning_rate=make_schedule(config.optimizer.learning_rate, config.schedule),
        seed=config.seed,
    )


def _check_steps(folder: pathlib.Path, steps: int) -> None:
    with Checkpoints(folder / files.CHECKPOINTS, read_only=True) as checkpoints:
        trained = checkpoints.latest_step or 0
    if trained > steps:
        raise CheckpointError(
            f"{folder} has been trained to step {trained} already, got training.steps={steps}; "
            f"set it to {trained} or more, or choose another out"
        )
