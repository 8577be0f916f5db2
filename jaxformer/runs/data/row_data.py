"""Rows of text as training examples: in memory, or prepared on disk if they are larger."""

import atexit
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxformer import text
from jaxformer.config import DataConfig
from jaxformer.errors import ConfigError
from jaxformer.runs.data.byte_progress import ByteProgress
from jaxformer.runs.data.prepare import cache_dir, fingerprint
from jaxformer.runs.data.stream_text import require_other_files
from jaxformer.runs.data.values import Split
from jaxformer.storage import make_folder

__all__ = ["EncodedRows", "prepared_rows", "split_files", "split_phrasebook", "table_of"]

_IN_MEMORY = 2**26  # bytes of files; larger data is read in pieces
_PACKED, _UNPACKED = (".gz", ".zst", ".parquet"), 5  # ratio of text to file size
_LAYOUT = "3"  # version of the folder's layout; part of its name
_ABANDONED = 86400.0  # seconds; private caches older than this are deleted; live mappings survive


class EncodedRows(NamedTuple):
    """Rows of text as arrays.

    Args:
        examples: for each row, arrays with one axis or none, including "tokens" and "labels".
        rows: the rows that they were made from; a sample if they are prepared on disk.
        counts: counts of the rows read and dropped so far.
        folder: folder of prepared rows; None if they are in memory.
    """

    examples: text.ExampleArrays
    rows: text.Table
    counts: text.RowCounts
    folder: pathlib.Path | None = None


def table_of(rows: text.Table | text.RowCorpus) -> Any:
    """The rows; for a corpus, which is not in memory, a sample."""
    return rows.sample if isinstance(rows, text.RowCorpus) else rows


def split_files(
    table: type[text.Table], config: DataConfig, *, characters: bool, **options: Any
) -> Split:
    """Reads the files of a config, and splits off rows for validation.

    If the files have more than 64 MiB, they are scanned, and their training rows stay on disk.
    """
    sizes = [path.stat().st_size for path in map(pathlib.Path, config.paths) if path.is_file()]
    is_packed = any(path.lower().endswith(_PACKED) for path in config.paths)
    validation = counts = None
    if config.validation_paths:
        require_other_files(config.paths, config.validation_paths)
        validation, counts = table.read(config.validation_paths, **options)
    if sum(sizes) * (_UNPACKED if is_packed else 1) <= _IN_MEMORY:
        train, train_counts = table.read(config.paths, **options)
        if validation is not None:
            return Split(train, validation, train_counts, counts)
        return Split(*train.split(config.validation_fraction, train_counts))
    fraction = 0 if config.validation_paths else config.validation_fraction
    with ByteProgress("reading", sum(sizes)) as progress:
        corpus = text.scan_rows(
            table, config.paths, validation_fraction=fraction, characters=characters,
            cache_dir=cache_dir(config), on_progress=progress.update, **options,
        )  # fmt: skip
    if validation is None:
        if corpus.validation is None:
            raise ConfigError(
                f"validation must have {table.unit}, got none of {corpus.counts.kept:,} with "
                f"validation_fraction={fraction}; raise it"
            )
        validation = corpus.validation
    return Split(corpus, validation, corpus.counts, counts)


def split_phrasebook(rows: Callable[[Sequence[text.Phrase]], text.Table]) -> Split:
    """Splits the phrasebook into training and validation tables, made by `rows`."""
    book = text.load_phrasebook()
    return Split(rows(book.train), rows(book.validation))


def prepared_rows(
    corpus: text.RowCorpus,
    encode: Callable[[Any, text.RowCounts], Any],
    key: Sequence[str] | None,
    config: DataConfig,
) -> EncodedRows:
    """Encodes the rows of a corpus, or finds their arrays in the cache.

    `key` is everything that `encode` depends on; if it is None, only this process uses the arrays.

    Raises:
        ConfigError: there is no folder for the arrays.
        DataError: the rows cannot be encoded, or none is left.
        StorageError: the arrays cannot be written.
    """
    cache = cache_dir(config)
    if cache is None:
        raise ConfigError(
            f"the tokens of {corpus.num_bytes:,} bytes of {corpus.table.unit} need a folder, and "
            "there is no home folder; set data.cache"
        )
    parent = cache / "corpora"
    if key is None:
        make_folder(parent)
        for old in parent.glob("own-*"):
            if time.time() - old.stat().st_mtime > _ABANDONED:
                shutil.rmtree(old, ignore_errors=True)
        folder = pathlib.Path(tempfile.mkdtemp(prefix="own-", dir=parent))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    else:
        folder = parent / fingerprint((_LAYOUT, corpus.fingerprint), key)[:32]
    with ByteProgress("tokenizing", corpus.num_bytes) as progress:
        found = text.prepare_rows(corpus, encode, folder, on_progress=progress.update)
    return EncodedRows(found.examples, corpus.sample, found.counts, folder)
