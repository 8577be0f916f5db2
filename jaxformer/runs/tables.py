"""Tasks whose data is rows of text: pairs, labelled texts, or columns of one's own."""

import abc
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.runs.data_summary import DataSummary
from jaxformer.runs.data_view import DataView, TextColumn
from jaxformer.runs.folder import VALIDATION
from jaxformer.runs.json_files import read_json, write_json
from jaxformer.runs.prepare import evenly_chosen, fingerprint
from jaxformer.runs.task import Task
from jaxformer.runs.task_values import Split
from jaxformer.training import TrainingData
from jaxformer.training.data import BatchSource
from jaxformer.training.parallel import Runner

__all__ = ["EncodedRows", "Example", "TableTask"]

_PROMPTS = 3
Example = dict[str, np.ndarray]


class EncodedRows(NamedTuple):
    """Rows of text as arrays.

    Args:
        examples: for each row, arrays with one axis or none, "tokens" and "labels" among them.
        rows: what they are made of.
        counts: of the rows that were read, and dropped, up to here.
    """

    examples: list[Example]
    rows: text.Table
    counts: text.RowCounts


class TableTask(Task):
    """A task on rows of text, in batches of about one length.

    `read` returns a table for training and one for validation. Padding has the label -1, which a
    loss must not count.

    Attributes:
        table: the kind of table, a dataclass with a column for each field.
    """

    table: ClassVar[type[Any]]

    @abc.abstractmethod
    def encode_rows(self, rows: Any, counts: text.RowCounts) -> tuple[Any, Any, text.RowCounts]:
        """Encodes a table.

        Args:
            rows: the table.
            counts: of the rows so far.

        Returns:
            The arguments of `EncodedRows`: examples, the rows that they are made of, and the
            counts, with those dropped that are too long.
        """

    @classmethod
    def split_rows(cls, config: ExperimentConfig) -> Split:
        """Reads the files that the config names, and takes a part of the rows for validation."""
        data = config.data
        train, counts = cls.table.read(data.paths)
        if data.validation_paths:
            validation, validation_counts = cls.table.read(data.validation_paths)
            return Split(train, validation, counts, validation_counts)
        return Split(*train.split(data.validation_fraction, counts))

    @classmethod
    def training_texts(cls, split: Split) -> tuple[Sequence[str], Sequence[str]]:
        """The first column."""
        return _columns(split.train)[0], _columns(split.validation)[0]

    def with_data(self, data: Split) -> Self:
        """Encodes the rows, and counts what is dropped."""
        train, validation = (
            self._encoded(rows, counts)
            for rows, counts in (
                (data.train, data.train_counts),
                (data.validation, data.validation_counts),
            )
        )
        unit, first, shown = train.rows.unit, train.rows.inputs[0], _columns(validation.rows)[0]
        report = [
            f"training on {len(train.rows):,} {unit} ({train.counts})",
            f"validating on {len(validation.rows):,} {unit} ({validation.counts})",
        ]
        if shared := text.count_shared(_columns(train.rows)[0], shown):
            report.append(f"{shared:,} validation {first} are also in the training {unit}")
        summary = DataSummary(
            fingerprint=fingerprint(*_columns(train.rows), *_columns(validation.rows)),
            documents=len(train.rows),
            train_tokens=sum(example["tokens"].size for example in train.examples),
            validation_tokens=sum(example["tokens"].size for example in validation.examples),
        )
        return dataclasses.replace(
            self, config=self.with_prompts(evenly_chosen(shown, _PROMPTS)), train=train,
            validation=validation, summary=summary, report=tuple(report),
        )  # fmt: skip

    def _encoded(self, rows: text.Table, counts: text.RowCounts | None = None) -> EncodedRows:
        counts = text.RowCounts(rows.unit, len(rows)) if counts is None else counts
        return EncodedRows(*self.encode_rows(rows, counts))

    def training_batches(self, runner: Runner) -> BatchSource:
        """Makes batches of rows of about one length."""
        training = self.config.training
        assert training.batch_tokens is not None  # the config requires it of rows
        return text.BucketedBatches(
            self.train.examples,
            batch_tokens=training.batch_tokens,
            seed=self.config.seed,
            multiple_of=runner.num_shards * training.accumulate_steps,
            num_buckets=self.config.data.num_buckets,
            host=runner.host,
        )

    def evaluation_data(self, validation: EncodedRows, runner: Runner) -> TrainingData:
        """Makes batches of all rows, and the scores."""
        return TrainingData(
            batches=(), unit=self.unit, validation=self._buckets(validation.examples, runner),
            validation_bytes=self.num_bytes(validation.rows), scores=self.scores(validation),
        )  # fmt: skip

    def _buckets(self, examples: list[Example], runner: Runner) -> Callable[[], Iterator[Example]]:
        """Makes what iterates over examples once.

        A batch has the tokens of a micro-batch, which are known to fit in memory, or one example
        for each device, where that is more.
        """
        training = self.config.training
        assert training.batch_tokens is not None
        longest = max(array.size for example in examples for array in example.values())
        batches = functools.partial(
            text.bucketed_evaluation_batches,
            examples,
            batch_tokens=max(
                training.batch_tokens // training.accumulate_steps, longest * runner.num_shards
            ),
            num_buckets=self.config.data.num_buckets,
            multiple_of=runner.num_shards,
            host=runner.host,
        )
        batches()  # raises now what would be raised at the first evaluation
        return batches

    def data_view(self) -> DataView:
        """Describes the first column, which the tokenizer encodes, and the lengths of the rows."""
        train, validation = self.train.rows, self.validation.rows
        names = train.inputs
        shared = {name: (getattr(train, name), getattr(validation, name)) for name in names}
        if len(names) > 1:
            shared[train.unit] = (_lines(train), _lines(validation))
        texts, validation_texts = _columns(train)[0], _columns(validation)[0]
        return DataView(
            unit=train.unit,
            train=len(train),
            validation=len(validation),
            columns=(TextColumn(names[0], self.tokenizer, texts, validation_texts),),
            lengths={train.unit: self.lengths("tokens")},
            shared=shared,
        )

    def lengths(self, name: str) -> np.ndarray:
        """Sizes of an array of the training examples: integers `[rows]`."""
        return np.array([example[name].size for example in self.train.examples])

    def num_bytes(self, rows: Any) -> int | None:
        """UTF-8 bytes of the text that is predicted; None where that is no measure."""
        return None

    def scores(self, validation: EncodedRows) -> Callable[[Any], dict[str, float]] | None:
        """Makes what computes figures beside the validation loss; None for none."""
        return None

    def save(self, folder: pathlib.Path) -> None:
        """Writes tokenizers and validation rows."""
        super().save(folder)
        rows = zip(*_columns(self.validation.rows), strict=True)
        write_json(folder / VALIDATION, [list(row) for row in rows])

    def load_validation(self, folder: pathlib.Path) -> EncodedRows:
        """Reads and encodes the validation rows."""

        def table(value: Any) -> Any:
            return self.table(*(tuple(map(str, column)) for column in zip(*value, strict=True)))

        return self._encoded(read_json(folder / VALIDATION, table))

    def read_validation(self, paths: Sequence[str]) -> EncodedRows:
        """Reads and encodes files of such rows."""
        return self._encoded(*self.table.read(paths))


def _columns(table: text.Table) -> list[tuple[str, ...]]:
    """The columns of a table, in order."""
    names = [field.name for field in dataclasses.fields(table) if field.name != "lines"]
    return [getattr(table, name) for name in names]


def _lines(table: text.Table) -> list[str]:
    """The rows of a table, with tabs between the columns."""
    return ["\t".join(row) for row in zip(*_columns(table), strict=True)]
