"""Rows of text as training examples, in memory or in files."""

import atexit
import dataclasses
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxformer import text
from jaxformer.config import DataConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.runs.data.byte_progress import ByteProgress, total_size
from jaxformer.runs.data.prepare import cache_dir, fingerprint
from jaxformer.runs.data.text_parts import require_other_files
from jaxformer.runs.data.values import Split
from jaxformer.storage import make_folder
from jaxformer.text.store.ragged import Example
from jaxformer.text.tables.fitting import no_rows_error

_MUCH = 2**26  # bytes of text; the examples of less stay in memory
_LAYOUT = "4"  # version of the folder's layout; part of its name
_ABANDONED = 86400.0  # seconds; private caches older than this are deleted; live mappings survive

Encode = Callable[[Any], Sequence[Example | None]]
"""`TableTask.encode_rows`."""


class EncodedRows(NamedTuple):
    """Rows of text as arrays.

    Args:
        examples: for each row, arrays with one axis or none, including "tokens" and "labels".
        rows: the rows, or a sample of them.
        counts: counts of the rows read and dropped so far.
        content: texts that identify the rows, such as the fingerprint of their files.
        is_sampled: whether `rows` is only a sample.
        folder: folder of the examples; None if they are in memory.
    """

    examples: text.ExampleArrays
    rows: text.Table
    counts: text.RowCounts
    content: Sequence[Sequence[str]] = ()
    is_sampled: bool = False
    folder: pathlib.Path | None = None


@dataclasses.dataclass(frozen=True)
class TableRows:
    """Rows in memory."""

    rows: Any
    counts: text.RowCounts
    is_sampled: bool = False

    def distinct(self, column: str) -> Sequence[str]:
        """The texts of a column, some of them repeated."""
        texts: Sequence[str] = getattr(self.rows, column)
        return texts

    def encode(
        self, encode: Encode, max_len: int, key: Sequence[str] | None, config: DataConfig
    ) -> EncodedRows:
        """Encodes the rows."""
        found = text.fitting_rows(self.rows, encode(self.rows), max_len, self.counts)
        if not found.examples:
            raise no_rows_error(found.counts, max_len, found.shortest)
        kept = self.rows.take(found.indices)
        return EncodedRows(text.ExampleArrays.of(found.examples), kept, found.counts, kept.columns)


@dataclasses.dataclass(frozen=True)
class FileRows:
    """The training rows of files."""

    corpus: text.RowCorpus

    @property
    def rows(self) -> Any:
        """The rows, or a sample of them."""
        return self.corpus.sample

    @property
    def is_sampled(self) -> bool:
        """Whether `rows` is only a sample."""
        return self.corpus.is_sampled

    def distinct(self, column: str) -> Sequence[str] | None:
        """The distinct texts of a column of `Table.categories`; None if they are too many."""
        return self.corpus.distinct[column]

    def encode(
        self, encode: Encode, max_len: int, key: Sequence[str] | None, config: DataConfig
    ) -> EncodedRows:
        """Prepares the arrays in the cache, or in memory if they are small.

        `key` is everything that `encode` depends on; if None, only this process uses the arrays.
        """
        corpus, content, folder = self.corpus, [(self.corpus.fingerprint,)], None
        if corpus.num_bytes > _MUCH:
            folder = _folder(corpus, max_len, key, cache_dir(config))
        with ByteProgress("tokenizing", corpus.num_bytes) as progress:
            update = progress.update
            found = text.prepare_rows(corpus, encode, max_len, folder, on_progress=update)
        rows = corpus.sample
        if found.lines is not None and not corpus.is_sampled:
            rows = rows.take(i for i, line in enumerate(rows.lines) if line in found.lines)
        return EncodedRows(found.examples, rows, found.counts, content, corpus.is_sampled, folder)


RowPart = TableRows | FileRows
"""Rows for training or for validation, before they are encoded."""


def _folder(
    corpus: text.RowCorpus, max_len: int, key: Sequence[str] | None, cache: pathlib.Path | None
) -> pathlib.Path:
    """Folder of the arrays of a corpus; a private one, removed at the end, if there is no key."""
    if cache is None:
        raise ConfigError(
            f"the tokens of {corpus.num_bytes:,} bytes of {corpus.table.unit} need a folder, and "
            "there is no home folder; set data.cache"
        )
    parent = cache / "corpora"
    if key is not None:
        rule = repr((*corpus.holdout, max_len))
        return parent / fingerprint((_LAYOUT, corpus.fingerprint, rule), key)[:32]
    make_folder(parent)
    for old in parent.glob("own-*"):
        if time.time() - old.stat().st_mtime > _ABANDONED:
            shutil.rmtree(old, ignore_errors=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="own-", dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def row_part(rows: text.Table | text.RowCorpus, counts: text.RowCounts | None = None) -> RowPart:
    """The rows of a `Split` as a part; `counts` are those of a table, if rows were dropped."""
    if isinstance(rows, text.RowCorpus):
        return FileRows(rows)
    return TableRows(rows, counts or text.RowCounts(rows.unit, len(rows)))


def table_of(rows: text.Table | text.RowCorpus) -> Any:
    """The rows, or a sample of them."""
    return row_part(rows).rows


def split_files(
    table: type[text.Table], config: DataConfig, *, characters: bool, **options: Any
) -> Split:
    """Scans the files of a config, and holds out rows if no other files are for validation."""
    validation = counts = None
    if config.validation_paths:
        require_other_files(config.paths, config.validation_paths)
        validation, counts = table.read(config.validation_paths, **options)
    fraction = 0 if config.validation_paths else config.validation_fraction
    with ByteProgress("reading", total_size(config.paths)) as progress:
        corpus = text.scan_rows(
            table, config.paths, validation_fraction=fraction, characters=characters,
            cache_dir=cache_dir(config), on_progress=progress.update, **options,
        )  # fmt: skip
    if validation is None:
        validation = corpus.validation
    if validation is None:
        raise DataError(
            f"both sides of a split must have {table.unit}, got an empty validation side from "
            f"{corpus.counts.kept:,} with validation_fraction={fraction}; add data, or raise it"
        )
    return Split(corpus, validation, corpus.counts, counts)


def split_phrasebook(rows: Callable[[Sequence[text.Phrase]], text.Table]) -> Split:
    """Splits the phrasebook into training and validation tables, made by `rows`."""
    book = text.load_phrasebook()
    return Split(rows(book.train), rows(book.validation))
