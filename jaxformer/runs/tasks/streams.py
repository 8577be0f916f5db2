"""Tasks on windows of equal length from a token stream, or from a mixture of streams."""

import abc
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from jaxformer import text
from jaxformer.config import DataConfig, ExperimentConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.runs.data.mixed_text import (
    MixedText,
    TextPart,
    all_texts,
    corpus_report,
    has_corpus,
    mixture_report,
    named_parts,
    naming_source,
    read_mixture,
    shared_documents,
    split_fingerprint,
    tokenizer_texts,
)
from jaxformer.runs.data.one_length import evaluation_batches, training_batches
from jaxformer.runs.data.stream_text import (
    StreamText,
    encode_text,
    first_documents,
    load_text,
    read_files,
    read_token_files,
    require_other_files,
    save_text,
)
from jaxformer.runs.data.summary import DataSummary
from jaxformer.runs.data.values import Split
from jaxformer.runs.data.view import DataView, TextColumn
from jaxformer.runs.tasks.task import Task
from jaxformer.text.sources.documents import LONG, long_lines, paragraphs
from jaxformer.training import TrainingData
from jaxformer.training.data import BatchSource, joined_validation
from jaxformer.training.parallel import Runner

__all__ = ["StreamTask", "StreamText"]

_PROMPTS = 3


