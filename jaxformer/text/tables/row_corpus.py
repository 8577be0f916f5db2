"""Rows of any number, of files or in memory: scanned once, and then read in pieces."""

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from jaxformer.errors import DataError
from jaxformer.storage import as_path, real_path
from jaxformer.text.sources.files import (
    FileState,
    file_stamps,
    read_state,
    require_unchanged,
    scan_stem,
)
from jaxformer.text.sources.holdout import Holdout, Scanner, text_bytes
from jaxformer.text.store.shards import remembered
from jaxformer.text.tables.row_counts import RowCounts
from jaxformer.text.tables.table import Row, Table, row_size, take_rows

_CHUNK = 2**22  # bytes of rows scanned at a time
_SAMPLE = 2**25  # bytes of rows, to train a tokenizer on
_VALIDATION = 2**26  # bytes of validation rows, which are kept in memory
_DISTINCT = 10_000  # distinct texts of a column that are listed, such as labels


class RowPiece(NamedTuple):
    """Consecutive training rows of a corpus."""

    rows: Table | None
    counts: RowCounts  # of these rows and of rows that repeat validation text
    num_bytes: int  # of all texts that were read for it, including validation rows
    end: int | None  # number of the row after it; None at the end


@dataclasses.dataclass(frozen=True, eq=False)
class RowCorpus:
    """Rows of files or in memory, a share of which is for validation.

    The rows whose first text has the smallest hashes are for validation. A training row that shares
    a text with the validation rows in one of the columns `Table.inputs` is dropped. So validation
    uses only unseen text.

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
        fingerprint: SHA-256 of the rows, in their order, and of the options for splitting.
        rows: the rows, if they are not in files.
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
    fingerprint: str
    rows: Table | None = None

    @classmethod
    def of(cls, rows: Table, validation_fraction: float = 0.0) -> Self:
        """Makes a corpus of rows in memory.

        Args:
            rows: the rows.
            validation_fraction: share of the rows for validation, from 0 to less than 1.

        Raises:
            DataError: no row is left for training, or none for validation.

        Example:
            >>> from jaxformer.text import Pairs
            >>> pairs = Pairs(("yes", "no", "well", "well"), ("ja", "nein", "nun", "gut"))
            >>> corpus = RowCorpus.of(pairs, 0.25)
            >>> corpus.sample.targets, corpus.validation.targets
            (('nein', 'nun', 'gut'), ('ja',))
        """
        source = f"{len(rows):,} {rows.unit}"
        values = _scan(type(rows), rows.records(), validation_fraction, source=source)
        return cls(**values, options={}, files=(), rows=rows)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, as `Table.read` takes them."""
        return tuple(state.path for state in self.files)

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
        if self.rows is not None:
            rows = self.rows.records()
        else:
            rows = self.table.rows(self.paths, **self.options)
        rows = itertools.islice(rows, start, None)
        following = next(rows, None)
        while following is not None:
            chunk = [following, *take_rows(rows, size - row_size(following))]
            start += len(chunk)
            table, _ = self.table.of_rows(chunk)
            counts = RowCounts(self.table.unit, 0)
            if table is not None:
                kept, repeated = table.for_training(self.holdout, known)
                counts = dataclasses.replace(counts, read=len(kept) + len(repeated))
                counts = counts.drop("repeated", [table.lines[i] for i in repeated])
                table = table.take(kept) if kept else None
            following = next(rows, None)
            end = None if following is None else start
            yield RowPiece(table, counts, sum(map(row_size, chunk)), end)
        for state in self.files:
            require_unchanged(state)


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
    r"""Scans files of rows once, or loads the record of an earlier scan.

    Args:
        table: the kind of table.
        paths: the files, as `Table.read` takes them.
        validation_fraction: share of the rows for validation, from 0 to less than 1.
        characters: whether the sample must contain every character, for a character tokenizer.
        cache_dir: folder for the records of scans; None for no records.
        on_progress: called with the number of bytes of text done so far.
        **options: options of `Table.rows`, if the kind of table has any.

    Returns:
        The corpus.

    Raises:
        DataError: a file cannot be read, or changes during the scan; no row is left for training,
            or none for validation; or the validation rows are larger than 64 MiB.
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
        cache_dir = None  # your own table may change how it reads rows
    paths = [real_path(path) for path in paths]  # independent of the working folder

    def scan() -> RowCorpus:
        stamps = dict(zip(paths, file_stamps(paths), strict=True))
        values = _scan(
            table, table.rows(paths, **options), validation_fraction, source=", ".join(paths),
            characters=characters, on_progress=on_progress,
        )  # fmt: skip
        files = tuple(read_state(as_path(path), stamps[path]) for path in paths)
        return RowCorpus(**values, options=options, files=files)

    key = (table.__module__, table.__qualname__, options, validation_fraction, characters)
    return remembered(
        scan_stem(cache_dir, "corpora", map(as_path, paths), key),
        scan,
        lambda corpus: ({}, _packed(corpus)),
        lambda _, values: _unpacked(table, values),
    )


def _scan(
    table: type[Table],
    rows: Iterator[Row],
    validation_fraction: float,
    *,
    source: str,
    characters: bool = False,
    on_progress: Callable[[int], None] = lambda size: None,
) -> dict[str, Any]:
    """Reads all rows: the arguments of their `RowCorpus`, except options, files and rows."""
    scanner = Scanner[Row](validation_fraction, sample=_SAMPLE, held_out=_VALIDATION)
    distinct: dict[str, set[str]] = {name: set() for name in table.categories}
    counts, num_bytes, seen = RowCounts(table.unit, 0), 0, set[str]()
    kind = table.__module__, table.__qualname__
    digest = hashlib.sha256(repr((*kind, validation_fraction)).encode())
    rows = iter(rows)
    while chunk := take_rows(rows, _CHUNK):
        usable, chunk_counts = table.of_rows(chunk)
        counts = dataclasses.replace(counts, read=counts.read + chunk_counts.read)
        counts = counts.with_drops_of(chunk_counts)
        if usable is not None:
            for row, key in zip(usable.records(), usable.keys(), strict=True):
                scanner.add(row, key, row_size(row), 1)
            for name, known in distinct.items():
                if len(known) <= _DISTINCT:
                    known.update(getattr(usable, name))
            if characters:
                seen.update(*usable.all_texts())
        for _, columns in chunk:
            digest.update(text_bytes(repr(tuple(columns))))
        num_bytes += sum(map(row_size, chunk))
        on_progress(num_bytes)
    scanned = scanner.finish(lambda holdout, row, side: [(row, holdout.has(side))], cuts=False)
    if scanned.is_cut:
        raise DataError(
            f"{table.unit} for validation must be at most {_VALIDATION:,} bytes, got more with "
            f"validation_fraction={validation_fraction}; lower it, or name data.validation_paths"
        )
    validation, sample = _table(table, scanned.validation), _table(table, scanned.training)
    repeats = 0
    if validation is not None and sample is not None:
        kept, repeated = sample.for_training(scanned.holdout, validation.input_texts())
        sample, repeats = sample.take(kept) if kept else None, len(repeated)
    if sample is None or (validation_fraction and validation is None):
        empty = "training" if sample is None else "validation"
        raise DataError(
            f"both sides of a split must have {table.unit}, got an empty {empty} side from "
            f"{source} with validation_fraction={validation_fraction}, {repeats:,} of them "
            f"repeating a validation text: {counts}; each line must be {table.layout}; add data, "
            "or change the fraction"
        )
    if characters and scanned.is_sampled:
        more = table.row_of("".join(sorted(seen)))
        sample = _table(table, [*sample.records(), ("", more)])
    return {
        "table": table, "validation_fraction": validation_fraction, "holdout": scanned.holdout,
        "counts": counts, "num_bytes": num_bytes, "sample": sample, "validation": validation,
        "is_sampled": scanned.is_sampled, "fingerprint": digest.hexdigest(), "distinct": {
            name: tuple(sorted(known)) if len(known) <= _DISTINCT else None
            for name, known in distinct.items()
        },
    }  # fmt: skip


def _table(table: type[Table], rows: Sequence[Any]) -> Table | None:
    """Rows as a table, as they are; None if there are none."""
    if not rows:
        return None
    lines, columns = zip(*rows, strict=True)
    return table(*map(tuple, zip(*columns, strict=True)), lines=tuple(lines))


def _packed(corpus: RowCorpus) -> dict[str, Any]:
    """Values of JSON; the kind of table is left out."""
    tables = {
        name: None if (rows := getattr(corpus, name)) is None else list(rows.records())
        for name in ("sample", "validation")
    }
    values = {name: value for name, value in vars(corpus).items() if name != "table"}
    return {**values, **tables, "counts": dataclasses.asdict(corpus.counts)}


def _unpacked(table: type[Table], values: dict[str, Any]) -> RowCorpus:
    """The inverse of `_packed`."""
    known = values["distinct"].items()
    restored = {
        "files": tuple(FileState(*state) for state in values["files"]),
        "holdout": Holdout(*values["holdout"]),
        "counts": RowCounts.from_dict(values["counts"]),
        "sample": _table(table, values["sample"]),
        "validation": _table(table, values["validation"] or ()),
        "distinct": {name: None if texts is None else tuple(texts) for name, texts in known},
    }
    return RowCorpus(table=table, **{**values, **restored})
