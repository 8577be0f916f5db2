"""Corpora: rows of any number, of files or in memory, scanned once, and then read again."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from jaxformer.errors import DataError
from jaxformer.storage import as_path
from jaxformer.text.corpora.holdout import NUM_BINS, EvenSample, Holdout, text_draws
from jaxformer.text.sources.files import file_states, require_unchanged
from jaxformer.text.sources.records import Counts, Row
from jaxformer.text.store.store import cache_path, remembered
from jaxformer.text.tables.table import Table, text_bytes

_LAYOUT = 11  # version of what scans remember
_SAMPLE = 2**25  # bytes of training text that are kept, to train a tokenizer on
_VALIDATION = 2**26  # bytes of validation rows that are kept, at most
_LINES = 2**18  # bytes of validation text that are kept beyond the sample, for prompts
_FEW = 64  # rows that are kept as candidates for validation, whatever their numbers
_REPORTED = 2**20  # bytes between two reports of progress

Groups = Callable[[], Iterator[Iterator[Row]]]
"""Reads the rows of each group of files."""


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Rows of files or in memory, a share of which is for validation.

    The side of a row depends on a hash of its first text (of the first of `Table.inputs`), so the
    same text is never on both sides, and one more row changes the side of hardly any other. Long
    documents are rows of at most 128 KiB. The one where the share is reached is cut at the nearest
    line break: its end is for validation. So a single document is split into head and tail.

    Args:
        table: the kind of rows.
        groups: reads the rows of each group of files.
        holdout: which rows are for validation.
        counts: counts of the rows read and dropped, on both sides.
        num_bytes: bytes of their texts, in UTF-8.
        fingerprint: SHA-256 of the rows, in their order, and of the options for splitting.
        train: training rows, to train a tokenizer on: all, or a uniform sample.
        validation: validation rows, None if there are none. Of documents, perhaps only a sample.
        is_sampled: whether `train` is not all of the training rows.
        distinct: distinct texts of each column of `Table.categories`, sorted.
    """

    table: type[Table]
    groups: Groups
    holdout: Holdout
    counts: Counts
    num_bytes: int
    fingerprint: str
    train: Any
    validation: Any
    is_sampled: bool
    distinct: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, rows: Table, validation_fraction: float = 0.0) -> "Corpus":
        r"""Makes a corpus of rows in memory.

        Args:
            rows: the rows.
            validation_fraction: share of the rows for validation, from 0 to less than 1.

        Raises:
            DataError: no row is left for training, or none for validation.

        Example:
            >>> from jaxformer.text import Documents, Pairs
            >>> corpus = Corpus.of(Documents(("one\ntwo\nthree\nfour\n",)), 0.25)
            >>> corpus.train.texts, corpus.validation.texts
            (('one\ntwo\nthree\n',), ('four\n',))
            >>> pairs = Pairs(("yes", "no", "well", "so"), ("ja", "nein", "nun", "so"))
            >>> Corpus.of(pairs, 0.25).validation.sources
            ('yes',)
        """
        table, counts = type(rows), Counts(rows.unit)
        source = f"{len(rows):,} {rows.unit}"
        values = _scan(table, [rows.records()], validation_fraction, counts, source)
        return _corpus(table, lambda: iter([rows.records()]), values)

    def read(self) -> Iterator[tuple[Row, bool]]:
        """Yields the rows of both sides, in order, each with whether it is for validation.

        Raises DataError at the end if a file has changed since the scan.
        """
        counts = Counts(self.table.unit)  # the scan has counted them
        key = _key(self.table)
        for rows in self.groups():
            for row in self.table.clean(rows, counts):
                yield from self.holdout.parts(row, key)


def scan_corpus(
    table: type[Table],
    paths: Sequence[str | pathlib.Path],
    *,
    validation_fraction: float,
    cache_dir: pathlib.Path | None = None,
    on_progress: Callable[[int], None] = lambda size: None,
    **options: Any,
) -> Corpus:
    r"""Scans files once, or loads the record of an earlier scan.

    The record is used if paths, sizes and modification times (or versions) of the files are
    the same.

    Args:
        table: the kind of rows, such as `Documents` or `Pairs`.
        paths: the files, as `Table.read` takes them.
        validation_fraction: share of the rows for validation; of documents, share of the bytes.
        cache_dir: folder for the records of scans; None for no records.
        on_progress: called with the number of bytes read so far.
        **options: options of `Table.rows`, such as the `field` of documents.

    Returns:
        The corpus.

    Raises:
        DataError: a file cannot be read, or changes during the scan; one of the sides is empty; or
            the validation rows are larger than 64 MiB.
        OSError: the record cannot be written.

    Example:
        >>> import tempfile
        >>> from jaxformer.text import Documents, Pairs
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
        >>> corpus = scan_corpus(Documents, [folder / "a.jsonl"], validation_fraction=0.5)
        >>> corpus.counts.read, corpus.num_bytes, corpus.train.texts, corpus.validation.texts
        (2, 6, ('two',), ('one',))
        >>> _ = (folder / "a.tsv").write_text("one\teins\ntwo\tzwei\n\tdrei\n")
        >>> print(scan_corpus(Pairs, [folder / "a.tsv"], validation_fraction=0).counts)
        3 pairs read, 2 kept; 1 empty (line 3)
    """
    if not table.__module__.startswith("jaxformer."):
        cache_dir = None  # your own table may change how it reads rows
    paths_of = table.groups([str(path) for path in paths])
    states = iter(file_states(path for group in paths_of for path in group))
    files = [[next(states) for _ in group] for group in paths_of]

    def groups() -> Iterator[Iterator[Row]]:
        for group in paths_of:
            yield table.rows_of(group, len(paths_of) > 1, **options)
        # Else rows of a changed file would be stored under the fingerprint of the former ones.
        require_unchanged([state for states in files for state in states])

    def scan() -> dict[str, Any]:
        counts = Counts(table.unit)
        sizes = [sum(state.size for state in group) for group in files]

        def report(group: int, read: int) -> None:
            on_progress(sum(sizes[:group]) + min(read, sizes[group]))

        source = ", ".join(str(as_path(path)) for group in paths_of for path in group)
        values = _scan(table, groups(), validation_fraction, counts, source, report)
        on_progress(sum(sizes))
        return values

    kind = table.__module__, table.__qualname__, validation_fraction, options
    values = remembered(cache_path(cache_dir, "scans", _LAYOUT, *kind, files), scan)
    return _corpus(table, groups, values)


