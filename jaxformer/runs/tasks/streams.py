"""Tasks on windows of equal length from a token stream, or from a mixture of streams."""

import abc
import dataclasses
import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.errors import DataError
from jaxformer.runs.data.prepare import evenly_chosen, fingerprint
from jaxformer.runs.data.text_sources import (
    check_tokens,
    document_source,
    encode_documents,
    read_sources,
    scan_files,
    texts_of,
)
from jaxformer.runs.data.view import DataView, counted
from jaxformer.runs.folder.files import VALIDATION, DataSummary
from jaxformer.runs.tasks.task import Split, Task
from jaxformer.storage import read_json, write_json
from jaxformer.text.store.arrays import map_array, write_array
from jaxformer.training import TrainingData
from jaxformer.training.data import BatchSource
from jaxformer.training.parallel import Runner

_LOG = logging.getLogger(__name__)
_PROMPTS = 3


class StreamTask(Task):
    """A task on documents; your own `read` returns `documents(train, validation)`.

    `train` and `validation` are dicts by name of the source; a single source has the name "".
    """

    @classmethod
    def read(cls, config: ExperimentConfig) -> Split:
        """Reads the text files of the config or built-in documents, or maps token files."""
        return Split(read_sources(config.data))

    @staticmethod
    def documents(train: Sequence[str], validation: Sequence[str]) -> Split:
        """The result of `read` for documents in memory."""
        parts = (text.Corpus.of(text.Documents.of(part)) for part in (train, validation))
        return Split({"": document_source(*parts)})

    @classmethod
    def training_texts(
        cls, split: Split, config: ExperimentConfig
    ) -> tuple[Sequence[str], Sequence[str]]:
        """All documents, or samples of them."""
        return texts_of(split.train)

    def with_data(self, data: Split) -> Self:
        """Encodes the documents, or finds their tokens in the cache."""
        train, validation = {}, {}
        for name, source in data.train.items():
            train[name], validation[name] = source.encode(self.tokenizer, self.config.data)
        for name, stream in train.items():
            if (size := stream.tokens.size) <= self.max_len:
                raise DataError(
                    f"{f'source {name!r} of data.mixture' if name else 'the training text'} must "
                    f"be longer than one sequence, model.max_len = {self.max_len:,} tokens, got "
                    f"{size:,}; lower model.max_len, or add text"
                )
        by_source = {
            name: fingerprint([stream.fingerprint], [validation[name].fingerprint])
            for name, stream in train.items()
        }
        summary = DataSummary(
            fingerprint=by_source.get("") or fingerprint(*by_source.items()),
            documents=sum(map(len, train.values())),
            train_tokens=sum(stream.tokens.size for stream in train.values()),
            validation_tokens=sum(stream.tokens.size for stream in validation.values()),
        )
        if not (texts := texts_of(data.train)[1]):
            _LOG.info(
                f"token files: {counted(len(train['']), 'documents')} for training, "
                f"{len(validation['']):,} for validation"
            )
        task = dataclasses.replace(
            self.with_prompts(self.default_prompts(texts)), summary=summary,
            train=train, validation=validation,
        )  # fmt: skip
        if self.config.data.mixture:
            task._log_mixture()
        for name, source in data.train.items():
            for line in source.report:
                _LOG.info(f"{name}: {line}" if name else line)
        return task

    def _log_mixture(self) -> None:
        """Logs each source of a mixture: its share, its size, and its epochs in the run."""
        mixture, training = self._mixture(), self.config.training
        assert training.batch_size is not None  # the config requires it of streams
        epochs = mixture.epochs(training.steps * training.batch_size)
        for name, stream in self.train.items():
            _LOG.info(
                f"{name}: {100 * mixture.shares[name]:.3g}% of the sequences; "
                f"{counted(len(stream), 'documents')}, {stream.tokens.size:,} tokens, "
                f"{epochs[name]:.3g} epochs in {training.steps:,} steps (training.steps)"
            )

    def _mixture(self) -> text.Mixture:
        """The windows of the sources, with their weights."""
        return text.Mixture(
            {name: self.windows(stream) for name, stream in self.train.items()},
            {source.name: source.weight for source in self.config.data.mixture},
        )

    def default_prompts(self, documents: Sequence[str]) -> tuple[str, ...]:
        """Starts of three lines: up to 20 characters, half a context, whole words if possible."""
        lines = [line for line in "\n".join(documents).splitlines() if line.strip()]
        prompts = []
        for line in evenly_chosen(lines, _PROMPTS):  # of token files, there are none
            prompt = line.strip()[:200]
            while len(prompt) > 20 or (
                len(prompt) > 1 and self.tokenizer.encode(prompt).size > self.max_len // 2
            ):
                prompt = prompt.rpartition(" ")[0].rstrip() or prompt[:-1]
            prompts.append(prompt)
        return tuple(prompts)

    @abc.abstractmethod
    def windows(self, stream: text.TokenStream) -> text.Rows:
        """Cuts a stream into sequences of one length."""

    def training_batches(self, runner: Runner) -> BatchSource:
        """Makes batches of the windows of the stream or mixture, reshuffled each epoch."""
        mixed = self.config.data.mixture
        return self.shuffled_batches(
            self._mixture() if mixed else self.windows(self.train[""]), runner
        )

    def evaluation_data(
        self, validation: Mapping[str, text.TokenStream], runner: Runner
    ) -> TrainingData:
        """Makes batches of all windows in order; for a mixture, source after source.

        Each source starts a new batch, so that its loss needs no separate forward pass.
        """
        if "" in validation:
            return super().evaluation_data(validation[""], runner)
        streams, sizes = validation.items(), [*map(self.num_bytes, validation.values())]
        batches = {name: self.validation_batches(stream, runner) for name, stream in streams}
        return TrainingData(
            batches=(),
            unit=self.model.unit,
            validation=lambda: {name: source.once() for name, source in batches.items()},
            validation_bytes=None if None in sizes else sum(filter(None, sizes)),
        )

    def validation_batches(self, validation: text.TokenStream, runner: Runner) -> Any:
        """Makes batches of all windows of one stream, in order."""
        return self.ordered_batches(self.windows(validation), runner)

    def data_view(self) -> DataView:
        """Describes the documents."""
        return DataView(
            validation=sum(map(len, self.validation.values())),
            lengths={"documents": np.concatenate([part.sizes for part in self.train.values()])},
        )

    def save(self, folder: pathlib.Path) -> None:
        """Writes the model and the validation tokens, if any."""
        super().save(folder)
        if self.validation is None:
            return
        sizes = {name: stream.num_bytes for name, stream in self.validation.items()}
        write_json(folder / VALIDATION, sizes)
        for index, stream in enumerate(self.validation.values()):
            write_array(folder / f"validation_{index}_tokens.npy", stream.tokens)
            write_array(folder / f"validation_{index}_documents.npy", stream.offsets)

    def load_validation(self, folder: pathlib.Path) -> dict[str, text.TokenStream]:
        """Reads the validation tokens by source."""
        remedy, streams = "restore the run folder, or train again", {}
        for index, (name, num_bytes) in enumerate(read_json(folder / VALIDATION, dict).items()):
            tokens, starts = (
                map_array(folder / f"validation_{index}_{array}.npy", remedy=remedy)
                for array in ("tokens", "documents")
            )
            streams[name] = text.TokenStream(tokens, starts, num_bytes)
        return streams

    def read_validation(self, paths: Sequence[str]) -> dict[str, text.TokenStream]:
        """Reads and encodes files with the settings of the config."""
        data = self.config.data
        if data.source == "tokens":
            files = text.map_token_files(text.text_files(paths))
            return {"": check_tokens(files, self.tokenizer, data)}
        corpus = scan_files(text.Documents, data, paths, field=data.field)
        return {"": encode_documents(corpus, self.tokenizer, data)[0]}
