"""Values in files of records: lines of JSON Lines files, rows of Parquet and Arrow files."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from jaxformer.errors import ConfigError, DataError, first_line
from jaxformer.storage import open_regular
from jaxformer.text.sources.files import BYTE_ORDER_MARK, PACKED, not_utf8, opened_text, remedy_of

MAX_RECORD = 2**26  # bytes of a line of JSON

Errors = Literal["strict", "skip"]

_LINES_SUFFIXES = (".jsonl", ".ndjson", ".json")
_COLUMN_SUFFIXES = (".parquet", ".arrow")
_LINES = (
    "a JSON Lines file must have one object on each line; convert an array with: jq -c '.[]', and "
    "read JSON as plain text from a file whose name ends in .txt"
)
_ROWS = 256  # rows of a Parquet file read at a time
_SHOWN = 5  # unreadable records that are named


class BadRecords:
    """Unreadable records of files: "strict" raises DataError, "skip" skips and counts them."""

    def __init__(self, errors: Errors = "strict") -> None:
        self.errors = errors
        self.count = 0
        self.lines: list[str] = []  # of the first ones, and what is wrong with them
        self.shown: list[str] = []

    def add(self, line: int, message: str, remedy: str = "fix it") -> None:
        """Raises DataError, or counts the record."""
        if self.errors == "strict":
            raise DataError(
                f"{message}; {remedy}, or skip unreadable records with data.errors 'skip'"
            )
        self.count += 1
        if len(self.shown) < _SHOWN:
            self.lines.append(str(line))
            self.shown.append(message)


class Record(NamedTuple):
    """A value in a file, and where it is."""

    value: Any
    line: int  # from 1; or the row of columns
    where: str  # file and line, for messages


def has_records(file: pathlib.Path) -> bool:
    """Whether a file has records: JSON Lines, also compressed, `.parquet` or `.arrow`."""
    return _plain_name(file).endswith((*_LINES_SUFFIXES, *_COLUMN_SUFFIXES))


def has_columns(file: pathlib.Path) -> bool:
    """Whether a file has columns: `.parquet` or `.arrow`."""
    return _plain_name(file).endswith(_COLUMN_SUFFIXES)


def read_records(
    file: pathlib.Path, bad: BadRecords, *, field: str, kind: type, noun: str, setting: str = ""
) -> Iterator[Record]:
    """Reads one field of every record of a file: JSON Lines, Parquet or Arrow.

    Values of another type than `kind` are bad records; blank lines are skipped. `noun` (such as
    "a text") and `setting`, the config key of the field, are for messages.
    """
    records: Iterator[Record]
    if has_columns(file):
        values = enumerate(_column(file, field, setting), 1)
        records = (Record(value, row, f"'{file}', row {row:,}") for row, value in values)
    else:
        records = _json_lines(file, bad, field, noun, setting)
    for record in records:
        if isinstance(record.value, kind):
            yield record
        else:
            got = f"{record.value!r:.40}"
            message = f"{record.where}, must have {noun} under {field!r}{setting}, got {got}"
            bad.add(record.line, message)


def _plain_name(file: pathlib.Path) -> str:
    name = file.name.lower()
    return name.removesuffix(next(filter(name.endswith, PACKED), ""))


def _json_lines(
    file: pathlib.Path, bad: BadRecords, field: str, noun: str, setting: str
) -> Iterator[Record]:
    line = offset = 0
    with opened_text(file) as stream:
        while data := stream.readline(MAX_RECORD + 1):
            line += 1
            where = f"'{file}', line {line:,}"
            if len(data) > MAX_RECORD:
                raise DataError(
                    f"a line must have at most {MAX_RECORD:,} bytes, got more in {where}, from "
                    f"byte {offset:,} on; is it a JSON Lines file?"
                )
            begin, offset = offset, offset + len(data)
            if not data.strip():
                continue
            try:
                value = json.loads(data.decode().removeprefix(BYTE_ORDER_MARK))
            except UnicodeDecodeError as error:
                message = not_utf8(error, file, line, begin + error.start)
                bad.add(line, message, remedy_of(error))
            except (ValueError, RecursionError) as error:
                reason = str(error) or "it is nested too deep"
                bad.add(line, f"{where}, must be JSON: {reason}", _json_remedy(data))
            else:
                if isinstance(value, dict) and field in value:
                    yield Record(value[field], line, where)
                else:
                    keys = f"the keys {sorted(value)[:8]}" if isinstance(value, dict) else None
                    has = keys or type(value).__name__
                    message = f"{where}, must have {noun} under {field!r}{setting}, it has {has}"
                    bad.add(line, message, "fix it" if keys else _LINES)


def _json_remedy(line: bytes) -> str:
    """Remedy for a line that is not JSON."""
    if b"\r" in line.strip():
        return "end lines in \\n, not in \\r alone, for example with: tr '\\r' '\\n'"
    return _LINES if line.startswith(b"[") or line.strip() == b"{" else "fix it"


def _column(file: pathlib.Path, field: str, setting: str = "") -> Iterator[Any]:
    """Reads a column of a Parquet or Arrow file; a text that is not UTF-8 is bytes."""
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError:
        raise ConfigError(
            f"'{file}' needs pyarrow, which is missing; pip install \"jaxformer[data]\""
        ) from None
    library: Any = ipc
    kind = "Arrow" if file.name.lower().endswith(".arrow") else "Parquet"
    try:
        with open_regular(file) as source:
            if kind == "Parquet":
                table: Any = parquet.ParquetFile(source)
                _require_column(file, field, setting, table.schema_arrow.names)
                for batch in table.iter_batches(batch_size=_ROWS, columns=[field]):
                    yield from _values(batch.column(0))
                return
            # An Arrow file is in the stream or the file format.
            is_file = source.read(6) == b"ARROW1"
            source.seek(0)
            reader = library.open_file(source) if is_file else library.open_stream(source)
            _require_column(file, field, setting, reader.schema.names)
            batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
            for batch in batches:
                yield from _values(batch.column(field))
    except (OSError, pyarrow.ArrowException) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise DataError(f"'{file}' cannot be read as {kind}: {reason}") from None


def _values(column: Any) -> Iterator[Any]:
    """Values of a column of a batch."""
    try:
        yield from column.to_pylist()
        return
    except UnicodeDecodeError:
        pass
    for value in column:
        try:
            yield value.as_py()
        except UnicodeDecodeError as error:
            yield error.object


def _require_column(file: pathlib.Path, field: str, setting: str, names: list[str]) -> None:
    if field not in names:
        raise DataError(
            f"'{file}' must have the column {field!r}{setting}, got {', '.join(names[:8])}"
        )
