"""Text of a run, for training or for validation: documents, text files and token files."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxformer import text
from jaxformer.config import DataConfig
from jaxformer.errors import ConfigError, DataError, StorageError
from jaxformer.runs.data.byte_progress import ByteProgress, total_size
from jaxformer.runs.data.prepare import cache_dir
from jaxformer.runs.data.values import Split
from jaxformer.storage import real_path
from jaxformer.text.sources.record_files import has_records
from jaxformer.text.sources.streams import warn_of_no_cache

_MUCH = 2**26  # bytes of text; the tokens of less may stay in memory


class StreamText(NamedTuple):
    """The token stream of a text."""

    stream: text.TokenStream
    num_bytes: int | None  # of the text, in UTF-8; None if only tokens are known
    content: Sequence[str] = ()  # texts that identify it, such as the fingerprint of its files
    report: str = ""  # a line about it, for the user, if it is large

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.stream)


@runtime_checkable
class TextPart(Protocol):
    """The text of a source for training or for validation, before it is encoded."""

    @property
    def texts(self) -> Sequence[str]:
        """Its text, or a sample of it; empty for tokens."""

    @property
    def is_sampled(self) -> bool:
        """Whether `texts` is only a sample."""

    def encode(self, tokenizer: text.Tokenizer, config: DataConfig) -> StreamText:
        """Encodes the text, or finds its tokens in the cache.

        Raises:
            ConfigError: the config lacks what this kind of text needs.
            DataError: the text is too short or cannot be encoded.
            StorageError: the cache cannot be written.
        """


@dataclasses.dataclass(frozen=True)
class Documents:
    """Documents in memory."""

    texts: Sequence[str]
    is_sampled: bool = False

    def encode(self, tokenizer: text.Tokenizer, config: DataConfig) -> StreamText:
        """Encodes the documents, or finds their tokens in the cache."""
        stream = text.cached_stream(self.texts, tokenizer, cache_dir(config))
        return StreamText(stream, sum(len(one.encode()) for one in self.texts), self.texts)


@dataclasses.dataclass(frozen=True)
class CorpusPart:
    """One side of the text of files."""

    corpus: text.Corpus
    is_validation: bool

    @property
    def texts(self) -> Sequence[str]:
        """Its pieces, or a sample of them."""
        corpus = self.corpus
        return corpus.validation_sample if self.is_validation else corpus.sample

    @property
    def is_sampled(self) -> bool:
        """Whether `texts` is only a sample."""
        return self.corpus.is_sampled

    def encode(self, tokenizer: text.Tokenizer, config: DataConfig) -> StreamText:
        """Prepares the tokens in the cache, or in memory if they are few and there is no cache."""
        corpus, is_small = self.corpus, self.corpus.num_bytes <= _MUCH
        with ByteProgress("tokenizing", corpus.num_bytes) as progress:
            found = self._prepared(tokenizer, cache_dir(config), is_small, progress.update)
        stream, counts = found.train, found.train_counts
        if self.is_validation:
            if found.validation is None:
                raise DataError("validation must have text, got none; raise validation_fraction")
            stream, counts = found.validation, found.validation_counts
        report = ""
        if not (is_small or self.is_validation):
            unit = "document" if corpus.num_documents == 1 else "documents"
            size = f"{corpus.num_documents:,} {unit}, {corpus.num_bytes:,} bytes"
            report = f"{size}; tokens in {found.folder}"
        return StreamText(stream, counts.num_bytes, (corpus.fingerprint,), report)

    def _prepared(
        self,
        tokenizer: text.Tokenizer,
        folder: pathlib.Path | None,
        is_small: bool,
        on_progress: Callable[[int], None],
    ) -> text.PreparedCorpus:
        """Tokens of both sides; a few stay in memory, with a warning, if they cannot be cached."""
        reason: object = "there is no home folder"
        try:
            if folder is not None:
                return text.prepare_corpus(self.corpus, tokenizer, folder, on_progress=on_progress)
        except StorageError as error:
            if not is_small:
                raise
            reason = error
        if not is_small:
            raise ConfigError(
                f"the tokens of {self.corpus.num_bytes:,} bytes of text need a cache folder, but "
                "there is no home folder; set data.cache"
            )
        if not self.is_validation:  # which its other side has warned of
            warn_of_no_cache(reason)
        return text.prepare_corpus(self.corpus, tokenizer, None, on_progress=on_progress)


@dataclasses.dataclass(frozen=True)
class TokenPart:
    """Tokens of files, which were encoded elsewhere."""

    files: text.TokenFiles
    texts: Sequence[str] = ()
    is_sampled: bool = False

    def encode(self, tokenizer: text.Tokenizer, config: DataConfig) -> StreamText:
        """Checks the tokens against the tokenizer's vocabulary."""
        if config.packing == "documents" and tokenizer.end_of_text is None:
            raise ConfigError(
                "data.packing 'documents' of token files needs the token that ends each document, "
                "got a tokenizer without an end of text; set tokenizer.end_of_text, or "
                "data.packing to 'windows'"
            )
        size = sum(one.tokens.nbytes for one in self.files.ranges)
        with ByteProgress("checking tokens", size) as progress:
            found = text.check_token_files(
                self.files, tokenizer, cache_dir(config), on_progress=progress.update
            )
        return StreamText(found.stream, found.num_bytes, (found.fingerprint,))