def _scan(
    table: type[Table],
    groups: Iterable[Iterator[Row]],
    fraction: float,
    counts: Counts,
    source: str,
    report: Callable[[int, int], None] = lambda group, read: None,
) -> dict[str, Any]:
    """Values of JSON: the arguments of a `Corpus`. `report` gets a group and its bytes so far."""
    key, names = _key(table), table.column_names()
    bins, sample = [(0, 0)] * NUM_BINS, EvenSample(_SAMPLE)
    # The rows that may be for validation: the holdout is known at the end.
    held_out = EvenSample(_LINES if table.is_cut else _VALIDATION)
    distinct: dict[str, set[str]] = {name: set() for name in table.categories}
    kind = table.__module__, table.__qualname__, fraction
    digest = hashlib.sha256(repr(kind).encode())
    num_rows = num_bytes = 0
    for group, rows in enumerate(groups):
        start = reported = num_bytes
        for row in table.clean(rows, counts):
            texts = [text_bytes(column) for column in row.columns]
            sizes = list(map(len, texts))
            digest.update(repr((group, row.is_start, sizes)).encode())
            digest.update(b"".join(texts))
            size = sum(sizes)
            num_rows, num_bytes = num_rows + 1, num_bytes + size
            side, number = text_draws(texts[key])
            place = min(int(side * NUM_BINS), NUM_BINS - 1)
            total, count = bins[place]
            bins[place] = total + (size if table.is_cut else 1), count + 1
            sample.add(row, size, number)
            # Of many rows, the holdout is far below twice the fraction.
            if side < max(2 * fraction, _FEW / num_rows):
                held_out.add(row, size, side)
            for name, values in distinct.items():
                values.add(row.columns[names.index(name)])
            if num_bytes - reported >= _REPORTED:
                reported = num_bytes
                report(group, num_bytes - start)
        report(group, num_bytes - start)
    holdout = Holdout.of_share(bins, fraction, cuts=table.is_cut)
    train, validation = _sides(holdout, sample, key)
    if not sample.is_complete:
        surplus, validation = _sides(holdout, held_out, key)
        if not table.is_cut and not held_out.is_complete and not surplus:
            raise DataError(
                f"{table.unit} for validation must be at most {_VALIDATION:,} bytes, got more with "
                f"validation_fraction={fraction}; lower it, or name data.validation_paths"
            )
    for side_name, side_rows in {"training": train, "validation": validation}.items():
        has_text = any(row.columns[0].strip() for row in side_rows)
        if not has_text and (fraction or side_name == "training"):
            layout = "" if table.is_cut else f"each line must be {table.layout}; "
            raise DataError(
                f"both sides of a split must have {table.unit}, got an empty {side_name} side with "
                f"validation_fraction={fraction} from {source}, {num_bytes:,} bytes of text: "
                f"{counts}; {layout}add data, or change the fraction"
            )
    return {
        "holdout": holdout, "counts": dataclasses.asdict(counts), "num_bytes": num_bytes,
        "fingerprint": digest.hexdigest(), "train": train, "validation": validation,
        "is_sampled": not sample.is_complete,
        "distinct": {name: sorted(values) for name, values in distinct.items()},
    }  # fmt: skip


def _sides(holdout: Holdout, sample: EvenSample, key: int) -> tuple[list[Row], list[Row]]:
    """The rows of a sample for training, and those for validation."""
    parts = [part for row in sample.rows for part in holdout.parts(row, key)]
    return [row for row, held in parts if not held], [row for row, held in parts if held]


def _key(table: type[Table]) -> int:
    """Index of the column whose text decides the side of a row."""
    return table.column_names().index(table.inputs[0])


def _corpus(table: type[Table], groups: Groups, values: dict[str, Any]) -> Corpus:
    """The corpus of the values of a scan, perhaps as they were read from a file."""
    sides = {
        name: table.of_rows(Row(*row) for row in values[name]) for name in ("train", "validation")
    }
    restored = {
        "holdout": Holdout(*values["holdout"]),
        "counts": Counts(**values["counts"]),
        "distinct": {name: tuple(texts) for name, texts in values["distinct"].items()},
    }
    return Corpus(table, groups, **{**values, **sides, **restored})
