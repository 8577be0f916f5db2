"""Inspecting the data and the batch of a step before training."""

import dataclasses

import jax
import numpy as np

from jaxformer.config import ExperimentConfig
from jaxformer.runs.data.view import DataView
from jaxformer.runs.tasks.task import Task
from jaxformer.runs.weights.preparing import prepare_task
from jaxformer.runs.weights.trials import training_runner
from jaxformer.text import IGNORE
from jaxformer.training.data import batch_at


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataReport:
    """Description of the data that a model will be trained on, and of the batch of a step.

    Args:
        task: the task, with its model and the summary of its data.
        view: numbers of documents or rows, the lengths of training texts in tokens, as the model
            reads them, and the overlap of validation and training data.
        steps_per_epoch: steps in an epoch; None if unknown, and for a mixture, which logs the
            epochs of each source.
        step: step of the batch, from 0.
        arrays: dtype and shape of each array of the batch, by name.
        predicted: (labels that count in the loss, all labels); None if there are no labels.
        rows: texts of the first rows, by name, such as "source" and "target". For a mixture,
            "source" is the name of the row's source.
    """

    task: Task
    view: DataView
    steps_per_epoch: float | None
    step: int
    arrays: dict[str, str]
    predicted: tuple[int, int] | None
    rows: tuple[dict[str, str], ...]


def inspect_data(
    config: ExperimentConfig, step: int = 0, *, rows: int = 3, task: type[Task] | None = None
) -> DataReport:
    """Prepares the data of a config as a new run does; describes it and the batch of a step.

    This computes nothing, compiles nothing, and writes only the token cache. The batch is the one
    that training on the local devices uses at that step.

    Args:
        config: the experiment.
        step: step of the batch, from 0; may be beyond the steps of the config.
        rows: largest number of rows of the batch to decode.
        task: the task to train; default: the built-in task of the config.

    Raises:
        ConfigError: as for `train_run`.
        CheckpointError: the run that the config starts from is missing or damaged.
        DataError: the data cannot be used, or the step has no batch.

    Example:
        >>> from jaxformer.config import load_config
        >>> report = inspect_data(load_config("configs/phrasebook_topics.toml"), step=5)
        >>> report.view.unit, report.step, sorted(report.rows[0])
        ('texts', 5, ['label', 'text'])
    """
    runner = training_runner(config)
    prepared = prepare_task(config, task=task)
    batches = prepared.training_data(runner).batches
    parts = runner.num_local_shards * prepared.config.training.accumulate_steps
    batch = batch_at(batches, step, parts)
    arrays = {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
        for path, leaf in jax.tree.leaves_with_path(batch)
    }
    labels, shown = arrays.get("labels"), prepared.row_texts(batch, rows)
    source_names = getattr(batches, "source_names", lambda step: None)(step)
    if source_names is not None:  # of a mixture
        named = zip(source_names, shown, strict=False)
        shown = [{"source": name, **row} for name, row in named]
    return DataReport(
        task=prepared,
        view=prepared.data_view(),
        steps_per_epoch=getattr(batches, "batches_per_epoch", None),
        step=step,
        arrays={name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()},
        predicted=None if labels is None else (int((labels != IGNORE).sum()), labels.size),
        rows=tuple(shown),
    )