def named_parts(found: Any) -> Mapping[str, TextPart]:
    """The parts by name of their source; a single part, or documents, have the name ""."""
    if isinstance(found, Mapping):
        return found
    return {"": found if isinstance(found, TextPart) else Documents(found)}


def read_files(
    config: DataConfig, paths: Sequence[str], fraction: float, *, characters: bool = False
) -> text.Corpus:
    """Scans files, or loads the record of an earlier scan; `fraction` is for validation.

    If `characters` is True, its sample contains every character.
    """
    files = text.text_files(paths)
    with ByteProgress("reading", total_size(files)) as progress:
        return text.scan_corpus(
            files, validation_fraction=fraction, field=config.field, errors=config.errors,
            characters=characters, cache_dir=cache_dir(config), on_progress=progress.update,
        )  # fmt: skip


def require_read_field(config: DataConfig) -> None:
    """Raises ConfigError if data.field is set, and no file has fields."""
    if config.field == DataConfig.field:
        return
    files = text.text_files(config.paths)
    if not any(map(has_records, files)):
        raise ConfigError(
            "data.field is for JSON Lines, Parquet and Arrow files, got field="
            f"{config.field!r} and files of plain text, such as '{files[0]}'; remove it, or let "
            "their names end in .jsonl, .json, .parquet or .arrow"
        )


def held_out(corpus: text.Corpus) -> Split:
    """The two sides of a corpus; DataError if one has no text."""
    for side, found in (("validation", corpus.validation_sample), ("training", corpus.sample)):
        if not "".join(found).strip():
            raise DataError(
                f"{side} must have text, got none of {corpus.num_bytes:,} bytes with "
                f"validation_fraction={corpus.validation_fraction}; change it, or add text"
            )
    return Split(CorpusPart(corpus, False), CorpusPart(corpus, True), report=left_out(corpus))


def two_corpora(train: text.Corpus, validation: text.Corpus) -> Split:
    """All text of two corpora; DataError if they have a file or a text in common."""
    files, others = ({one.content: one.path for one in part.files} for part in (train, validation))
    if copied := files.keys() & others.keys():
        same = min(copied)
        raise DataError(
            "data.validation_paths must hold other text than data.paths, got "
            f"'{others[same]}', a copy of '{files[same]}'; remove it from one"
        )
    if shared := set(train.sample) & set(validation.sample):
        raise DataError(
            "data.validation_paths must hold other text than data.paths, got a text in both, "
            f"which begins {min(shared)[:40]!r}; remove it from one"
        )
    parts = CorpusPart(train, False), CorpusPart(validation, False)
    return Split(*parts, report=left_out(train) + left_out(validation))


def left_out(corpus: text.Corpus) -> tuple[str, ...]:
    """Report line on unreadable records, if any."""
    if not corpus.skipped:
        return ()
    unit = "record" if corpus.skipped == 1 else "records"
    shown = "; ".join(corpus.skipped_shown)
    return (f"left out {corpus.skipped:,} {unit} that cannot be read: {shown}",)


def require_other_files(paths: Sequence[str], validation_paths: Sequence[str]) -> None:
    """Raises DataError, which names the file, if one is both for training and validation."""
    both = (text.text_files(names) for names in (paths, validation_paths))
    files, others = ({real_path(file) for file in part} for part in both)
    if shared := files & others:
        raise DataError(
            "data.validation_paths must be other files than data.paths, got one in both: "
            f"'{min(shared)}'; remove it from one"
        )


def read_token_files(config: DataConfig) -> Split:
    """Maps the token files of a config for training and validation."""
    if not config.paths:
        raise ConfigError(
            "data.source 'tokens' needs data.paths: .bin or .npy files of token ids; for example "
            "--data.paths train.bin --data.validation-paths val.bin"
        )
    files = text.map_token_files(text.text_files(config.paths), dtype=config.dtype)
    first, dtype = files.ranges[0], config.dtype
    report: tuple[str, ...] = ()
    if first.is_raw and dtype == "auto":
        dtype = "uint32" if first.tokens.itemsize == 4 else "uint16"
        report = (f"tokens: '{first.path}' has no header, and is read as {dtype}",)
    if not config.validation_paths:
        train, held_out_files = files.split(config.validation_fraction)
        return Split(TokenPart(train), TokenPart(held_out_files), report=report)
    others = text.text_files(config.validation_paths)
    require_other_files(config.paths, config.validation_paths)
    validation = TokenPart(text.map_token_files(others, dtype=dtype))
    return Split(TokenPart(files), validation, report=report)
