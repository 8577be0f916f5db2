"""Rows of files larger than memory: read in pieces, and encoded in a store."""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jaxformer.text.sources.files import FileState, require_unchanged
from jaxformer.text.sources.holdout import Holdout
from jaxformer.text.sources.record_files import content_fingerprint
from jaxformer.text.store.ragged import Example, ExampleArrays
from jaxformer.text.store.shards import Arrays, Record, filled_store, text_per_shard
from jaxformer.text.tables.fitting import fitting_rows, no_rows_error
from jaxformer.text.tables.row_counts import RowCounts
from jaxformer.text.tables.table import Table

_LARGEST = 2**23  # bytes of text in a shard; its examples take ten times that

Encode = Callable[[Any], Sequence[Example | None]]
"""Rows to the example of each; None for a row without tokens."""


class RowPiece(NamedTuple):
    """Consecutive training rows of a corpus."""

    rows: Table | None
    counts: RowCounts  # of these rows and of rows that repeat validation text
    num_bytes: int  # of all texts that were read for it, including validation rows
    end: int | None  # number of the row after it; None at the end of the files


@dataclasses.dataclass(frozen=True, eq=False)
class RowCorpus:
    """Rows of files, a share of which is for validation.

    The rows whose first text has the smallest hashes are for validation. A training row that shares
    a text with the validation rows in another of the columns `Table.inputs` is dropped.

    Args:
        table: the kind of table.
        options: options of `Table.rows`.
        files: states of the files.
        validation_fraction: share of the rows for validation, from 0 to less than 1.
        holdout: which rows are for validation.
        counts: counts of the rows read, and of those dropped as empty or misaligned.
        num_bytes: bytes of their texts, in UTF-8.
        sample: training rows: all, or a uniform sample.
        validation: the validation rows; None if there are none.
        distinct: distinct texts of each column of `Table.categories`, sorted; None for a column
            with more than 10,000.
        is_sampled: whether the sample is not all of the training rows.
    """

    table: type[Table]
    options: dict[str, Any]
    files: tuple[FileState, ...]
    validation_fraction: float
    holdout: Holdout
    counts: RowCounts
    num_bytes: int
    sample: Table
    validation: Table | None
    distinct: dict[str, tuple[str, ...] | None]
    is_sampled: bool

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, as `Table.read` takes them."""
        return tuple(state.path for state in self.files)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the files' content and of the options for reading and splitting it."""
        kind = self.table.__module__, self.table.__qualname__
        options = (*kind, self.options, self.validation_fraction)
        return content_fingerprint(self.files, repr(options))

    def pieces(self, size: int, start: int = 0) -> Iterator[RowPiece]:
        """Reads the training rows.

        Args:
            size: approximate bytes of text in a piece.
            start: 0, or `end` of an earlier piece.

        Raises:
            DataError: a file has changed or cannot be read.
        """
        for state in self.files:
            require_unchanged(state)
        known: list[set[str]] = [set() for _ in self.table.inputs]
        if self.validation is not None:
            known = self.validation.input_texts()
        rows = itertools.islice(self.table.rows(self.paths, **self.options), start, None)
        following = next(rows, None)
        while following is not None:
            taken = [following, *take_rows(rows, size - row_size(following))]
            start += len(taken)
            found, _ = self.table.of_rows(taken)
            counts = RowCounts(self.table.unit, 0)
            if found is not None:
                kept, repeated = found.for_training(self.holdout, known)
                counts = dataclasses.replace(counts, read=len(kept) + len(repeated))
                counts = counts.drop("repeated", [found.lines[i] for i in repeated])
                found = found.take(kept) if kept else None
            following = next(rows, None)
            end = None if following is None else start
            yield RowPiece(found, counts, sum(map(row_size, taken)), end)
        for state in self.files:
            require_unchanged(state)


def take_rows(
    rows: Iterator[tuple[str, Sequence[str]]], size: int
) -> list[tuple[str, Sequence[str]]]:
    """The next rows, of about `size` bytes."""
    taken = []
    while size > 0 and (row := next(rows, None)) is not None:
        taken.append(row)
        size -= row_size(row)
    return taken


def row_size(row: tuple[str, Sequence[str]]) -> int:
    """Bytes of a row in a file; at least 1, since a row without columns takes memory, too."""
    return 1 + sum(len(column.encode()) + 1 for column in row[1])


class PreparedRows(NamedTuple):
    """The training rows of a corpus as examples.

    Args:
        examples: the examples, memory-mapped if they are in a folder.
        counts: counts of the rows read and dropped.
        lines: lines of the rows of the examples; None if they are in a folder.
    """

    examples: ExampleArrays
    counts: RowCounts
    lines: frozenset[str] | None


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
        >>> from jaxformer.text import Pairs, byte_tokenizer, encode_pairs, scan_rows
        >>> folder, bytes_ = pathlib.Path(tempfile.mkdtemp()), byte_tokenizer()
        >>> _ = (folder / "a.tsv").write_text("one\teins\ntwo\tzwei\n")
        >>> corpus = scan_rows(Pairs, [str(folder / "a.tsv")], validation_fraction=0)
        >>> encode = lambda rows: encode_pairs(rows, bytes_, bytes_)
        >>> prepared = prepare_rows(corpus, encode, 8, folder / "cache")
        >>> prepared.examples[1]["source_tokens"].tolist(), str(prepared.counts)
        ([116, 119, 111, 256], '2 pairs read, 2 kept')
    """
    if shard_size is None:
        shard_size = text_per_shard(corpus.num_bytes, largest=_LARGEST)
    lines: set[str] = set()

    def shards(records: Sequence[Record]) -> Iterator[tuple[Arrays, Record]]:
        done = sum(record["num_bytes"] for record in records)
        for piece in corpus.pieces(shard_size, records[-1]["end"] if records else 0):
            on_progress(done)
            counts, shortest, arrays = piece.counts, None, {}
            if piece.rows is not None:
                found = fitting_rows(piece.rows, encode(piece.rows), max_len, counts)
                counts, shortest = found.counts, found.shortest
                arrays = ExampleArrays.of(found.examples).arrays if found.examples else {}
                if folder is None:
                    lines.update(piece.rows.lines[i] for i in found.indices)
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
    kept = frozenset(lines) if folder is None else None
    return PreparedRows(ExampleArrays(store.arrays), counts, kept)
