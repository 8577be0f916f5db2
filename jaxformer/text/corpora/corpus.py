"""Corpora: rows of any number, of files or in memory, scanned once, and then read in parts."""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jaxformer.storage import as_path
from jaxformer.text.corpora.holdout import Holdout
from jaxformer.text.corpora.scan import Scan
from jaxformer.text.sources.counts import Counts, Errors
from jaxformer.text.sources.files import FileState, file_states, require_unchanged
from jaxformer.text.sources.records import Row
from jaxformer.text.store.store import cache_path, remembered
from jaxformer.text.tables.table import Table, row_size

_LAYOUT = 9  # version of what scans remember


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Rows of files or in memory, a share of which is for validation.

    The side of a row depends on a hash of its first text (of the first of `Table.inputs`), so the
    same text is never on both sides, and one more row changes the side of hardly any other. Long
    documents are rows of at most 128 KiB. The one where the share is reached is cut at the nearest
    line break: its end is for validation. So a single document is split into head and tail.

    Args:
        table: the kind of rows.
        options: options of `Table.rows`.
        files: states of the files, in the groups that are read together.
        holdout: which rows are for validation.
        counts: counts of the rows read and dropped, on both sides.
        num_bytes: bytes of their texts, in UTF-8.
        fingerprint: SHA-256 of the rows, in their order, and of the options for splitting.
        train: training rows, to train a tokenizer on: all, or a uniform sample.
        validation: validation rows, None if there are none. Of documents, perhaps only a sample.
        is_sampled: whether `train` is not all of the training rows.
        distinct: distinct texts of each column of `Table.categories`, sorted.
        rows: the rows, if they are not in files.
    """

    table: type[Table]
    options: dict[str, Any]
    files: tuple[tuple[FileState, ...], ...]
    holdout: Holdout
    counts: Counts
    num_bytes: int
    fingerprint: str
    train: Any
    validation: Any
    is_sampled: bool
    distinct: dict[str, tuple[str, ...]]
    rows: Table | None = None

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
        source = f"{len(rows):,} {rows.unit}"
        scan = Scan(type(rows), validation_fraction)
        scan.read(0, rows.records())
        return _corpus(type(rows), scan.result(source), rows=rows)

    @property
    def key(self) -> int:
        """Index of the column whose text decides the side of a row."""
        return self.table.column_names().index(self.table.inputs[0])

    def parts(self, size: int, start: int = 0) -> "Iterator[CorpusPart]":
        """Reads rows of both sides from row `start` on, in parts of about `size` bytes.

        Raises DataError in place of the last part if a file has changed since the scan.
        """
        rows: list[Row] = []
        num_bytes = 0
        for row in itertools.islice(self._read(), start, None):
            if num_bytes >= size:
                start += len(rows)
                yield CorpusPart(self._clean(rows), num_bytes, start)
                rows, num_bytes = [], 0
            rows.append(row)
            num_bytes += max(1, row_size(row))
        require_unchanged([*itertools.chain(*self.files)])
        yield CorpusPart(self._clean(rows), num_bytes, None)

    def _clean(self, rows: list[Row]) -> list[Row]:
        return list(self.table.clean(rows, Counts(self.table.unit)))

    def _read(self) -> Iterator[Row]:
        """The rows of all files, or of the table in memory, as they were read."""
        if self.rows is not None:
            return self.rows.records()
        counts = Counts(self.table.unit, errors=self.counts.errors)  # the scan has counted them
        groups = ([state.path for state in states] for states in self.files)
        return itertools.chain.from_iterable(
            self.table.rows_of(group, len(self.files) > 1, counts, **self.options)
            for group in groups
        )


class CorpusPart(NamedTuple):
    """Consecutive rows of a corpus, of both sides."""

    rows: list[Row]
    num_bytes: int  # of all texts that were read for it, including dropped rows
    end: int | None  # number of the row that the next part begins with; None in the last one


def scan_corpus(
    table: type[Table],
    paths: Sequence[str | pathlib.Path],
    *,
    validation_fraction: float,
    errors: Errors = "strict",
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
        errors: "strict", or "skip" to skip and count unreadable records.
        cache_dir: folder for the records of scans; None for no records.
        on_progress: called with the number of bytes read so far.
        **options: options of `Table.rows`, such as the `field` of documents.

    Returns:
        The corpus.

    Raises:
        DataError: a file cannot be read, or changes during the scan; one of the sides is empty; or
            the validation rows are larger than 64 MiB.
        StorageError: the record cannot be written.

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
    groups = table.groups([str(path) for path in paths])
    states_in_order = iter(file_states(path for group in groups for path in group))
    files = [[next(states_in_order) for _ in group] for group in groups]

    def scan() -> dict[str, Any]:
        scanned = Scan(table, validation_fraction, errors)
        done = 0
        for index, (group, states) in enumerate(zip(groups, files, strict=True)):
            size = sum(state.size for state in states)
            rows = table.rows_of(group, len(groups) > 1, scanned.counts, **options)
            scanned.read(index, rows, lambda read: on_progress(done + min(read, size)))  # noqa: B023
            require_unchanged(states)
            done += size
            on_progress(done)
        names = ", ".join(str(as_path(path)) for group in groups for path in group)
        return scanned.result(names)

    kind = table.__module__, table.__qualname__, validation_fraction, errors, options
    values = remembered(cache_path(cache_dir, "scans", _LAYOUT, *kind, files), scan)
    return _corpus(table, values, options=options, files=tuple(map(tuple, files)))


def _corpus(table: type[Table], values: dict[str, Any], **source: Any) -> Corpus:
    """The corpus of what a scan has found, perhaps as it was read from a file."""
    sides = {
        name: table.of_rows(Row(*row) for row in values[name]) for name in ("train", "validation")
    }
    restored = {
        "holdout": Holdout(*values["holdout"]),
        "counts": Counts(**values["counts"]),
        "distinct": {name: tuple(texts) for name, texts in values["distinct"].items()},
    }
    return Corpus(table, **{"options": {}, "files": (), **source, **values, **sides, **restored})
