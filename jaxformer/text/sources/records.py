"""Rows of files, and their counts: lines of TSV and CSV; JSON lines, Parquet and Arrow files."""

import csv
import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jaxformer.errors import DataError, first_line
from jaxformer.storage import as_path, open_regular
from jaxformer.text.sources.files import (
    BYTE_ORDER_MARK,
    missing_pyarrow,
    opened,
    read_lines,
    readable,
    unpacked_name,
)

_LINES_SUFFIXES = (".jsonl", ".ndjson", ".json")
_COLUMN_SUFFIXES = (".parquet", ".arrow")
_ROWS = 256  # rows of a Parquet file read at a time
_SHOWN = 3


class Row(NamedTuple):
    """A row of a file.

    Args:
        line: where it is, such as "17".
        columns: its texts.
        is_start: whether a document begins with it; only long documents have several rows.
    """

    line: str
    columns: Sequence[str]
    is_start: bool = True


@dataclasses.dataclass
class Counts:
    """Number of rows that were read, and of rows that were dropped for each reason.

    Args:
        unit: plural name of the rows, such as "pairs".
        read: rows in the files.
        dropped: number of dropped rows by reason, such as "empty", "misaligned" or "too long".
        lines: up to 3 lines of dropped rows by reason, such as "17", or "file.tsv:17" if there are
            several files. Lines count from 1.

    Example:
        >>> counts = Counts("pairs", read=29_000)
        >>> for line in ("4", "90"):
        ...     counts.drop("too long", line)
        >>> print(counts)
        29,000 pairs read, 28,998 kept; 2 too long (lines 4, 90)
    """

    unit: str
    read: int = 0
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)
    lines: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    @property
    def kept(self) -> int:
        """Number of rows that were not dropped."""
        return self.read - sum(self.dropped.values())

    def drop(self, reason: str, line: str) -> None:
        """Counts a dropped row."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        lines = self.lines.setdefault(reason, [])
        if len(lines) < _SHOWN:
            lines.append(line)

    def __str__(self) -> str:
        dropped = ", ".join(
            f"{n:,} {reason}{self._lines(reason)}" for reason, n in sorted(self.dropped.items())
        )
        totals = f"{self.read:,} {self.unit} read, {self.kept:,} kept"
        return f"{totals}; {dropped}" if dropped else totals

    def _lines(self, reason: str) -> str:
        lines = self.lines[reason]
        more = [] if len(lines) == self.dropped[reason] else ["..."]
        return f" (line{'s' if lines[1:] else ''} {', '.join(lines + more)})"


def has_records(file: pathlib.Path) -> bool:
    """Whether a file has records: JSON Lines, also compressed, `.parquet` or `.arrow`."""
    return unpacked_name(file).endswith((*_LINES_SUFFIXES, *_COLUMN_SUFFIXES))


def read_field(
    file: pathlib.Path, *, field: str, kind: type, noun: str, setting: str = ""
) -> Iterator[tuple[int, Any]]:
    """Yields a field of each record, of type `kind`, with its line; `noun` is for messages."""
    has_columns = unpacked_name(file).endswith(_COLUMN_SUFFIXES)
    records = _columns(file, field, setting) if has_columns else _json_lines(file)
    for number, record in records:
        if not isinstance(record.get(field), kind):
            keys = f"the keys {sorted(record)[:8]}"
            got = f"{record[field]!r:.40}" if field in record else keys
            raise DataError(
                f"{file}:{number}: a record must have {noun} under {field!r}{setting}, got {got}; "
                "correct it"
            )
        yield number, record[field]


def _json_lines(file: pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of lines."""
    with opened(file) as stream:
        for number, data in enumerate(stream, 1):
            if not data.strip():
                continue
            try:
                value = json.loads(data.decode().removeprefix(BYTE_ORDER_MARK))
            except (ValueError, RecursionError) as error:
                raise DataError(
                    f"{file}:{number}: a line must be JSON in UTF-8, got {first_line(error)}; "
                    "correct it"
                ) from error
            if not isinstance(value, dict):
                raise DataError(
                    f"{file}:{number}: a line must be a JSON object, got {value!r:.40}; correct it"
                )
            yield number, value


def _columns(file: pathlib.Path, field: str, setting: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a Parquet or Arrow file, with one column."""
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError as error:
        raise missing_pyarrow(file) from error
    library: Any = ipc
    number = 0
    try:
        with readable(file), open_regular(file) as source:
            if file.name.lower().endswith(".parquet"):
                table: Any = parquet.ParquetFile(source)
                names = table.schema_arrow.names
                batches = table.iter_batches(batch_size=_ROWS, columns=[field])
            else:  # in the file or the stream format
                is_file = source.read(6) == b"ARROW1"
                source.seek(0)
                reader = library.open_file(source) if is_file else library.open_stream(source)
                names = reader.schema.names
                indices = range(reader.num_record_batches) if is_file else ()
                batches = map(reader.get_batch, indices) if is_file else reader
            if field not in names:
                raise DataError(
                    f"'{file}' must have the column {field!r}{setting}, got {', '.join(names[:8])}"
                )
            for batch in batches:
                for value in batch.column(field).to_pylist():
                    number += 1
                    yield number, {field: value}
    except pyarrow.ArrowException as error:
        raise DataError(f"'{file}' cannot be read: {first_line(error)}; get it again") from error


def read_columns(path: str, names: Sequence[str]) -> Iterator[Row]:
    """Yields the rows of a CSV or TSV file; a first line with all names is a header."""
    file = as_path(path)
    rows: Iterator[Row] = (
        Row(str(i), line.split("\t")) for i, line in enumerate(read_lines(file), 1)
    )
    if is_csv := unpacked_name(file).endswith(".csv"):
        rows = _parsed(path)
    if (first := next(rows, None)) is None:
        return
    header = [column.strip().lower() for column in first.columns]
    if set(names) <= set(header):
        places = [header.index(name) for name in names]
        for line, columns, _ in rows:
            yield Row(line, [columns[i] for i in places] if len(columns) == len(header) else ())
        return
    if is_csv:
        raise DataError(
            f"a CSV file must have a header with {' and '.join(names)}, got the columns "
            f"{first.columns[:8]} in '{file}'; name the columns in its first line"
        )
    yield first
    yield from rows


def _parsed(path: str) -> Iterator[Row]:
    """Rows of CSV, whose columns may be in quotes, and then contain commas and line breaks."""
    reader = csv.reader(f"{line}\n" for line in read_lines(as_path(path)))
    try:
        for columns in reader:
            if columns:  # not a blank line
                yield Row(str(reader.line_num), columns)
    except csv.Error as error:
        raise DataError(
            f"{path}:{reader.line_num}: a row must be CSV, got {error}; fix it"
        ) from error
