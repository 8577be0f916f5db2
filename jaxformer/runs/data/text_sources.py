"""Text of a run before it is encoded: documents or token files, for training and validation."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxformer import text
from jaxformer.config import DataConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.runs.data.byte_progress import byte_progress
from jaxformer.runs.data.prepare import cache_dir
from jaxformer.storage import real_path
from jaxformer.text.sources.checked_tokens import check_token_files
from jaxformer.text.sources.documents import BUILT_IN, without_repeats
from jaxformer.text.sources.files import file_states
from jaxformer.text.sources.token_files import TokenFiles


def scan_files(
    table: type[text.Table],
    config: DataConfig,
    paths: Sequence[str],
    fraction: float = 0,
    **options: Any,
) -> text.Corpus:
    """Scans files, or loads an earlier scan."""
    files = [path for group in table.groups(paths) for path in group]
    total = sum(state.size for state in file_states(files))
    with byte_progress("reading", total) as update:
        return text.scan_corpus(
            table, paths, validation_fraction=fraction, errors=config.errors,
            cache_dir=cache_dir(config), on_progress=update, **options,
        )  # fmt: skip


def require_other_files(config: DataConfig) -> None:
    """Raises DataError, which names the file, if one is both for training and validation."""
    train, validation = (
        {real_path(file) for file in text.text_files(paths)} if paths else set()
        for paths in (config.paths, config.validation_paths)
    )
    if shared := train & validation:
        raise DataError(
            "data.validation_paths must be other files than data.paths, got one in both: "
            f"'{min(shared)}'; remove it from one"
        )


@dataclasses.dataclass(frozen=True)
class DocumentText:
    """Documents: those of a corpus that is split, or of one for training and one for validation."""

    corpus: text.Corpus
    held_out: text.Corpus | None = None

    @property
    def train_texts(self) -> Sequence[str]:
        """The training text in pieces, or a sample of them."""
        return self.corpus.train.texts

    @property
    def validation_texts(self) -> Sequence[str]:
        """The validation text in pieces, or a sample of them."""
        rows = self.corpus.validation if self.held_out is None else self.held_out.train
        return () if rows is None else rows.texts

    @property
    def is_sampled(self) -> bool:
        """Whether the texts are only samples."""
        return self.corpus.is_sampled

    @property
    def report(self) -> tuple[str, ...]:
        """Lines on documents that were left out."""
        corpora = (self.corpus,) if self.held_out is None else (self.corpus, self.held_out)
        return tuple(str(corpus.counts) for corpus in corpora if corpus.counts.dropped)

    def encode(
        self, tokenizer: text.Tokenizer, config: DataConfig
    ) -> tuple[text.TokenStream, text.TokenStream]:
        """Encodes the text for training and for validation, or finds its tokens in the cache."""
        train, validation = encode_documents(self.corpus, tokenizer, config)
        if self.held_out is not None:
            validation, _ = encode_documents(self.held_out, tokenizer, config)
        if validation is None:
            raise DataError("validation must have text, got none; raise validation_fraction")
        return train, validation


@dataclasses.dataclass(frozen=True)
class TokenText:
    """Token files, which were encoded elsewhere."""

    files: TokenFiles
    held_out: TokenFiles
    report: tuple[str, ...] = ()
    train_texts: Sequence[str] = ()
    validation_texts: Sequence[str] = ()
    is_sampled: bool = False

    def encode(
        self, tokenizer: text.Tokenizer, config: DataConfig
    ) -> tuple[text.TokenStream, text.TokenStream]:
        """Checks the tokens against the tokenizer's vocabulary."""
        train, validation = (
            check_tokens(files, tokenizer, config) for files in (self.files, self.held_out)
        )
        return train, validation


Sources = Mapping[str, DocumentText | TokenText]
"""The text of a run by source: that of a mixture by name, a single one under ""."""


def train_texts(sources: Sources) -> list[str]:
    """The training texts, or samples of them, of all sources."""
    return [piece for source in sources.values() for piece in source.train_texts]


def validation_texts(sources: Sources) -> list[str]:
    """The validation texts, or samples of them, of all sources."""
    return [piece for source in sources.values() for piece in source.validation_texts]


def encode_documents(
    corpus: text.Corpus, tokenizer: text.Tokenizer, config: DataConfig
) -> tuple[text.TokenStream, text.TokenStream | None]:
    """Encodes documents, or finds their tokens in the cache."""
    with byte_progress("tokenizing", corpus.num_bytes) as update:
        return text.prepare_documents(corpus, tokenizer, cache_dir(config), on_progress=update)


def check_tokens(
    files: TokenFiles, tokenizer: text.Tokenizer, config: DataConfig
) -> text.TokenStream:
    """Checks the tokens of files against the tokenizer's vocabulary."""
    if config.packing == "documents" and tokenizer.end_of_text is None:
        raise ConfigError(
            "data.packing 'documents' of token files needs the token that ends each document, "
            "got a tokenizer without an end of text; set tokenizer.end_of_text, or "
            "data.packing to 'windows'"
        )
    total = sum(part.tokens.nbytes for part in files.ranges)
    with byte_progress("checking tokens", total) as update:
        return check_token_files(files, tokenizer, cache_dir(config), on_progress=update)


def read_sources(config: DataConfig) -> Sources:
    """Reads the text of a config."""
    if config.source == "tokens":
        return {"": _read_tokens(config)}
    if not config.mixture:
        return {"": _read_documents(config)}
    parts = {
        source.name: dataclasses.replace(config, mixture=(), paths=source.paths, field=source.field)
        for source in config.mixture
    }
    return {name: _read_documents(part) for name, part in parts.items()}


def _read_documents(config: DataConfig) -> DocumentText:
    """Documents of text files, or built-in ones without the paragraphs that they repeat."""
    fraction = 0 if config.validation_paths else config.validation_fraction
    if config.source in BUILT_IN:
        documents = text.Documents.of(without_repeats(BUILT_IN[config.source]()))
        corpus = text.Corpus.of(documents, fraction)
    elif not config.paths:
        raise ConfigError(
            "data.source 'files' needs data.paths: text files or globs; for example "
            "--data.paths my_text.txt"
        )
    else:
        require_other_files(config)
        corpus = _scan(config, config.paths, fraction)
    if not config.validation_paths:
        return DocumentText(corpus)
    return DocumentText(corpus, _scan(config, config.validation_paths))


def _scan(config: DataConfig, paths: Sequence[str], fraction: float = 0) -> text.Corpus:
    return scan_files(text.Documents, config, paths, fraction, field=config.field)


def _read_tokens(config: DataConfig) -> TokenText:
    """Maps token files for training and validation."""
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
        return TokenText(*files.split(config.validation_fraction), report=report)
    require_other_files(config)
    held_out = text.map_token_files(text.text_files(config.validation_paths), dtype=dtype)
    return TokenText(files, held_out, report=report)
