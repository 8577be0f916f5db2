"""What a model will see in training, before there is any: its data, and the batch of a step."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.runs.data_view import DataView
from jaxformer.runs.task import Task
from jaxformer.runs.text_figures import (
    LengthHistogram,
    SharedTexts,
    TextFigures,
    length_histogram,
    shared_texts,
    text_figures,
)
from jaxformer.runs.train import prepare_task, training_runner
from jaxformer.text import IGNORE
from jaxformer.training import TrainingData
from jaxformer.training.data import batch_at

__all__ = ["BatchReport", "DataReport", "inspect_data"]

# What the methods of a built-in task raise in a task of one's own that has overridden how the data
# or the batches are made, but not them.
_NOT_SAID = (AttributeError, KeyError, DataError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchReport:
    """The training batch of a step.

    Args:
        step: of the batch, from 0.
        arrays: dtype and shape of each array, by name.
        tokens: by name, (positions that are tokens, all positions); the others are padding.
        predicted: (labels that count in the loss, all labels); None where there are none.
        unit: what a label is, such as "masked token".
        documents_per_row: mean number of documents that a row keeps apart; None where it does not.
        rows: texts of the first rows, by name, such as "source" and "target"; of a mixture,
            "source" is the name of the source that the row is from.
        marks: how to read these texts.
    """

    step: int
    arrays: dict[str, str]
    tokens: dict[str, tuple[int, int]]
    predicted: tuple[int, int] | None
    unit: str
    documents_per_row: float | None
    rows: tuple[dict[str, str], ...]
    marks: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataReport:
    """What a model will see in training. A task that does not say something leaves it out.

    Args:
        kind: what the model is, in words.
        report: what became of the data, a line each.
        unit: plural name of the documents or rows.
        train: number of training documents or rows; None where it is not known.
        validation: number of validation documents or rows, likewise.
        train_tokens: tokens of the training data; of pairs, of the targets.
        validation_tokens: tokens of the validation data, likewise.
        steps: that the config trains for.
        steps_per_epoch: steps in which each training row is seen once; None where it is not known,
            and of a mixture, whose report has the epochs of each source.
        texts: words, bytes and tokens of training and validation texts.
        lengths: of training texts.
        shared: what validation and training data have in common.
        batch: the training batch of a step.
    """

    kind: str
    report: tuple[str, ...]
    unit: str
    train: int | None
    validation: int | None
    train_tokens: int
    validation_tokens: int
    steps: int
    steps_per_epoch: float | None
    texts: tuple[TextFigures, ...]
    lengths: tuple[LengthHistogram, ...]
    shared: tuple[SharedTexts, ...]
    batch: BatchReport


def inspect_data(
    config: ExperimentConfig, step: int = 0, *, rows: int = 3, task: type[Task] | None = None
) -> DataReport:
    """Prepares the data of a config as a new run does, and describes it and the batch of a step.

    No model is made, nothing is compiled, and nothing is written but the cache of the tokens. The
    batch is the one that training takes at that step on as many devices as there are here.

    Args:
        config: the experiment.
        step: step of the batch, from 0; it may be one that the config does not train for.
        rows: the most rows of the batch to decode.
        task: what would be trained; the built-in task that the config means when not given.

    Raises:
        ConfigError: the step or rows are negative; or as for `train_run`.
        CheckpointError: the run that the config starts from is missing or damaged.
        DataError: the data cannot be used, or there is no batch of that step.

    Example:
        >>> from jaxformer.config import load_config
        >>> report = inspect_data(load_config("configs/phrasebook_topics.toml"), step=5)
        >>> report.unit, report.batch.step, sorted(report.batch.rows[0])
        ('texts', 5, ['label', 'text'])
    """
    for name, value in (("step", step), ("rows", rows)):
        if value < 0:
            raise ConfigError(f"{name} must be at least 0, got {value}; try 0")
    runner = training_runner(config)
    made = prepare_task(config, task=task)
    data, training = made.training_data(runner), made.config.training
    parts = runner.num_local_shards * training.accumulate_steps
    batch = _inspect_batch(made, data, batch_at(data.batches, step, parts), step, rows)
    if names := _source_names(data, step):
        named = zip(names, batch.rows, strict=False)
        shown = tuple({"source": name, **row} for name, row in named)
        batch = dataclasses.replace(batch, rows=shown)
    view, summary = DataView(), made.summary
    with contextlib.suppress(*_NOT_SAID):
        view = made.data_view()
    return DataReport(
        kind=made.kind,
        report=made.report,
        unit=view.unit,
        train=view.train,
        validation=view.validation,
        train_tokens=summary.train_tokens,
        validation_tokens=summary.validation_tokens,
        steps=training.steps,
        steps_per_epoch=getattr(data.batches, "batches_per_epoch", None),
        texts=tuple(_texts(view)),
        lengths=tuple(length_histogram(*one) for one in view.lengths.items() if one[1].size),
        shared=tuple(shared_texts(name, *both) for name, both in view.shared.items()),
        batch=batch,
    )


def _source_names(data: TrainingData, step: int) -> list[str] | None:
    """Sources of a mixture that the rows of a batch are from; None where there are none."""
    names = getattr(data.batches, "source_names", None)
    return None if names is None else names(step)


def _texts(view: DataView) -> Iterator[TextFigures]:
    """Figures of the texts that their tokenizers can encode."""
    for column in view.columns:
        name, tokenizer = column.name, column.tokenizer
        with contextlib.suppress(*_NOT_SAID):
            yield text_figures(name, "training", column.train, tokenizer)
            yield text_figures(name, "validation", column.validation, tokenizer)


def _inspect_batch(task: Task, data: TrainingData, batch: Any, step: int, rows: int) -> BatchReport:
    real: dict[str, np.ndarray] = {}
    texts: list[dict[str, str]] = []
    with contextlib.suppress(*_NOT_SAID):
        real = task.real_tokens(batch)
        texts = task.row_texts(batch, min(rows, sys.maxsize))
    arrays = {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
        for path, leaf in jax.tree.leaves_with_path(batch)
    }
    predicted = documents = None
    if (labels := arrays.get("labels")) is not None:
        predicted = int((labels != IGNORE).sum()), labels.size
    if (segments := arrays.get("segment_ids")) is not None and segments.ndim == 2:
        documents = float(segments.max(axis=1).mean())  # they are counted from 1 in each row
    return BatchReport(
        step=step,
        arrays={name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()},
        tokens={name: (int(where.sum()), where.size) for name, where in real.items()},
        predicted=predicted,
        unit=data.unit,
        documents_per_row=documents,
        rows=tuple(texts),
        marks=task.marks,
    )
