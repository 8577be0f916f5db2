"""Text of a run before it is encoded: documents or token files, for training and validation."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from jaxformer import text
from jaxformer.config import DataConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.runs.data.byte_progress import ByteProgress
from jaxformer.runs.data.prepare import cache_dir
from jaxformer.runs.data.reading import left_out, require_other_files, scan_files
from jaxformer.text.sources.documents import BUILT_IN, without_repeats
from jaxformer.text.sources.record_files import has_records


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
        """Lines on what was left out."""
        corpora = (self.corpus,) if self.held_out is None else (self.corpus, self.held_out)
        return tuple(line for corpus in corpora for line in left_out(corpus))

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

    files: text.TokenFiles
    held_out: text.TokenFiles
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


def encode_documents(
    corpus: text.Corpus, tokenizer: text.Tokenizer, config: DataConfig
) -> text.PreparedDocuments:
    """Encodes documents, or finds their tokens in the cache."""
    with ByteProgress("tokenizing", corpus.num_bytes) as progress:
        return text.prepare_documents(
            corpus, tokenizer, cache_dir(config), on_progress=progress.update
        )


def check_tokens(
    files: text.TokenFiles, tokenizer: text.Tokenizer, config: DataConfig
) -> text.TokenStream:
    """Checks the tokens of files against the tokenizer's vocabulary."""
    if config.packing == "documents" and tokenizer.end_of_text is None:
        raise ConfigError(
            "data.packing 'documents' of token files needs the token that ends each document, "
            "got a tokenizer without an end of text; set tokenizer.end_of_text, or "
            "data.packing to 'windows'"
        )
    with ByteProgress("checking tokens", sum(part.tokens.nbytes for part in files.ranges)) as bar:
        return text.check_token_files(files, tokenizer, cache_dir(config), on_progress=bar.update)


def read_sources(config: DataConfig, *, characters: bool) -> Sources:
    """Reads the text of a config; `characters` is as for `scan_files`."""
    if config.source == "tokens":
        return {"": _read_tokens(config)}
    if config.source in BUILT_IN:
        return {"": _read_built_in(config, characters)}
    if not config.mixture:
        return {"": _read_documents(config, characters)}
    sources = {}
    for source in config.mixture:
        part = dataclasses.replace(config, mixture=(), paths=source.paths, field=source.field)
        with naming_source(source.name):
            sources[source.name] = _read_documents(part, characters)
    return sources


@contextlib.contextmanager
def naming_source(name: str) -> Iterator[None]:
    """Adds the name of the mixture's source, if it has one, to errors on its data."""
    try:
        yield
    except DataError as error:
        if not name:
            raise
        raise DataError(f"source {name!r} of data.mixture: {error}") from None


def _read_documents(config: DataConfig, characters: bool) -> DocumentText:
    """Reads text files, and holds out a share of the text if no others are for validation."""
    if not config.paths:
        raise ConfigError(
            "data.source 'files' needs data.paths: text files or globs; for example "
            "--data.paths my_text.txt"
        )
    _require_read_field(config)
    if not config.validation_paths:
        return DocumentText(_scan(config, config.paths, config.validation_fraction, characters))
    require_other_files(config.paths, config.validation_paths)
    train = _scan(config, config.paths, 0, characters)
    validation = _scan(config, config.validation_paths, 0, characters)
    if shared := set(train.train.texts) & set(validation.train.texts):
        raise DataError(
            "data.validation_paths must hold other text than data.paths, got a text in both, "
            f"which begins {min(shared)[:40]!r}; remove it from one"
        )
    return DocumentText(train, validation)


def _scan(
    config: DataConfig, paths: Sequence[str], fraction: float, characters: bool
) -> text.Corpus:
    return scan_files(
        text.Documents, config, paths, fraction, characters=characters, field=config.field
    )


def _read_built_in(config: DataConfig, characters: bool) -> DocumentText:
    """Reads documents that need no files, without the paragraphs that they repeat."""
    documents = text.Documents.of(without_repeats(BUILT_IN[config.source]()))
    if not config.validation_paths:
        return DocumentText(text.Corpus.of(documents, config.validation_fraction))
    validation = _scan(config, config.validation_paths, 0, characters)
    return DocumentText(text.Corpus.of(documents), validation)


def _require_read_field(config: DataConfig) -> None:
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
    require_other_files(config.paths, config.validation_paths)
    held_out = text.map_token_files(text.text_files(config.validation_paths), dtype=dtype)
    return TokenText(files, held_out, report=report)
