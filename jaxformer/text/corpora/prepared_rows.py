"""Rows as training examples: encoded, those that do not fit dropped, and kept in a store."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxformer.errors import DataError
from jaxformer.text.corpora.corpus import Corpus
from jaxformer.text.corpora.prepared import prepared_store
from jaxformer.text.sources.counts import Counts
from jaxformer.text.sources.records import Row
from jaxformer.text.store.ragged import Example, ExampleArrays, example_length
from jaxformer.text.store.store import Arrays, Record
from jaxformer.text.tables.table import Table, require_same_length

_LARGEST = 2**23  # bytes of text in a part; its examples take ten times that

Encode = Callable[[Any], Sequence[Example | None]]
"""Rows to the example of each; None for a row without tokens."""


class FittingRows(NamedTuple):
    """Examples that fit into a model, the indices of their rows, and the counts of all rows."""

    examples: list[Example]
    indices: list[int]
    counts: Counts


def fitting_rows(rows: Table, examples: Sequence[Example | None], max_len: int) -> FittingRows:
    """Drops rows without tokens, whose example is None, and examples that are too long.

    The length of an example is the size of its longest array.

    Args:
        rows: the rows that were encoded.
        examples: the example of each row: arrays with one axis or none.
        max_len: largest length that is kept.

    Returns:
        The `examples` that fit, perhaps none, the `indices` of their rows, and the `counts` of all
        rows.

    Raises:
        DataError: there are not as many examples as rows.

    Example:
        >>> import numpy as np
        >>> from jaxformer.text import Labelled
        >>> examples = [{"labels": np.arange(9)}, None, {"labels": np.arange(2)}]
        >>> fitting = fitting_rows(Labelled(tuple("abc"), tuple("xyz")), examples, 4)
        >>> fitting.indices
        [2]
        >>> print(fitting.counts)
        3 texts read, 1 kept; 1 empty (line 2), 1 too long (line 1)
    """
    require_same_length(rows=rows.lines, examples=examples)
    counts, fitting = Counts(rows.unit, len(rows)), dict[int, Example]()
    for index, (line, example) in enumerate(zip(rows.lines, examples, strict=True)):
        if example is None:
            counts.drop("empty", line)
        elif example_length(example) > max_len:
            counts.drop("too long", line)
        else:
            fitting[index] = example
    return FittingRows(list(fitting.values()), list(fitting), counts)


def no_rows_error(counts: Counts, max_len: int) -> DataError:
    """The error that no row fits."""
    return DataError(
        f"at least one of the {counts.unit} must have 1 to max_len={max_len} tokens, got none: "
        f"{counts}; raise max_len, or use another tokenizer"
    )


def prepare_rows(
    corpus: Corpus,
    encode: Encode,
    max_len: int,
    cache_dir: pathlib.Path | None,
    *key: object,
    on_progress: Callable[[int], None] = lambda size: None,
) -> tuple[ExampleArrays, Counts]:
    """Encodes the training rows of a corpus into files of the cache, or maps existing files.

    `key` is all that `encode` depends on. Without a cache, the examples stay in memory.
    `on_progress` is called with the number of bytes of text done so far. Raises DataError if no row
    is left.
    """

    def encoded(parts: list[tuple[Row, bool]]) -> tuple[Arrays, Record]:
        table = corpus.table.of_rows(row for row, is_validation in parts if not is_validation)
        if table is None:
            return {}, {"counts": dataclasses.asdict(Counts(corpus.table.unit))}
        fitting = fitting_rows(table, encode(table), max_len)
        arrays = ExampleArrays.of(fitting.examples).arrays if fitting.examples else {}
        dropped = dataclasses.replace(fitting.counts, read=0)  # the corpus has counted them
        return arrays, {"counts": dataclasses.asdict(dropped)}

    store = prepared_store(
        corpus, encoded, cache_dir, max_len, *key,
        largest=_LARGEST, on_progress=on_progress,
    )  # fmt: skip
    counts = Counts(corpus.table.unit)
    for part in (corpus.counts, *(Counts(**record["counts"]) for record in store.records)):
        counts.add(part)
    if not store.arrays:
        raise no_rows_error(counts, max_len)
    return ExampleArrays(store.arrays), counts
