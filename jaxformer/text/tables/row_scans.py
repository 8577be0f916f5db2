"""Scans files of rows: collects the validation rows and a sample for training a tokenizer."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from jaxformer.errors import DataError
from jaxformer.storage import as_path, real_path
from jaxformer.text.sources.files import FileState, file_stamps, read_state, scan_stem
from jaxformer.text.sources.holdout import Holdout, Scanned, Scanner
from jaxformer.text.store.shards import remembered
from jaxformer.text.tables.row_corpus import RowCorpus, row_size, take_rows
from jaxformer.text.tables.row_counts import RowCounts
from jaxformer.text.tables.table import Table

_CHUNK = 2**22  # bytes of rows scanned at a time
_SAMPLE = 2**25  # bytes of rows, to train a tokenizer on
_VALIDATION = 2**26  # bytes of validation rows, which are kept in memory
_DISTINCT = 10_000  # distinct texts of a column that are listed, such as labels
_Row = tuple[str, ...]  # columns and line


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
        DataError: a file cannot be read, or changes during the scan; no row is left for training;
            or the validation rows are larger than 64 MiB.
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
    key = (table.__module__, table.__qualname__, options, validation_fraction, characters)
    return remembered(
        scan_stem(cache_dir, "corpora", map(as_path, paths), key),
        lambda: _scan(table, paths, options, validation_fraction, characters, on_progress),
        lambda corpus: ({}, _packed(corpus)),
        lambda _, values: _unpacked(table, values),
    )


def _scan(
    table: type[Table],
    paths: Sequence[str],
    options: dict[str, Any],
    validation_fraction: float,
    characters: bool,
    on_progress: Callable[[int], None],
) -> RowCorpus:
    """`scan_rows` without a record."""
    stamps = dict(zip(paths, file_stamps(paths), strict=True))
    scanner = Scanner[_Row](validation_fraction, sample=_SAMPLE, held_out=_VALIDATION)
    distinct: dict[str, set[str]] = {name: set() for name in table.categories}
    counts, num_bytes, seen = RowCounts(table.unit, 0), 0, set[str]()
    rows = iter(table.rows(paths, **options))
    while taken := take_rows(rows, _CHUNK):
        usable, of_taken = table.of_rows(taken)
        counts = dataclasses.replace(counts, read=counts.read + of_taken.read)
        counts = counts.with_drops_of(of_taken)
        if usable is not None:
            for row, key in zip(_to_tuples(usable), usable.keys(), strict=True):
                scanner.add(row, key, sum(len(column.encode()) for column in row), 1)
            for name, known in distinct.items():
                if len(known) <= _DISTINCT:
                    known.update(getattr(usable, name))
            if characters:
                seen.update(*usable.all_texts())
        num_bytes += sum(map(row_size, taken))
        on_progress(num_bytes)
    found = scanner.finish(lambda holdout, row, side: [(row, holdout.has(side))], cuts=False)
    if found.is_cut:
        raise DataError(
            f"{table.unit} for validation must be at most {_VALIDATION:,} bytes, got more with "
            f"validation_fraction={validation_fraction}; lower it, or name data.validation_paths"
        )
    validation = _from_tuples(table, found.validation) if found.validation else None
    sample = _without_known(table, found, validation)
    if not sample:
        raise DataError(
            f"a corpus must have {table.unit} for training, got none in {', '.join(paths)} with "
            f"validation_fraction={validation_fraction}: {counts}; each line must be {table.layout}"
        )
    if characters and found.is_sampled:
        sample.append((*table.row_of("".join(sorted(seen))), ""))
    return RowCorpus(
        table=table,
        options=options,
        files=tuple(read_state(as_path(path), stamps[path]) for path in paths),
        validation_fraction=validation_fraction,
        holdout=found.holdout,
        counts=counts,
        num_bytes=num_bytes,
        sample=_from_tuples(table, sample),
        validation=validation,
        distinct={
            name: tuple(sorted(known)) if len(known) <= _DISTINCT else None
            for name, known in distinct.items()
        },
        is_sampled=found.is_sampled,
    )


def _without_known(
    table: type[Table], found: Scanned[_Row], validation: Table | None
) -> list[_Row]:
    """The sampled training rows, without those that share a text with validation rows."""
    if validation is None or not found.training:
        return found.training
    rows = _from_tuples(table, found.training)
    kept, _ = rows.for_training(found.holdout, validation.input_texts())
    return [found.training[i] for i in kept]


def _from_tuples(table: type[Table], rows: Sequence[Sequence[str]]) -> Table:
    *columns, lines = zip(*rows, strict=True)
    return table(*columns, lines=lines)


def _to_tuples(rows: Table | None) -> list[tuple[str, ...]]:
    return [] if rows is None else list(zip(*rows.columns, rows.lines, strict=True))


def _packed(corpus: RowCorpus) -> dict[str, Any]:
    """Values of JSON; the kind of table is left out."""
    values = {name: value for name, value in vars(corpus).items() if name != "table"}
    rows = {name: _to_tuples(values[name]) for name in ("sample", "validation")}
    return {**values, **rows, "counts": dataclasses.asdict(corpus.counts)}


def _unpacked(table: type[Table], values: dict[str, Any]) -> RowCorpus:
    """The inverse of `_packed`."""
    known = values["distinct"].items()
    restored = {
        "files": tuple(FileState(*state) for state in values["files"]),
        "holdout": Holdout(*values["holdout"]),
        "counts": RowCounts.from_dict(values["counts"]),
        "sample": _from_tuples(table, values["sample"]),
        "validation": _from_tuples(table, values["validation"]) if values["validation"] else None,
        "distinct": {name: None if texts is None else tuple(texts) for name, texts in known},
    }
    return RowCorpus(table=table, **{**values, **restored})
