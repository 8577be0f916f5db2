"""Tasks on rows of text: pairs, labelled texts, or your own columns."""

import abc
import copy
import dataclasses
import logging
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError
from jaxformer.runs.data.prepare import cache_dir, evenly_chosen, fingerprint
from jaxformer.runs.data.text_sources import byte_progress, require_other_files, scan_files
from jaxformer.runs.data.view import DataView, counted, shared_texts
from jaxformer.runs.folder.files import VALIDATION, DataSummary
from jaxformer.runs.tasks.task import Split, Task
from jaxformer.storage import read_json, write_json
from jaxformer.text.corpora.encoding import no_rows_error, prepare_rows
from jaxformer.text.store.arrays import Example, ExampleArrays
from jaxformer.training.data import BatchSource
from jaxformer.training.parallel import Runner

_LOG = logging.getLogger(__name__)
_PROMPTS = 3


class EncodedRows(NamedTuple):
    """Arrays of rows, with "tokens" and "labels"; the rows or a sample; and counts so far."""

    examples: ExampleArrays
    rows: Any  # a table; in training data, with those that were dropped
    counts: text.Counts
    is_sampled: bool = False  # whether `rows` is only a sample


class TableTask(Task):
    """A task on rows of text, in length-bucketed batches.

    `read` returns a `text.Corpus` for training, and a table for validation. Padding has the label
    -1, which the loss must ignore.

    Attributes:
        table: the kind of table, a dataclass with one field per column.
    """

    table: ClassVar[type[text.Table]]

    @abc.abstractmethod
    def encode_rows(self, rows: Any) -> Sequence[Example | None]:
        """Encodes a table.

        Args:
            rows: the table.

        Returns:
            A dict of arrays for each row, including "tokens" and "labels"; None for a row without
            tokens. Rows with an array longer than `max_len` are dropped and counted.
        """

    def encoding_key(self) -> tuple[str, ...]:
        """All that `encode_rows` depends on besides the rows, as a key of the disk cache.

        Examples of a class without a key of its own, such as a subclass, stay in memory.
        """
        return ()

    @classmethod
    def read(cls, config: ExperimentConfig) -> Split:
        """Reads the files of the config, or the phrasebook, and holds out rows for validation."""
        if config.data.source == "phrasebook":
            train, validation = map(cls.phrase_rows, text.load_phrasebook())
            return Split(text.Corpus.of(train), validation)
        if not config.data.paths:
            raise ConfigError(
                f"data.source {config.data.source!r} needs data.paths: files with lines of "
                f"{cls.table.layout}; for example --data.paths rows.txt"
            )
        data = config.data
        if not data.validation_paths:
            corpus = scan_files(cls.table, data, data.paths, data.validation_fraction)
            return Split(corpus, corpus.validation)
        require_other_files(data)
        validation, counts = cls.table.read(data.validation_paths)
        return Split(scan_files(cls.table, data, data.paths), validation, counts)

    @classmethod
    def phrase_rows(cls, phrases: Sequence[text.Phrase]) -> text.Table:
        """Rows made of phrases of the phrasebook; by default, a task has none."""
        raise ConfigError(
            f"{cls.__name__} makes no rows of the phrasebook, got data.source 'phrasebook'; name "
            "files, or override phrase_rows"
        )

    @classmethod
    def training_texts(
        cls, split: Split, config: ExperimentConfig
    ) -> tuple[Sequence[str], Sequence[str]]:
        """The first column."""
        return split.train.train.columns[0], split.validation.columns[0]

    def with_data(self, data: Split) -> Self:
        """Encodes the rows, and counts the dropped ones."""
        corpus, has_key = data.train, "encoding_key" in vars(type(self))
        cache = cache_dir(self.config.data) if has_key else None
        with byte_progress("tokenizing", corpus.num_bytes) as update:
            examples, counts = prepare_rows(
                corpus, self.encode_rows, self.max_len, cache, *self.encoding_key(),
                on_progress=update,
            )  # fmt: skip
        train = EncodedRows(examples, corpus.train, counts, corpus.is_sampled)
        validation = self._encoded(data.validation, data.validation_counts)
        for doing, rows in (("training", train), ("validating", validation)):
            _LOG.info(f"{doing} on {counted(len(rows.examples), rows.rows.unit)} ({rows.counts})")
        summary = DataSummary(
            fingerprint=fingerprint([corpus.fingerprint], *validation.rows.columns),
            documents=len(train.examples),
            train_tokens=int(train.examples.sizes("tokens").sum()),
            validation_tokens=int(validation.examples.sizes("tokens").sum()),
        )
        return dataclasses.replace(
            self.with_prompts(self.default_prompts(validation.rows.columns[0])),
            train=train, validation=validation, summary=summary,
        )  # fmt: skip

    def default_prompts(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Three validation texts of the first column."""
        return evenly_chosen(texts, _PROMPTS)

    def _encoded(self, rows: text.Table, counts: text.Counts | None = None) -> EncodedRows:
        """Encodes rows in memory; `counts` are None if none were dropped before."""
        counts = text.Counts(rows.unit, len(rows)) if counts is None else copy.deepcopy(counts)
        fitting = text.fitting_rows(rows, self.encode_rows(rows), self.max_len, counts)
        if not fitting:
            raise no_rows_error(counts, self.max_len)
        return EncodedRows(ExampleArrays.of([*fitting.values()]), rows.take(fitting), counts)

    def training_batches(self, runner: Runner) -> BatchSource:
        """Makes length-bucketed batches of rows."""
        training = self.config.training
        assert training.batch_tokens is not None  # the config requires it for rows
        return text.BucketedBatches(
            self.train.examples,
            batch_tokens=training.batch_tokens,
            seed=self.config.seed,
            multiple_of=runner.num_shards * training.accumulate_steps,
            num_buckets=self.config.data.num_buckets,
            host=runner.host,
        )

    def validation_batches(self, validation: EncodedRows, runner: Runner) -> Any:
        """Makes batches of all rows, of the size of a micro-batch, or of one row per device."""
        training, longest = self.config.training, int(validation.examples.lengths.max())
        assert training.batch_tokens is not None
        micro_batch = training.batch_tokens // training.accumulate_steps
        return text.BucketedBatches(
            validation.examples,
            batch_tokens=max(micro_batch, longest * runner.num_shards),
            num_buckets=self.config.data.num_buckets,
            multiple_of=runner.num_shards,
            host=runner.host,
        )

    def data_view(self) -> DataView:
        """Describes the first column and the lengths of the rows."""
        train, validation = self.train.rows, self.validation.rows
        sides = {name: (getattr(train, name), getattr(validation, name)) for name in train.inputs}
        sample = ", in a sample" if self.train.is_sampled else ""
        return DataView(
            unit=train.unit,
            validation=len(validation),
            lengths={train.unit: self.train.examples.sizes("tokens")},
            shared=tuple(shared_texts(f"{name}{sample}", *texts) for name, texts in sides.items()),
        )

    def save(self, folder: pathlib.Path) -> None:
        """Writes the model and, if there are any, validation rows."""
        super().save(folder)
        if self.validation is not None:
            rows = zip(*self.validation.rows.columns, strict=True)
            write_json(folder / VALIDATION, [list(row) for row in rows])

    def load_validation(self, folder: pathlib.Path) -> EncodedRows:
        """Reads and encodes the validation rows."""
        columns = zip(*read_json(folder / VALIDATION, list), strict=True)
        return self._encoded(self.table(*columns))

    def read_validation(self, paths: Sequence[str]) -> EncodedRows:
        """Reads and encodes files of such rows."""
        return self._encoded(*self.table.read(paths))
