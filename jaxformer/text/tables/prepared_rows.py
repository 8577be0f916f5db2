"""Rows as training examples: encoded, those that do not fit dropped, and kept in a store."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jaxformer.errors import DataError
from jaxformer.text.store.ragged import Example, ExampleArrays, example_length
from jaxformer.text.store.shards import Arrays, Record, filled_store, text_per_shard
from jaxformer.text.tables.row_corpus import RowCorpus
from jaxformer.text.tables.row_counts import RowCounts
from jaxformer.text.tables.table import Table, require_same_length

_LARGEST = 2**23  # bytes of text in a shard; its examples take ten times that

Encode = Callable[[Any], Sequence[Example | None]]
"""Rows to the example of each; None for a row without tokens."""


class FittingRows(NamedTuple):
    """Encoded rows of a table that fit into a model.

    Args:
        examples: the examples that were kept.
        indices: indices of their rows.
        counts: counts of the rows, including those that were dropped.
        shortest: length of the shortest example that was too long; None if none was.
    """

    examples: list[Example]
    indices: list[int]
    counts: RowCounts
    shortest: int | None


def fitting_rows(
    rows: Table, examples: Sequence[Example | None], max_len: int, counts: RowCounts
) -> FittingRows:
    """Drops rows without tokens, whose example is None, and examples that are too long.

    The length of an example is the size of its longest array.

    Args:
        rows: the rows that were encoded.
        examples: the example of each row: arrays with one axis or none.
        max_len: largest length that is kept.
        counts: counts of the rows so far.

    Returns:
        The examples that are left, perhaps none, and the rows that they are from.

    Raises:
        DataError: there are not as many examples as rows.

    Example:
        >>> import numpy as np
        >>> from jaxformer.text import Labelled
        >>> examples = [{"labels": np.arange(9)}, None, {"labels": np.arange(2)}]
        >>> rows, counts = Labelled(tuple("abc"), tuple("xyz")), RowCounts("texts", 3)
        >>> found = fitting_rows(rows, examples, 4, counts)
        >>> found.indices, found.shortest
        ([2], 9)
        >>> print(found.counts)
        3 texts read, 1 kept; 1 empty (line 2), 1 too long (line 1)
    """
    require_same_length(rows=rows.lines, examples=examples)
    kept: dict[int, Example] = {}
    empty: list[str] = []
    too_long: list[tuple[str, int]] = []
    for index, (line, example) in enumerate(zip(rows.lines, examples, strict=True)):
        if example is None:
            empty.append(line)
        elif (size := example_length(example)) > max_len:
            too_long.append((line, size))
        else:
            kept[index] = example
    counts = counts.drop("empty", empty).drop("too_long", [line for line, _ in too_long])
    shortest = min((size for _, size in too_long), default=None)
    return FittingRows(list(kept.values()), list(kept), counts, shortest)


def no_rows_error(counts: RowCounts, max_len: int, shortest: int | None) -> DataError:
    """The error that no row was kept; `shortest` is as in `FittingRows`."""
    remedy = "use another tokenizer"
    if counts.too_long:
        remedy = f"raise max_len to at least {shortest}" if shortest else "raise max_len"
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
    counts: RowCounts


def prepare_rows(
    corpus: RowCorpus,
    encode: Encode,
    max_len: int,
    folder: pathlib.Path | None,
    *,
    shard_size: int | None = None,
    on_progress: Callable[[int], None] = lambda size: None,
) -> PreparedRows:
    r"""Encodes the training rows of a corpus into files, or maps existing files.

    If a process ends early, in any way, it loses only the shard in progress. The next call resumes
    after the last complete shard.

    Args:
        corpus: the rows.
        encode: makes examples from rows, as `encode_pairs` does with its tokenizers.
        max_len: length of the longest examples that are kept.
        folder: folder of the files, used only for this corpus, `encode`, max_len and shard_size.
            None to keep the examples in memory.
        shard_size: bytes of text in a shard. Default: 4 to 8 MiB, depending on the text's size.
        on_progress: called with the number of bytes of text done so far.

    Returns:
        The examples and the counts.

    Raises:
        DataError: a data file has changed, no row is left, or a file in the folder is damaged.
        StorageError: a file cannot be written.

    Example:
        >>> import tempfile
        >>> from jaxformer.text import Pairs, RowCorpus, byte_tokenizer, encode_pairs
        >>> folder, bytes_ = pathlib.Path(tempfile.mkdtemp()), byte_tokenizer()
        >>> corpus = RowCorpus.of(Pairs(("one", "two"), ("eins", "zwei")))
        >>> encode = lambda rows: encode_pairs(rows, bytes_, bytes_)
        >>> prepared = prepare_rows(corpus, encode, 8, folder / "cache")
        >>> prepared.examples[1]["source_tokens"].tolist(), str(prepared.counts)
        ([116, 119, 111, 256], '2 pairs read, 2 kept')
    """
    if shard_size is None:
        shard_size = text_per_shard(corpus.num_bytes, largest=_LARGEST)

    def shards(records: Sequence[Record]) -> Iterator[tuple[Arrays, Record]]:
        done = sum(record["num_bytes"] for record in records)
        for piece in corpus.pieces(shard_size, records[-1]["end"] if records else 0):
            on_progress(done)
            counts, shortest, arrays = piece.counts, None, {}
            if piece.rows is not None:
                found = fitting_rows(piece.rows, encode(piece.rows), max_len, counts)
                counts, shortest = found.counts, found.shortest
                arrays = ExampleArrays.of(found.examples).arrays if found.examples else {}
            yield arrays, {
                "counts": dataclasses.asdict(counts), "shortest": shortest,
                "num_bytes": piece.num_bytes, "end": piece.end,
            }  # fmt: skip
            done += piece.num_bytes

    store = filled_store(folder, shards)
    on_progress(sum(record["num_bytes"] for record in store.records))
    counts = corpus.counts
    for record in store.records:
        counts = counts.with_drops_of(RowCounts.from_dict(record["counts"]))
    if not store.arrays:
        sizes = [size for record in store.records if (size := record.get("shortest"))]
        raise no_rows_error(counts, max_len, min(sizes, default=None))
    return PreparedRows(ExampleArrays(store.arrays), counts)
