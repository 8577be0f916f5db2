"""The text of runs that are trained on one stream of tokens, cut into windows of one length."""

import dataclasses
import pathlib

from jaxformer import run_folder, text
from jaxformer.config import DataConfig, ExperimentConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.runs.base import fingerprint

__all__ = ["StreamText", "default_prompts", "evaluation_rows", "read_text", "windows"]


@dataclasses.dataclass(frozen=True)
class StreamText:
    """Training and validation text as tokens.

    Args:
        tokenizer: that they were made with.
        train: stream of the training text.
        validation: stream of the validation text.
        validation_bytes: UTF-8 bytes of the validation text.
        summary: what the run folder remembers of it.
    """

    tokenizer: text.Tokenizer
    train: text.TokenStream
    validation: text.TokenStream
    validation_bytes: int
    summary: run_folder.DataSummary

    @classmethod
    def encode(
        cls, tokenizer: text.Tokenizer, train_text: list[str], validation_text: list[str]
    ) -> "StreamText":
        """Encodes documents, or finds their tokens in the cache."""
        cache = text.default_cache_dir()
        train = text.cached_stream(train_text, tokenizer, cache)
        validation = text.cached_stream(validation_text, tokenizer, cache)
        summary = run_folder.DataSummary(
            fingerprint=fingerprint(train_text, validation_text),
            documents=len(train_text),
            train_tokens=int(train.tokens.size),
            validation_tokens=int(validation.tokens.size),
        )
        num_bytes = sum(len(document.encode()) for document in validation_text)
        return cls(tokenizer, train, validation, num_bytes, summary)

    def write(self, folder: pathlib.Path, predicted_bytes: int) -> None:
        """Writes tokenizer and validation tokens into a new run folder."""
        run_folder.save_tokenizer(folder, self.tokenizer)
        run_folder.ValidationTokens(self.validation, predicted_bytes).save(folder)


def windows(config: ExperimentConfig, stream: text.TokenStream) -> text.Windows:
    """Cuts a stream as the config says."""
    kind = {"windows": text.Windows, "documents": text.PackedDocuments}[config.data.packing]
    return kind(stream, config.model.max_len)


def evaluation_rows(config: ExperimentConfig) -> int:
    """Rows of an evaluation batch: those of a micro-batch, which are known to fit in memory."""
    assert config.training.batch_size is not None  # the config requires it of streams
    return config.training.batch_size // config.training.accumulate_steps


def read_text(config: DataConfig) -> tuple[list[str], list[str]]:
    """Reads the documents to train on and those to validate on."""
    if config.source == "python":
        documents = text.python_documents()
    elif config.paths:
        documents = text.read_documents(config.paths)
    else:
        raise ConfigError(
            "data.source 'files' needs data.paths: text files or globs; for example "
            "--data.paths my_text.txt"
        )
    if not config.validation_paths:
        return text.split_documents(documents, config.validation_fraction)
    validation = text.read_documents(config.validation_paths)
    if shared := set(documents) & set(validation):
        raise DataError(
            "data.validation_paths must hold other text than data.paths, got a document in both, "
            f"which begins {min(shared)[:40]!r}; take it out of one"
        )
    return documents, validation


def default_prompts(
    validation_text: list[str], tokenizer: text.Tokenizer, max_len: int
) -> tuple[str, ...]:
    """The starts of three lines of the validation text, short enough for any context."""
    lines = [line for line in "\n".join(validation_text).splitlines() if line.strip()]
    places = [lines[i * len(lines) // 3].strip() for i in range(3)]
    prompts = []
    for line in places:
        prompt = line[:20]
        while len(prompt) > 1 and tokenizer.encode(prompt).size > max_len // 2:
            prompt = prompt[:-1]
        prompts.append(prompt)
    return tuple(prompts)
