"""Rows of files larger than memory, which are scanned once and read in pieces."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jaxformer.text.sources.even_samples import text_draws
from jaxformer.text.sources.file_states import FileState, require_unchanged
from jaxformer.text.sources.record_files import content_fingerprint
from jaxformer.text.tables.row_counts import RowCounts
from jaxformer.text.tables.table import Table

__all__ = ["RowCorpus", "RowPiece", "row_size", "take_rows"]


class RowPiece(NamedTuple):
    """Consecutive training rows of a corpus.

    Args:
        rows: the rows; None if there are none.
        counts: counts of these rows and of rows that repeat validation text.
        num_bytes: bytes of all texts that were read for it, including validation rows.
        end: number of the row after it; None at the end of the files.
    """

    rows: Table | None
    counts: RowCounts
    num_bytes: int
    end: int | None


@dataclasses.dataclass(frozen=True, eq=False)
class RowCorpus:
    """Rows of files, a share of which is for validation.

    The side of a row depends only on the text of its first column. A training row that shares a
    text with the validation rows in another of the columns `Table.inputs` is dropped.

    Args:
        table: the kind of table.
        paths: the files, as `Table.read` takes them.
        options: options of `Table.rows`.
        files: states of the files.
        validation_fraction: share of the rows for validation, from 0 to less than 1.
        counts: counts of the rows read, and of those dropped as empty or misaligned.
        num_bytes: bytes of their texts, in UTF-8.
        sample: uniform sample of the training rows.
        validation: the validation rows; None if there are none.
        distinct: distinct texts of each column of `Table.categories`, sorted; None for a column
            with more than 10,000.
    """

    table: type[Table]
    paths: tuple[str, ...]
    options: dict[str, Any]
    files: tuple[FileState, ...]
    validation_fraction: float
    counts: RowCounts
    num_bytes: int
    sample: Table
    validation: Table | None
    distinct: dict[str, tuple[str, ...] | None]

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
        known = [
            set() if self.validation is None else set(getattr(self.validation, name))
            for name in self.table.inputs
        ]
        rows = itertools.islice(self.table.rows(self.paths, **self.options), start, None)
        following = next(rows, None)
        while following is not None:
            taken = [following, *take_rows(rows, size - row_size(following))]
            start += len(taken)
            found, _ = self.table.of_rows(taken)
            kept, repeated = self._for_training(found, known)
            following = next(rows, None)
            counts = RowCounts(self.table.unit, len(kept) + len(repeated))
            yield RowPiece(
                rows=found.take(kept) if found is not None and kept else None,
                counts=counts.drop("repeated", repeated),
                num_bytes=sum(map(row_size, taken)),
                end=None if following is None else start,
            )
        for state in self.files:
            require_unchanged(state)

    def _for_training(
        self, rows: Table | None, known: Sequence[set[str]]
    ) -> tuple[list[int], list[str]]:
        """Indices of the training rows, and lines of those that repeat validation text."""
        kept: list[int] = []
        repeated: list[str] = []
        if rows is None:
            return kept, repeated
        columns = [getattr(rows, name) for name in rows.inputs]
        for index, texts in enumerate(zip(*columns, strict=True)):
            if text_draws(texts[0].encode())[0] < self.validation_fraction:
                continue
            if any(text in of_column for text, of_column in zip(texts, known, strict=True)):
                repeated.append(rows.lines[index])
            else:
                kept.append(index)
        return kept, repeated


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
