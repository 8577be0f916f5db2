"""Text of a run, for training or for validation: a side of a corpus, or token files."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxformer import text
from jaxformer.config import DataConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.runs.data.byte_progress import ByteProgress, total_size
from jaxformer.runs.data.prepare import cache_dir
from jaxformer.runs.data.values import Split
from jaxformer.storage import real_path
from jaxformer.text.sources.record_files import has_records


@dataclasses.dataclass(frozen=True)
class TextPart:
    """One side of a corpus, before it is encoded."""

    corpus: text.Corpus
    is_validation: bool = False

    @property
    def texts(self) -> Sequence[str]:
        """Its pieces, or a sample of them."""
        documents = self.corpus.validation if self.is_validation else self.corpus.train
        return () if documents is None else documents.texts

    @property
    def is_sampled(self) -> bool:
        """Whether `texts` is only a sample."""
        return self.corpus.is_sampled

    def encode(self, tokenizer: text.Tokenizer, config: DataConfig) -> text.TokenStream:
        """Encodes the text, or finds its tokens in the cache.

        Raises:
            DataError: the text is too short or cannot be encoded.
            StorageError: the cache cannot be written.
        """
        with ByteProgress("tokenizing", self.corpus.num_bytes) as progress:
            prepared = text.prepare_documents(
                self.corpus, tokenizer, cache_dir(config), on_progress=progress.update
            )
        stream = prepared.validation if self.is_validation else prepared.train
        if stream is None:
            raise DataError("validation must have text, got none; raise validation_fraction")
        return stream


@dataclasses.dataclass(frozen=True)
class TokenPart:
    """Tokens of files, which were encoded elsewhere."""

    files: text.TokenFiles
    texts: Sequence[str] = ()
    is_sampled: bool = False

    def encode(self, tokenizer: text.Tokenizer, config: DataConfig) -> text.TokenStream:
        """Checks the tokens against the tokenizer's vocabulary."""
        if config.packing == "documents" and tokenizer.end_of_text is None:
            raise ConfigError(
                "data.packing 'documents' of token files needs the token that ends each document, "
                "got a tokenizer without an end of text; set tokenizer.end_of_text, or "
                "data.packing to 'windows'"
            )
        size = sum(one.tokens.nbytes for one in self.files.ranges)
        with ByteProgress("checking tokens", size) as progress:
            return text.check_token_files(
                self.files, tokenizer, cache_dir(config), on_progress=progress.update
            )


def named_parts(data: Any) -> Mapping[str, TextPart | TokenPart]:
    """The parts by name of their source; a single part, or documents, have the name ""."""
    if isinstance(data, Mapping):
        return data
    is_part = isinstance(data, TextPart | TokenPart)
    return {"": data if is_part else TextPart(text.Corpus.of(text.Documents.of(data)))}


def read_files(
    config: DataConfig, paths: Sequence[str], fraction: float, *, characters: bool = False
) -> text.Corpus:
    """Scans files, or loads the record of an earlier scan; `fraction` is for validation.

    If `characters` is True, its sample contains every character.
    """
    files = text.text_files(paths)
    with ByteProgress("reading", total_size(files)) as progress:
        return text.scan_corpus(
            text.Documents, files, validation_fraction=fraction, field=config.field,
            errors=config.errors,
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
    """The two sides of a corpus."""
    return Split(TextPart(corpus), TextPart(corpus, True), report=left_out(corpus))


def two_corpora(train: text.Corpus, validation: text.Corpus) -> Split:
    """All text of two corpora; DataError if they have a text in common."""
    if shared := set(train.train.texts) & set(validation.train.texts):
        raise DataError(
            "data.validation_paths must hold other text than data.paths, got a text in both, "
            f"which begins {min(shared)[:40]!r}; remove it from one"
        )
    report = left_out(train) + left_out(validation)
    return Split(TextPart(train), TextPart(validation), report=report)


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
