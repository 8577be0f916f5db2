"""Tasks whose data is one stream of tokens, cut into windows of one length."""

import abc
import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self

import numpy as np

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.runs.data_summary import DataSummary
from jaxformer.runs.data_view import DataView, TextColumn
from jaxformer.runs.prepare import fingerprint
from jaxformer.runs.stream_text import (
    StreamText,
    encode_text,
    first_documents,
    load_text,
    read_files,
    read_token_files,
    save_text,
)
from jaxformer.runs.task import Task
from jaxformer.runs.task_values import Split
from jaxformer.text.corpora import LONG, long_lines, paragraphs
from jaxformer.training import TrainingData
from jaxformer.training.data import BatchSource
from jaxformer.training.parallel import Runner

__all__ = ["StreamTask", "StreamText"]

_PROMPTS = 3


class StreamTask(Task):
    """A task on documents; `read` returns a list of them for training and one for validation."""

    @classmethod
    def read(cls, config: ExperimentConfig) -> Split:
        """Reads the files that the config names, or Python's documentation; maps token files."""
        data, by_character = config.data, config.tokenizer.kind == "character"
        read = functools.partial(read_files, data, characters=by_character)
        if data.source == "python":
            documents = text.python_documents()
            if not data.validation_paths:
                return Split(*text.split_documents(documents, data.validation_fraction))
            return Split(documents, _whole(read(data.validation_paths, 0)))
        if data.source == "tokens":
            return read_token_files(data)
        if not data.paths:
            raise ConfigError(
                "data.source 'files' needs data.paths: text files or globs; for example "
                "--data.paths my_text.txt"
            )
        if not data.validation_paths:
            corpus = read(data.paths, data.validation_fraction)
            if corpus.documents is None:
                if not corpus.validation_sample:
                    raise DataError(
                        f"validation must have text, got none of {corpus.num_bytes:,} bytes with "
                        f"validation_fraction={data.validation_fraction}; raise it"
                    )
                return Split(*corpus.parts)
            return Split(*text.split_documents(corpus.documents, data.validation_fraction))
        train, validation = _whole(read(data.paths, 0)), _whole(read(data.validation_paths, 0))
        if shared := _shared(train, validation):
            raise DataError(
                "data.validation_paths must hold other text than data.paths, got a document in "
                f"both, which begins {min(shared)[:40]!r}; take it out of one"
            )
        return Split(train, validation)

    @classmethod
    def training_texts(cls, split: Split) -> tuple[Sequence[str], Sequence[str]]:
        """All documents, or what was drawn of a corpus; no text of token files."""
        train, validation = (_sample(part) for part in (split.train, split.validation))
        return train, validation

    def with_data(self, data: Split) -> Self:
        """Encodes the documents, or finds their tokens in the cache."""
        train = encode_text(data.train, self.tokenizer, self.config.data)
        validation = encode_text(data.validation, self.tokenizer, self.config.data)
        summary = DataSummary(
            fingerprint=_fingerprint(data, train, validation),
            documents=train.num_documents,
            train_tokens=train.stream.tokens.size,
            validation_tokens=validation.stream.tokens.size,
        )
        texts = _sample(data.validation)
        if isinstance(data.validation, text.TokenFiles):
            texts = first_documents(validation.stream, self.tokenizer)
        return dataclasses.replace(
            self, config=self.with_prompts(self.default_prompts(texts)), train=train.stream,
            validation=validation, summary=summary,
            report=(*self.report, *_reports(data, train, validation)),
        )  # fmt: skip

    def default_prompts(self, documents: Sequence[str]) -> tuple[str, ...]:
        """The starts of three lines, short enough for any context."""
        lines = [line for line in "\n".join(documents).splitlines() if line.strip()]
        if not lines:  # as of token files without text at their start
            return ()
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
        if isinstance(self.split.train, text.TokenFiles):  # which have no text to look at
            return DataView(
                train=self.summary.documents,
                validation=self.validation.num_documents,
                lengths={"documents": lengths},
            )
        train, validation = _sample(self.split.train), _sample(self.split.validation)
        of = f"of {LONG} characters or more"
        shared: dict[str, tuple[Iterable[str], Iterable[str]]] = {
            f"paragraphs {of}": (_parts(paragraphs, train), _parts(paragraphs, validation)),
            f"lines {of}": (_parts(long_lines, train), _parts(long_lines, validation)),
        }
        if isinstance(self.split.train, text.CorpusPart):  # whose documents are on one side each
            shared = {f"{name}, in samples of both": both for name, both in shared.items()}
        else:
            shared = {"documents": (train, validation), **shared}
        return DataView(
            train=self.summary.documents,
            validation=self.validation.num_documents,
            columns=(TextColumn("documents", self.tokenizer, train, validation),),
            lengths={"documents": lengths},
            shared=shared,
        )

    def save(self, folder: pathlib.Path) -> None:
        """Writes tokenizer and validation text."""
        super().save(folder)
        save_text(folder, self.validation)

    def load_validation(self, folder: pathlib.Path) -> StreamText:
        """Reads the validation text."""
        return load_text(folder, self.tokenizer)

    def read_validation(self, paths: Sequence[str]) -> StreamText:
        """Reads and encodes files, as those of the config are read."""
        data = self.config.data
        if data.source == "tokens":
            return encode_text(text.map_token_files(text.text_files(paths)), self.tokenizer, data)
        return encode_text(_whole(read_files(data, paths, 0)), self.tokenizer, data)


def _whole(corpus: text.Corpus) -> Sequence[str] | text.CorpusPart:
    """The documents, or the part of a corpus that has all."""
    return corpus.parts[0] if corpus.documents is None else corpus.documents


def _sample(part: Sequence[str] | text.CorpusPart | text.TokenFiles) -> Sequence[str]:
    if isinstance(part, text.TokenFiles):
        return ()
    return part.sample if isinstance(part, text.CorpusPart) else part


def _shared(*parts: Sequence[str] | text.CorpusPart) -> set[str]:
    """Documents of both parts, where they are in memory."""
    first, second = (set() if isinstance(part, text.CorpusPart) else set(part) for part in parts)
    return first & second


def _fingerprint(data: Split, *encoded: StreamText) -> str:
    parts = []
    for part, one in zip((data.train, data.validation), encoded, strict=True):
        if one.fingerprint is not None:
            parts.append((one.fingerprint,))
        else:
            parts.append((part.corpus.fingerprint,) if isinstance(part, text.CorpusPart) else part)
    return fingerprint(*parts)


def _reports(data: Split, train: StreamText, validation: StreamText) -> Iterator[str]:
    """What became of a corpus or of token files, a line each."""
    if isinstance(data.train, text.TokenFiles):
        yield (
            f"token files: {train.num_documents:,} documents for training, "
            f"{validation.num_documents:,} for validation"
        )
    if isinstance(data.train, text.CorpusPart):
        corpus = data.train.corpus
        unit = "document" if corpus.num_documents == 1 else "documents"
        counts = f"{corpus.num_documents:,} {unit}, {corpus.num_bytes:,} bytes"
        yield f"{counts}; tokens in {train.folder}"
        if corpus.skipped:
            shown = "; ".join(corpus.skipped_shown)
            unit = "record" if corpus.skipped == 1 else "records"
            yield f"left out {corpus.skipped:,} {unit} that cannot be read: {shown}"


def _parts(cut: Callable[[str], Iterator[str]], documents: Sequence[str]) -> Iterator[str]:
    """Parts of all documents."""
    return (part for document in documents for part in cut(document))
