"""Rows as training examples: encoded, those that do not fit dropped, and kept in a store."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxformer.errors import DataError
from jaxformer.text.corpora.corpus import Corpus
from jaxformer.text.corpora.prepared import prepared_store
from jaxformer.text.store.ragged import Example, ExampleArrays, example_length
from jaxformer.text.store.store import Arrays, Record
from jaxformer.text.tables.counts import Counts
from jaxformer.text.tables.table import Row, Table, require_same_length

_LARGEST = 2**23  # bytes of text in a part; its examples take ten times that

Encode = Callable[[Any], Sequence[Example | None]]
"""Rows to the example of each; None for a row without tokens."""


class FittingRows(NamedTuple):
    """Encoded rows of a table that fit into a model.

    Args:
        examples: the examples that fit.
        indices: indices of their rows.
        counts: counts of all rows.
        shortest: length of the shortest example that was too long; None if none was.
    """

    examples: list[Example]
    indices: list[int]
    counts: Counts
    shortest: int | None


def fitting_rows(rows: Table, examples: Sequence[Example | None], max_len: int) -> FittingRows:
    """Drops rows without tokens, whose example is None, and examples that are too long.

    The length of an example is the size of its longest array.

    Args:
        rows: the rows that were encoded.
        examples: the example of each row: arrays with one axis or none.
        max_len: largest length that is kept.

    Returns:
        The examples that are left, perhaps none, and the rows that they are from.

    Raises:
        DataError: there are not as many examples as rows.

    Example:
        >>> import numpy as np
        >>> from jaxformer.text import Labelled
        >>> examples = [{"labels": np.arange(9)}, None, {"labels": np.arange(2)}]
        >>> fitting = fitting_rows(Labelled(tuple("abc"), tuple("xyz")), examples, 4)
        >>> fitting.indices, fitting.shortest
        ([2], 9)
        >>> print(fitting.counts)
        3 texts read, 1 kept; 1 empty (line 2), 1 too long (line 1)
    """
    require_same_length(rows=rows.lines, examples=examples)
    counts, fitting, sizes = Counts(rows.unit, len(rows)), dict[int, Example](), []
    for index, (line, example) in enumerate(zip(rows.lines, examples, strict=True)):
        if example is None:
            counts.drop("empty", line)
        elif (size := example_length(example)) > max_len:
            counts.drop("too long", line)
            sizes.append(size)
        else:
            fitting[index] = example
    return FittingRows(list(fitting.values()), list(fitting), counts, min(sizes, default=None))


def no_rows_error(counts: Counts, max_len: int, shortest: int | None) -> DataError:
    """The error that no row fits; `shortest` is as in `FittingRows`."""
    remedy = "use another tokenizer"
    if shortest is not None:
        remedy = f"raise max_len to at least {shortest}"
    return DataError(
        f"at least one of the {counts.unit} must have 1 to max_len={max_len} tokens, got none: "
        f"{counts}; {remedy}"
    )


class PreparedRows(NamedTuple):
    """The training rows of a corpus as examples.

    Args:
        examples: the examples, memory-mapped if they are in a folder.
        counts: counts of the rows read and dropped.
    """

    examples: ExampleArrays
    counts: Counts


def prepare_rows(
    corpus: Corpus,
    encode: Encode,
    max_len: int,
    folder: pathlib.Path | None,
    *,
    part_size: int | None = None,
    on_progress: Callable[[int], None] = lambda size: None,
) -> PreparedRows:
    r"""Encodes the training rows of a corpus into files, or maps existing files.

    If a process ends early, in any way, it loses only the part in progress: the next call goes on
    after the last complete one.

    Args:
        corpus: the rows.
        encode: makes examples from rows, as `encode_pairs` does with its tokenizers.
        max_len: length of the longest examples that are kept.
        folder: folder of the files, used only for this corpus, `encode`, max_len and part_size.
            None to keep the examples in memory.
        part_size: bytes of text in a part. Default: 4 to 8 MiB, depending on the text's size.
        on_progress: called with the number of bytes of text done so far.

    Returns:
        The examples and the counts.

    Raises:
        DataError: a data file has changed, no row is left, or a file in the folder is damaged.
        StorageError: a file cannot be written.

    Example:
        >>> import tempfile
        >>> from jaxformer.text import Corpus, Pairs, byte_tokenizer, encode_pairs
        >>> folder, bytes_ = pathlib.Path(tempfile.mkdtemp()), byte_tokenizer()
        >>> corpus = Corpus.of(Pairs(("one", "two"), ("eins", "zwei")))
        >>> encode = lambda rows: encode_pairs(rows, bytes_, bytes_)
        >>> prepared = prepare_rows(corpus, encode, 8, folder / "cache")
        >>> prepared.examples[1]["source_tokens"].tolist(), str(prepared.counts)
        ([116, 119, 111, 256], '2 pairs read, 2 kept')
    """

    def encoded(rows: list[Row]) -> tuple[Arrays, Record]:
        parts = (part for row in rows for part in corpus.holdout.parts(row, corpus.key))
        table = corpus.table.of_rows(row for row, is_validation in parts if not is_validation)
        if table is None:
            return {}, {"counts": dataclasses.asdict(Counts(corpus.table.unit)), "shortest": None}
        fitting = fitting_rows(table, encode(table), max_len)
        arrays = ExampleArrays.of(fitting.examples).arrays if fitting.examples else {}
        dropped = dataclasses.replace(fitting.counts, read=0)  # the corpus has counted them
        return arrays, {"counts": dataclasses.asdict(dropped), "shortest": fitting.shortest}

    store = prepared_store(
        corpus, folder, encoded, part_size=part_size, largest=_LARGEST, on_progress=on_progress
    )
    counts = Counts(corpus.table.unit)
    for part in (corpus.counts, *(Counts(**record["counts"]) for record in store.records)):
        counts.add(part)
    if not store.arrays:
        sizes = [record["shortest"] for record in store.records if record["shortest"]]
        raise no_rows_error(counts, max_len, min(sizes, default=None))
    return PreparedRows(ExampleArrays(store.arrays), counts)
