"""Rows of files that are larger than memory, which are looked through once and read in pieces."""

import dataclasses
import hashlib
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jaxformer.errors import DataError
from jaxformer.text.even_samples import EvenSample, text_draws
from jaxformer.text.file_states import FileState, file_stamp, read_state, require_unchanged
from jaxformer.text.record_files import file_kind
from jaxformer.text.row_counts import RowCounts
from jaxformer.text.scan_records import recorded_scan
from jaxformer.text.tables import Table

__all__ = ["RowCorpus", "RowPiece", "scan_rows"]

_CHUNK = 2**22  # bytes of rows that are looked through at a time
_SAMPLE = 2**25  # bytes of training rows that a tokenizer is trained on
_VALIDATION = 2**26  # bytes of validation rows, which are kept in memory
_DISTINCT = 10_000  # different texts of a column that are listed, such as labels


class RowPiece(NamedTuple):
    """Training rows of a corpus that follow each other.

    Args:
        rows: the rows; None where none of them are for training.
        counts: of these rows and those that repeat validation text.
        num_bytes: bytes of all texts that were read for it, those for validation included.
        end: number of the row behind it; None at the end of the files.
    """

    rows: Table | None
    counts: RowCounts
    num_bytes: int
    end: int | None


@dataclasses.dataclass(frozen=True, eq=False)
class RowCorpus:
    """Rows of files, of which any share is for validation.

    Which side a row is on depends on the text of its first column alone. A training row that has a
    text of the validation rows in another of the columns `Table.inputs` is dropped.

    Args:
        table: the kind of table.
        paths: the files, as `Table.read` takes them.
        options: options of `Table.rows`.
        files: their states.
        validation_fraction: share of the rows for validation, from 0 to less than 1.
        counts: how many rows were read, and dropped for what they are.
        num_bytes: bytes of their texts, in UTF-8.
        sample: training rows, drawn evenly.
        validation: the rows for validation; None where there are none.
        distinct: of each column of `Table.categories` its different texts, sorted; None for a
            column with more than 10,000.
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
        """SHA-256 of the files' content, and of how it is read and split."""
        kind = self.table.__module__, self.table.__qualname__
        options = (*kind, self.options, self.validation_fraction)
        digest = hashlib.sha256(repr(options).encode())
        for file in self.files:
            digest.update(bytes.fromhex(file.content))
            digest.update(file_kind(pathlib.Path(file.path)).encode())
        return digest.hexdigest()

    def pieces(self, size: int, start: int = 0) -> Iterator[RowPiece]:
        """Reads the training rows.

        Args:
            size: bytes of text in a piece, about.
            start: 0, or `end` of an earlier piece.

        Raises:
            DataError: a file has changed, or cannot be read.
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
            taken = [following, *_take(rows, size - _size(following))]
            start += len(taken)
            found, _ = self.table.of_rows(taken)
            kept, repeated = self._for_training(found, known)
            following = next(rows, None)
            counts = RowCounts(self.table.unit, len(kept) + len(repeated))
            yield RowPiece(
                rows=found.take(kept) if found is not None and kept else None,
                counts=counts.drop("repeated", repeated),
                num_bytes=sum(map(_size, taken)),
                end=None if following is None else start,
            )
        for state in self.files:
            require_unchanged(state)

    def _for_training(
        self, rows: Table | None, known: Sequence[set[str]]
    ) -> tuple[list[int], list[str]]:
        """Indices of the rows for training, and the lines of those that repeat validation text."""
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


def scan_rows(
    table: type[Table],
    paths: Sequence[str],
    *,
    validation_fraction: float,
    characters: bool = False,
    cache_dir: pathlib.Path | None = None,
    on_progress: Callable[[int], None] = lambda size: None,
    **options: Any,
) -> RowCorpus:
    r"""Looks through files of rows once, or finds what was found in them before.

    Args:
        table: the kind of table.
        paths: the files, as `Table.read` takes them.
        validation_fraction: share of the rows for validation, from 0 to less than 1.
        characters: whether the sample must have every character, for a tokenizer of characters.
        cache_dir: folder of the records of earlier scans; None where there is none.
        on_progress: called with the number of bytes of text that are done.
        **options: those of `Table.rows`, where the kind of table has any.

    Returns:
        The corpus.

    Raises:
        DataError: a file cannot be read, or has changed meanwhile; no row is left for training, or
            the rows for validation are more than 64 MiB.
        StorageError: the record cannot be written.

    Example:
        >>> import tempfile
        >>> from jaxformer.text import Pairs
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.tsv")
        >>> _ = path.write_text("one\teins\ntwo\tzwei\n\tdrei\n")
        >>> corpus = scan_rows(Pairs, [str(path)], validation_fraction=0)
        >>> print(corpus.counts)
        3 pairs read, 2 kept; 1 empty (line 3)
        >>> [piece.rows.targets for piece in corpus.pieces(100)]
        [('eins', 'zwei')]
    """
    if not table.__module__.startswith("jaxformer."):
        cache_dir = None  # how a table of one's own reads its rows may change
    paths = [os.path.realpath(path) for path in paths]  # the same wherever the next start is
    return recorded_scan(
        [pathlib.Path(path) for path in paths],
        (table.__module__, table.__qualname__, options, validation_fraction, characters),
        cache_dir,
        scan=lambda: _scan(table, paths, options, validation_fraction, characters, on_progress),
        pack=_packed,
        unpack=lambda values: _unpacked(table, values),
    )


def _scan(
    table: type[Table],
    paths: Sequence[str],
    options: dict[str, Any],
    validation_fraction: float,
    characters: bool,
    on_progress: Callable[[int], None],
) -> RowCorpus:
    """Does `scan_rows` without a record."""
    stamps = {path: file_stamp(path) for path in paths}
    found = _Found(table, validation_fraction)
    counts, num_bytes, seen = RowCounts(table.unit, 0), 0, set[str]()
    rows = iter(table.rows(paths, **options))
    while taken := _take(rows, _CHUNK):
        usable, of_taken = table.of_rows(taken)
        counts = dataclasses.replace(counts, read=counts.read + of_taken.read)
        counts = counts.with_drops_of(of_taken)
        if usable is not None:
            found.add(usable)
            if characters:
                seen.update(*usable.all_texts())
        num_bytes += sum(map(_size, taken))
        on_progress(num_bytes)
    sample = found.sample.values
    if not sample:
        raise DataError(
            f"a corpus must have {table.unit} for training, got none in {', '.join(paths)} with "
            f"validation_fraction={validation_fraction}: {counts}; each line must be {table.layout}"
        )
    if characters:
        sample += ((*table.row_of("".join(sorted(seen))), ""),)
    return RowCorpus(
        table=table,
        paths=tuple(paths),
        options=options,
        files=tuple(read_state(pathlib.Path(path), stamps[path]) for path in paths),
        validation_fraction=validation_fraction,
        counts=counts,
        num_bytes=num_bytes,
        sample=_from_tuples(table, sample),
        validation=_from_tuples(table, found.validation) if found.validation else None,
        distinct={
            name: None if texts is None else tuple(sorted(texts))
            for name, texts in found.distinct.items()
        },
    )


class _Found:
    """What a scan keeps of the rows."""

    def __init__(self, table: type[Table], validation_fraction: float) -> None:
        self._fraction = validation_fraction
        self._left = _VALIDATION
        self.sample = EvenSample[tuple[str, ...]](_SAMPLE)
        self.validation: list[tuple[str, ...]] = []
        self.distinct: dict[str, set[str] | None] = {name: set() for name in table.categories}

    def add(self, rows: Table) -> None:
        for name, known in self.distinct.items():
            if known is not None:
                known.update(getattr(rows, name))
                self.distinct[name] = known if len(known) <= _DISTINCT else None
        first = rows.column_names().index(rows.inputs[0])
        for row in _to_tuples(rows):
            side, drawn = text_draws(row[first].encode())
            size = sum(len(column.encode()) for column in row)
            if side >= self._fraction:
                self.sample.add(row, size, drawn)
                continue
            self.validation.append(row)
            self._left -= size
            if self._left < 0:
                raise DataError(
                    f"{rows.unit} for validation must be at most {_VALIDATION:,} bytes, got more "
                    f"with validation_fraction={self._fraction}; lower it, or name "
                    "data.validation_paths"
                )


def _take(rows: Iterator[tuple[str, Sequence[str]]], size: int) -> list[tuple[str, Sequence[str]]]:
    """The next rows, of about so many bytes."""
    taken = []
    while size > 0 and (row := next(rows, None)) is not None:
        taken.append(row)
        size -= _size(row)
    return taken


def _size(row: tuple[str, Sequence[str]]) -> int:
    """Bytes of a row in a file; at least one, since memory is taken for one without columns."""
    return 1 + sum(len(column.encode()) + 1 for column in row[1])


def _from_tuples(table: type[Table], rows: Sequence[Sequence[str]]) -> Table:
    *columns, lines = zip(*rows, strict=True)
    return table(*columns, lines=lines)


def _to_tuples(rows: Table | None) -> list[tuple[str, ...]]:
    return [] if rows is None else list(zip(*rows.columns, rows.lines, strict=True))


def _packed(corpus: RowCorpus) -> dict[str, Any]:
    return {
        "paths": corpus.paths,
        "options": corpus.options,
        "files": corpus.files,
        "validation_fraction": corpus.validation_fraction,
        "counts": dataclasses.asdict(corpus.counts),
        "num_bytes": corpus.num_bytes,
        "sample": _to_tuples(corpus.sample),
        "validation": _to_tuples(corpus.validation),
        "distinct": corpus.distinct,
    }


def _unpacked(table: type[Table], values: dict[str, Any]) -> RowCorpus:
    validation = values["validation"]
    return RowCorpus(
        table=table,
        paths=tuple(values["paths"]),
        options=values["options"],
        files=tuple(FileState(*state) for state in values["files"]),
        validation_fraction=values["validation_fraction"],
        counts=RowCounts.from_dict(values["counts"]),
        num_bytes=values["num_bytes"],
        sample=_from_tuples(table, values["sample"]),
        validation=_from_tuples(table, validation) if validation else None,
        distinct={
            name: None if texts is None else tuple(texts)
            for name, texts in values["distinct"].items()
        },
    )
