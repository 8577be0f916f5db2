"""Rows of text as training examples."""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxformer import text
from jaxformer.config import DataConfig
from jaxformer.runs.data.byte_progress import ByteProgress
from jaxformer.runs.data.prepare import cache_dir, fingerprint
from jaxformer.runs.data.reading import left_out, require_other_files, scan_files
from jaxformer.runs.data.values import Split
from jaxformer.text.corpora.prepared_rows import Encode, no_rows_error, prepare_rows

_LAYOUT = "5"  # version of the folder's layout; part of its name

_LOG = logging.getLogger(__name__)


class EncodedRows(NamedTuple):
    """Arrays of rows, with "tokens" and "labels"; the rows or a sample; and counts so far."""

    examples: text.ExampleArrays
    rows: text.Table  # in training data, with those that were dropped
    counts: text.Counts
    is_sampled: bool = False  # whether `rows` is only a sample


def encode_corpus(
    corpus: text.Corpus,
    encode: Encode,
    max_len: int,
    key: Sequence[str] | None,
    config: DataConfig,
) -> EncodedRows:
    """Prepares training rows in the cache; `key` is all that `encode` depends on."""
    cache, folder = cache_dir(config), None
    if cache is not None and key is not None:  # otherwise the arrays stay in memory
        rule = repr((*corpus.holdout, max_len))
        name = fingerprint((_LAYOUT, corpus.fingerprint, rule), key)[:32]
        folder = cache / "corpora" / name
    with ByteProgress("tokenizing", corpus.num_bytes) as progress:
        examples, counts = prepare_rows(
            corpus, encode, max_len, folder, on_progress=progress.update
        )
    return EncodedRows(examples, corpus.train, counts, corpus.is_sampled)


def encode_table(
    rows: text.Table, counts: text.Counts | None, encode: Encode, max_len: int
) -> EncodedRows:
    """Encodes validation rows, which are in memory; `counts` are None if no row was dropped."""
    fitting = text.fitting_rows(rows, encode(rows), max_len)
    if counts is not None:  # the rows that were dropped before
        fitting.counts.add(dataclasses.replace(counts, read=counts.read - len(rows)))
    if not fitting.examples:
        raise no_rows_error(fitting.counts, max_len, fitting.shortest)
    examples = text.ExampleArrays.of(fitting.examples)
    return EncodedRows(examples, rows.take(fitting.indices), fitting.counts)


def split_files(table: type[text.Table], config: DataConfig, *, characters: bool) -> Split:
    """Scans the files of a config, and holds out rows if no other files are for validation."""
    validation = counts = None
    if config.validation_paths:
        require_other_files(config.paths, config.validation_paths)
        validation, counts = table.read(config.validation_paths, errors=config.errors)
    fraction = 0 if config.validation_paths else config.validation_fraction
    corpus = scan_files(table, config, config.paths, fraction, characters=characters)
    validation = corpus.validation if validation is None else validation
    for line in left_out(corpus):
        _LOG.info(line)
    return Split(corpus, validation, counts)


def split_phrasebook(rows: Callable[[Sequence[text.Phrase]], text.Table]) -> Split:
    """Splits the phrasebook into training and validation tables, made by `rows`."""
    book = text.load_phrasebook()
    return Split(text.Corpus.of(rows(book.train)), rows(book.validation))
