"""Tasks whose data is one stream of tokens, cut into windows of one length."""

import abc
import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.runs.data_summary import DataSummary
from jaxformer.runs.data_view import DataView, TextColumn
from jaxformer.runs.folder import VALIDATION
from jaxformer.runs.json_files import read_json, write_json
from jaxformer.runs.prepare import fingerprint
from jaxformer.runs.task import Task
from jaxformer.runs.task_values import Split
from jaxformer.text.corpora import LONG, long_lines, paragraphs
from jaxformer.training import TrainingData
from jaxformer.training.data import BatchSource
from jaxformer.training.parallel import Runner

__all__ = ["StreamTask", "StreamText"]

_PROMPTS = 3


class StreamText(NamedTuple):
    """Documents, and the stream of tokens that they are together."""

    documents: Sequence[str]
    stream: text.TokenStream

    @property
    def num_bytes(self) -> int:
        """UTF-8 bytes of all documents."""
        return sum(len(document.encode()) for document in self.documents)


class StreamTask(Task):
    """A task on documents; `read` returns a list of them for training and one for validation."""

    @classmethod
    def read(cls, config: ExperimentConfig) -> Split:
        """Reads the files that the config names, or Python's documentation."""
        data = config.data
        if data.source == "python":
            documents = text.python_documents()
        elif data.paths:
            documents = text.read_documents(data.paths)
        else:
            raise ConfigError(
                "data.source 'files' needs data.paths: text files or globs; for example "
                "--data.paths my_text.txt"
            )
        if not data.validation_paths:
            return Split(*text.split_documents(documents, data.validation_fraction))
        validation = text.read_documents(data.validation_paths)
        if shared := set(documents) & set(validation):
            raise DataError(
                "data.validation_paths must hold other text than data.paths, got a document in "
                f"both, which begins {min(shared)[:40]!r}; take it out of one"
            )
        return Split(documents, validation)

    @classmethod
    def training_texts(cls, split: Split) -> tuple[Sequence[str], Sequence[str]]:
        """All documents."""
        return split.train, split.validation

    def with_data(self, data: Split) -> Self:
        """Encodes the documents, or finds their tokens in the cache."""
        cache = text.default_cache_dir()
        train = text.cached_stream(data.train, self.tokenizer, cache)
        validation = text.cached_stream(data.validation, self.tokenizer, cache)
        summary = DataSummary(
            fingerprint=fingerprint(data.train, data.validation),
            documents=len(data.train),
            train_tokens=int(train.tokens.size),
            validation_tokens=int(validation.tokens.size),
        )
        return dataclasses.replace(
            self, config=self.with_prompts(self.default_prompts(data.validation)), train=train,
            validation=StreamText(data.validation, validation), summary=summary,
        )  # fmt: skip

    def default_prompts(self, documents: Sequence[str]) -> tuple[str, ...]:
        """The starts of three lines, short enough for any context."""
        lines = [line for line in "\n".join(documents).splitlines() if line.strip()]
        prompts = []
        for place in range(_PROMPTS):
            prompt = lines[place * len(lines) // _PROMPTS].strip()[:20]
            while len(prompt) > 1 and self.tokenizer.encode(prompt).size > self.max_len // 2:
                prompt = prompt[:-1]
            prompts.append(prompt)
        return tuple(prompts)

    @abc.abstractmethod
    def windows(self, stream: text.TokenStream) -> text.Source:
        """Cuts a stream into sequences of one length."""

    def training_batches(self, runner: Runner) -> BatchSource:
        """Makes batches of windows, in another order in every epoch."""
        config = self.config
        assert config.training.batch_size is not None  # the config requires it of streams
        return text.Batches(
            self.windows(self.train), config.training.batch_size, seed=config.seed, host=runner.host
        )

    def evaluation_data(self, validation: StreamText, runner: Runner) -> TrainingData:
        """Makes batches of all windows, in their order."""
        training, windows = self.config.training, self.windows(validation.stream)
        assert training.batch_size is not None
        # The rows of a micro-batch, which are known to fit in memory.
        rows = math.lcm(training.batch_size // training.accumulate_steps, runner.num_shards)
        return TrainingData(
            batches=(), unit=self.unit,
            validation=lambda: text.evaluation_batches(windows, rows, host=runner.host),
        )  # fmt: skip

    def data_view(self) -> DataView:
        """Describes the documents, and the paragraphs and lines that both parts may have."""
        lengths = np.diff(self.train.offsets, append=self.train.tokens.size)
        if self.split is None:
            return DataView(train=lengths.size, lengths={"documents": lengths})
        train, validation = self.split.train, self.split.validation
        of = f"of {LONG} characters or more"
        return DataView(
            train=len(train),
            validation=len(validation),
            columns=(TextColumn("documents", self.tokenizer, train, validation),),
            lengths={"documents": lengths},
            shared={
                "documents": (train, validation),
                f"paragraphs {of}": (_parts(paragraphs, train), _parts(paragraphs, validation)),
                f"lines {of}": (_parts(long_lines, train), _parts(long_lines, validation)),
            },
        )

    def save(self, folder: pathlib.Path) -> None:
        """Writes tokenizer and validation documents."""
        super().save(folder)
        write_json(folder / VALIDATION, self.validation.documents)

    def load_validation(self, folder: pathlib.Path) -> StreamText:
        """Reads and encodes the validation documents."""

        def documents(value: Any) -> list[str]:
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                raise TypeError("it must be a list of texts")
            return value

        return self.encode_documents(read_json(folder / VALIDATION, documents))

    def read_validation(self, paths: Sequence[str]) -> StreamText:
        """Reads and encodes text files, each a document."""
        return self.encode_documents(text.read_documents(paths))

    def encode_documents(self, documents: Sequence[str]) -> StreamText:
        """Makes one stream of documents."""
        return StreamText(documents, text.build_stream(documents, self.tokenizer))


def _parts(cut: Callable[[str], Iterator[str]], documents: Sequence[str]) -> Iterator[str]:
    """Parts of all documents."""
    return (part for document in documents for part in cut(document))