class StreamTask(Task):
    """A task on documents; `read` returns them as training and validation parts.

    For a mixture, each part is a `MixedText`, and `train` and `validation` are dicts of streams by
    the name of the source.
    """

    @classmethod
    def read(cls, config: ExperimentConfig) -> Split:
        """Reads the text files of the config or Python's documentation, or maps token files."""
        data, by_character = config.data, config.tokenizer.kind == "character"
        read = functools.partial(read_files, data, characters=by_character)
        if data.source == "python":
            documents = text.python_documents()
            if not data.validation_paths:
                return Split(*text.split_documents(documents, data.validation_fraction))
            held_out = read(data.validation_paths, 0)
            return Split(documents, _whole(held_out), report=_left_out(held_out))
        if data.source == "tokens":
            return read_token_files(data)
        if data.mixture:
            return read_mixture(
                data,
                functools.partial(_read_split, characters=by_character),
                characters=by_character,
            )
        if not data.paths:
            raise ConfigError(
                "data.source 'files' needs data.paths: text files or globs; for example "
                "--data.paths my_text.txt"
            )
        if not data.validation_paths:
            return _read_split(data, characters=by_character)
        require_other_files(data.paths, data.validation_paths)
        corpora = read(data.paths, 0), read(data.validation_paths, 0)
        train, validation = map(_whole, corpora)
        files, others = ({state.content: state.path for state in one.files} for one in corpora)
        if isinstance(train, text.CorpusPart) and (copied := files.keys() & others.keys()):
            same = min(copied)
            raise DataError(
                "data.validation_paths must hold other text than data.paths, got "
                f"'{others[same]}', a copy of '{files[same]}'; remove it from one"
            )
        if shared := _shared(train, validation):
            raise DataError(
                "data.validation_paths must hold other text than data.paths, got a document in "
                f"both, which begins {min(shared)[:40]!r}; remove it from one"
            )
        return Split(train, validation, report=sum(map(_left_out, corpora), ()))

    @classmethod
    def training_texts(cls, split: Split) -> tuple[Sequence[str], Sequence[str]]:
        """All documents in memory, or samples of a corpus."""
        return tokenizer_texts(split.train), tokenizer_texts(split.validation)

    def with_data(self, data: Split) -> Self:
        """Encodes the documents, or finds their tokens in the cache."""
        train, validation = self._encoded(data.train), self._encoded(data.validation)
        for name, one in train.items():
            if (size := one.stream.tokens.size) <= self.max_len:
                raise DataError(
                    f"{f'source {name!r} of data.mixture' if name else 'the training text'} must "
                    f"be longer than one sequence, model.max_len = {self.max_len:,} tokens, got "
                    f"{size:,}; lower model.max_len, or add text"
                )
        summary = DataSummary(
            fingerprint=split_fingerprint(data, train, validation),
            documents=sum(one.num_documents for one in train.values()),
            train_tokens=sum(one.stream.tokens.size for one in train.values()),
            validation_tokens=sum(one.stream.tokens.size for one in validation.values()),
        )
        texts = tokenizer_texts(data.validation)
        if isinstance(data.validation, text.TokenFiles):
            texts = first_documents(validation[""].stream, self.tokenizer)
        prompts, streams = self.default_prompts(texts), {n: one.stream for n, one in train.items()}
        made = dataclasses.replace(
            self, config=self.with_prompts(prompts), train=streams.get("", streams),
            validation=validation.get("", validation), summary=summary,
        )  # fmt: skip
        shares = made._mixture_reports(data)
        report = (*self.report, *shares, *corpus_report(data, train), *data.report)
        if isinstance(data.train, text.TokenFiles):
            report += (
                f"token files: {train[''].num_documents:,} documents for training, "
                f"{validation[''].num_documents:,} for validation",
            )
        return dataclasses.replace(made, report=report)

    def _encoded(self, part: TextPart | MixedText) -> dict[str, StreamText]:
        """Encodes a part of the text, by source."""
        streams = {}
        for name, one in named_parts(part).items():
            with naming_source(name):
                streams[name] = encode_text(one, self.tokenizer, self.config.data)
        return streams

    def _mixture_reports(self, data: Split) -> Iterator[str]:
        """Report lines on the sources of a mixture, and on documents that they share."""
        if isinstance(self.train, Mapping):
            training = self.config.training
            assert training.batch_size is not None  # the config requires it of streams
            yield from mixture_report(
                self._mixture(), self.train, steps=training.steps, batch_size=training.batch_size
            )
            yield from shared_documents(data.train, data.validation)

    def _mixture(self) -> text.Mixture:
        """The windows of the sources, with their weights."""
        return text.Mixture(
            {name: self.windows(stream) for name, stream in self.train.items()},
            {source.name: source.weight for source in self.config.data.mixture},
        )

    def default_prompts(self, documents: Sequence[str]) -> tuple[str, ...]:
        """Starts of three lines: up to 20 characters, half a context, whole words if possible."""
        lines = [line for line in "\n".join(documents).splitlines() if line.strip()]
        if not lines:  # for example, token files that do not begin with text
            return ()
        prompts = []
        for place in range(_PROMPTS):
            prompt = lines[place * len(lines) // _PROMPTS].strip()[:200]
            while len(prompt) > 20 or (
                len(prompt) > 1 and self.tokenizer.encode(prompt).size > self.max_len // 2
            ):
                prompt = prompt.rpartition(" ")[0].rstrip() or prompt[:-1]
            prompts.append(prompt)
        return tuple(prompts)

    @abc.abstractmethod
    def windows(self, stream: text.TokenStream) -> text.Source:
        """Cuts a stream into sequences of one length."""

    def training_batches(self, runner: Runner) -> BatchSource:
        """Makes batches of the windows of the stream or mixture, reshuffled each epoch."""
        mixed = isinstance(self.train, Mapping)
        source = self._mixture() if mixed else self.windows(self.train)
        return training_batches(self.config, source, runner)

    def evaluation_data(
        self, validation: StreamText | Mapping[str, StreamText], runner: Runner
    ) -> TrainingData:
        """Makes batches of all windows in order; for a mixture, source after source.

        Each source starts a new batch, so that its loss needs no separate forward pass.
        """
        if isinstance(validation, StreamText):
            return self.stream_evaluation(validation, runner)
        sources = {name: self.stream_evaluation(one, runner) for name, one in validation.items()}
        return joined_validation(sources)

    def stream_evaluation(self, validation: StreamText, runner: Runner) -> TrainingData:
        """Makes batches of all windows of one stream, in order."""
        windows = self.windows(validation.stream)
        return evaluation_batches(self.config, windows, runner, self.unit)

    def data_view(self) -> DataView:
        """Describes the documents, and the texts that training and validation may share."""
        streams = _by_source(self.train).values()
        lengths = np.concatenate([np.diff(one.offsets, append=one.tokens.size) for one in streams])
        if self.split is None:
            return DataView(train=lengths.size, lengths={"documents": lengths})
        if isinstance(self.split.train, text.TokenFiles):  # no text to show
            return DataView(
                train=self.summary.documents,
                validation=self.validation.num_documents,
                lengths={"documents": lengths},
            )
        train, validation = all_texts(self.split.train), all_texts(self.split.validation)
        of = f"of {LONG} characters or more"
        shared: dict[str, tuple[Iterable[str], Iterable[str]]] = {
            f"paragraphs {of}": (_parts(paragraphs, train), _parts(paragraphs, validation)),
            f"lines {of}": (_parts(long_lines, train), _parts(long_lines, validation)),
        }
        if has_corpus(self.split.train):  # no document is in both parts
            shared = {f"{name}, in samples of both": both for name, both in shared.items()}
        else:
            shared = {"documents": (train, validation), **shared}
        return DataView(
            train=self.summary.documents,
            validation=sum(one.num_documents for one in _by_source(self.validation).values()),
            columns=(TextColumn("documents", self.tokenizer, train, validation),),
            lengths={"documents": lengths},
            shared=shared,
        )

    def save(self, folder: pathlib.Path) -> None:
        """Writes the tokenizer and the validation text, if any."""
        super().save(folder)
        if self.validation is not None:
            save_text(folder, self.validation)

    def load_validation(self, folder: pathlib.Path) -> StreamText | dict[str, StreamText]:
        """Reads the validation text; for a mixture, a dict by source."""
        return load_text(folder, self.tokenizer)

    def read_validation(self, paths: Sequence[str]) -> StreamText:
        """Reads and encodes files with the settings of the config."""
        data = self.config.data
        if data.source == "tokens":
            return encode_text(text.map_token_files(text.text_files(paths)), self.tokenizer, data)
        return encode_text(_whole(read_files(data, paths, 0)), self.tokenizer, data)


def _read_split(data: DataConfig, *, characters: bool) -> Split:
    """Reads the files of data.paths and holds out a share of the text for validation."""
    corpus = read_files(data, data.paths, data.validation_fraction, characters=characters)
    if corpus.documents is not None:
        parts = text.split_documents(corpus.documents, data.validation_fraction)
        return Split(*parts, report=_left_out(corpus))
    if not corpus.validation_sample:
        raise DataError(
            f"validation must have text, got none of {corpus.num_bytes:,} bytes with "
            f"validation_fraction={data.validation_fraction}; raise it"
        )
    return Split(*corpus.parts, report=_left_out(corpus))


def _left_out(corpus: text.Corpus) -> tuple[str, ...]:
    """Report line on unreadable records, if any."""
    if not corpus.skipped:
        return ()
    unit = "record" if corpus.skipped == 1 else "records"
    shown = "; ".join(corpus.skipped_shown)
    return (f"left out {corpus.skipped:,} {unit} that cannot be read: {shown}",)


def _whole(corpus: text.Corpus) -> Sequence[str] | text.CorpusPart:
    """All documents, in memory or as the whole corpus."""
    return corpus.parts[0] if corpus.documents is None else corpus.documents


def _by_source(found: Any) -> Mapping[str, Any]:
    """Streams by name of the source; a stream alone has the name ""."""
    return found if isinstance(found, Mapping) else {"": found}


def _shared(*parts: Any) -> set[str]:
    """Documents that are in both parts, if these are in memory."""
    first, second = (set() if isinstance(part, text.CorpusPart) else set(part) for part in parts)
    return first & second


def _parts(cut: Callable[[str], Iterator[str]], documents: Sequence[str]) -> Iterator[str]:
    """Parts of all documents."""
    return (part for document in documents for part in cut(document))
