"""Rows of text as training examples."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from jaxformer import text
from jaxformer.config import DataConfig
from jaxformer.runs.data.byte_progress import byte_progress
from jaxformer.runs.data.prepare import cache_dir
from jaxformer.runs.data.text_sources import require_other_files, scan_files
from jaxformer.runs.data.values import Split
from jaxformer.text.corpora.prepared_rows import Encode, no_rows_error, prepare_rows
from jaxformer.text.store.ragged import ExampleArrays


class EncodedRows(NamedTuple):
    """Arrays of rows, with "tokens" and "labels"; the rows or a sample; and counts so far."""

    examples: ExampleArrays
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
    """Prepares training rows; `key` is all that `encode` depends on, None if it is unknown."""
    cache = None if key is None else cache_dir(config)
    with byte_progress("tokenizing", corpus.num_bytes) as update:
        examples, counts = prepare_rows(
            corpus, encode, max_len, cache, *(key or ()), on_progress=update
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
        raise no_rows_error(fitting.counts, max_len)
    examples = ExampleArrays.of(fitting.examples)
    return EncodedRows(examples, rows.take(fitting.indices), fitting.counts)


def split_files(table: type[text.Table], config: DataConfig) -> Split:
    """Scans the files of a config, and holds out rows if no other files are for validation."""
    if not config.validation_paths:
        corpus = scan_files(table, config, config.paths, config.validation_fraction)
        return Split(corpus, corpus.validation)
    require_other_files(config)
    validation, counts = table.read(config.validation_paths, errors=config.errors)
    return Split(scan_files(table, config, config.paths), validation, counts)
