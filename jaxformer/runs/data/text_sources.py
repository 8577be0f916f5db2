"""Text of a run before it is encoded: documents or token files, for training and validation."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from jaxformer import text
from jaxformer.config import DataConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.runs.data.prepare import cache_dir
from jaxformer.storage import real_path
from jaxformer.text.sources.files import file_states
from jaxformer.text.sources.token_files import TokenFiles, check_token_files
from jaxformer.text.tables.documents import BUILT_IN, without_repeats
from jaxformer.training.parallel import is_first_process


@contextlib.contextmanager
def byte_progress(doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields a function that shows in a terminal how many bytes are done."""
    console = Console(file=sys.stderr, quiet=not is_first_process())
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True,
                  disable=not console.is_terminal) as bar:  # fmt: skip
        task = bar.add_task(doing, total=total)
        yield lambda done: bar.update(task, completed=done)


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
            table, paths, validation_fraction=fraction, cache_dir=cache_dir(config),
            on_progress=update, **options,
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


class TextSource(NamedTuple):
    """Text for training and validation: documents, or token files, which have no texts.

    Args:
        encode: function of tokenizer and config that returns the streams of both sides.
        train_texts: the training text in pieces, or a sample of them.
        validation_texts: the validation text in pieces, or a sample of them.
        report: lines on the source that are logged.
    """

    encode: Callable[[text.Tokenizer, DataConfig], tuple[text.TokenStream, text.TokenStream]]
    train_texts: Sequence[str] = ()
    validation_texts: Sequence[str] = ()
    report: tuple[str, ...] = ()


Sources = Mapping[str, TextSource]
"""The text of a run by source: that of a mixture by name, a single one under ""."""


def document_source(corpus: text.Corpus, held_out: text.Corpus | None = None) -> TextSource:
    """Documents: a corpus that is split, or one for training and one for validation."""
    validation = corpus.validation if held_out is None else held_out.train
    assert validation is not None  # a corpus that is split has both sides

    def encode(
        tokenizer: text.Tokenizer, config: DataConfig
    ) -> tuple[text.TokenStream, text.TokenStream]:
        train, validation = encode_documents(corpus, tokenizer, config)
        if held_out is not None:
            validation, _ = encode_documents(held_out, tokenizer, config)
        assert validation is not None
        return train, validation

    corpora = (corpus,) if held_out is None else (corpus, held_out)
    report = tuple(str(part.counts) for part in corpora if part.counts.dropped)
    return TextSource(encode, corpus.train.texts, validation.texts, report)


def texts_of(sources: Sources) -> tuple[list[str], list[str]]:
    """Training and validation texts of all sources, or samples of them."""
    train = [piece for source in sources.values() for piece in source.train_texts]
    return train, [piece for source in sources.values() for piece in source.validation_texts]


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
    return check_token_files(files, tokenizer, cache_dir(config))


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


def _read_documents(config: DataConfig) -> TextSource:
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
        corpus = scan_files(text.Documents, config, config.paths, fraction, field=config.field)
    if not config.validation_paths:
        return document_source(corpus)
    paths = config.validation_paths
    return document_source(corpus, scan_files(text.Documents, config, paths, field=config.field))


def _read_tokens(config: DataConfig) -> TextSource:
    """Maps token files for training and validation."""
    if not (config.paths and config.validation_paths):
        raise ConfigError(
            "data.source 'tokens' needs data.paths and data.validation_paths: .bin or .npy files "
            "of token ids; for example --data.paths train.bin --data.validation-paths val.bin"
        )
    require_other_files(config)
    files, held_out = (
        text.map_token_files(text.text_files(paths))
        for paths in (config.paths, config.validation_paths)
    )

    def encode(
        tokenizer: text.Tokenizer, config: DataConfig
    ) -> tuple[text.TokenStream, text.TokenStream]:
        return check_tokens(files, tokenizer, config), check_tokens(held_out, tokenizer, config)

    return TextSource(encode)
