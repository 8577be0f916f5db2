"""Documents in files of any size, read piece by piece: text, JSON lines and Parquet."""

import io
import json
import pathlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Literal, NamedTuple

from jaxformer.errors import ConfigError, DataError
from jaxformer.text.files import opened

__all__ = ["BadRecords", "Errors", "Piece", "read_pieces"]

Errors = Literal["strict", "skip"]

_PIECE = 2**17  # bytes of a text file that are read at a time
_MAX_RECORD = 2**26  # bytes of a line of JSON, or of a text file without a place to cut it at
_SHOWN = 5  # records that could not be read and are named
_CONVERT = "convert it with: iconv -f LATIN1 -t UTF-8"
_MARK = "\ufeff"  # the byte order mark


class Piece(NamedTuple):
    """A part of a document, or all of it.

    Args:
        text: with a newline character at the end of each line, whatever the file has.
        is_start: whether the document begins with it.
        end: where the next piece begins: byte in the unpacked file, or row of a Parquet file.
    """

    text: str
    is_start: bool
    end: int


class BadRecords:
    """What of the files could not be read: an error, or left out and counted.

    Args:
        errors: "strict" raises DataError for the first, "skip" leaves out and counts.
    """

    def __init__(self, errors: Errors = "strict") -> None:
        self._errors = errors
        self.count = 0
        self.shown: list[str] = []

    def add(self, what: str, remedy: str = "mend it") -> None:
        """Raises DataError, or counts.

        Args:
            what: file, line and what is wrong with it.
            remedy: what to do.
        """
        if self._errors == "strict":
            raise DataError(
                f"{what}; {remedy}, or leave out what cannot be read by data.errors 'skip'"
            )
        self.count += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(what)


def read_pieces(
    file: pathlib.Path, bad: BadRecords, *, field: str = "text", start: int = 0
) -> Iterator[Piece]:
    r"""Reads the documents of a file, a text file in pieces of at most 128 KiB.

    A text file is one document; each line of a JSON Lines file (`.jsonl`, `.ndjson`) and each row
    of a Parquet file (`.parquet`, with pyarrow) is one. Text is UTF-8; `\r\n` and `\r` become `\n`.
    Names may also end in `.gz`, or, with zstandard, in `.zst`.

    A text file is cut before a line break, or else a space, that follows another character, where
    no tokenizer of this package has a token that spans the cut.

    Args:
        file: the file.
        bad: takes what cannot be read.
        field: key of the text in a line of JSON, or column of it.
        start: where to begin: the `end` of the piece before.

    Yields:
        The pieces; those without any text but spaces are left out.

    Raises:
        DataError: the file is missing or damaged, a line is too long, or there is no such column.
        ConfigError: a package that reads the file is missing.
    """
    name = file.name.lower().removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".parquet"):
        yield from _rows(file, bad, field, start)
        return
    with opened(file) as stream:
        _skip(stream, start)
        read = _records if name.endswith((".jsonl", ".ndjson")) else _blocks
        yield from read(stream, file, bad, field, start)


def _skip(stream: BinaryIO | io.BufferedReader, count: int) -> None:
    if stream.seekable():
        stream.seek(count)
        return
    while count and (data := stream.read(min(count, _PIECE))):
        count -= len(data)


def _blocks(
    stream: BinaryIO | io.BufferedReader, file: pathlib.Path, bad: BadRecords, _: str, start: int
) -> Iterator[Piece]:
    """Pieces of a text file, which is one document; each depends on where it begins alone."""
    offset, left, blank, began = start, b"", "", start > 0
    while data := _to_last_cut(stream, left, file, offset):
        piece, left = data
        text = _decoded(piece, file, offset, bad)
        text = text if offset else text.removeprefix(_MARK)
        offset += len(piece)
        text = blank + text.replace("\r\n", "\n").replace("\r", "\n")
        if began or text.strip():
            yield Piece(text, not began, offset)
            began, text = True, ""
        blank = text


def _to_last_cut(
    stream: BinaryIO | io.BufferedReader, left: bytes, file: pathlib.Path, offset: int
) -> tuple[bytes, bytes] | None:
    """Reads to the last place to cut in the next 128 KiB, or the first behind it.

    Returns:
        What is before that place, and what was read behind it; None at the end of the file.
    """
    data, size = left, _PIECE
    while True:
        if len(data) < size:
            data += stream.read(size - len(data))
        if len(data) < size:  # the end of the file
            return (data, b"") if data else None
        if end := _last_cut(data[:size]):
            return data[:end], data[end:]
        if size >= _MAX_RECORD:
            raise DataError(
                f"a text file must have a line break or a space in any {_MAX_RECORD:,} bytes, got "
                f"none in '{file}' from byte {offset:,} on; is it a text file?"
            )
        size = min(2 * size, _MAX_RECORD)


def _last_cut(data: bytes) -> int:
    """Where data can be cut: at its last line break, or else space, behind another character."""
    for sign in (b"\n", b"\r", b" "):
        place = data.rfind(sign)
        while place > 0:
            before = data[max(0, place - 4) : place].decode(errors="ignore")
            if not before[-1:].isspace():
                return place
            place = data.rfind(sign, 0, place)
    return 0


def _decoded(data: bytes, file: pathlib.Path, offset: int, bad: BadRecords) -> str:
    """Decodes a part of a text file; lines that are not UTF-8 are bad."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        good = []
        for line in data.splitlines(keepends=True):
            try:
                good.append(line.decode())
            except UnicodeDecodeError as error:
                bad.add(_not_utf8(error, file, offset + error.start), _CONVERT)
                good.append("\n")
            offset += len(line)
        return "".join(good)


def _not_utf8(error: UnicodeDecodeError, file: pathlib.Path, byte: int) -> str:
    found = error.object[error.start]
    line = _line_at(file, byte)
    return (
        f"text must be UTF-8, got the byte 0x{found:02X} in '{file}', line {line:,}, byte {byte:,}"
    )


def _line_at(file: pathlib.Path, byte: int) -> int:
    """Number of the line that a byte of a file is in, from 1."""
    line = 1
    with opened(file) as stream:
        while byte > 0 and (data := stream.read(min(byte, _PIECE))):
            line += data.count(b"\n")
            byte -= len(data)
    return line


def _records(
    stream: BinaryIO | io.BufferedReader,
    file: pathlib.Path,
    bad: BadRecords,
    field: str,
    start: int,
) -> Iterator[Piece]:
    """Documents of a JSON Lines file."""
    offset = start
    while line := stream.readline(_MAX_RECORD + 1):
        if len(line) > _MAX_RECORD:
            raise DataError(
                f"a line must have at most {_MAX_RECORD:,} bytes, got more in '{file}', line "
                f"{_line_at(file, offset):,}, from byte {offset:,} on; is it a JSON Lines file?"
            )
        text = _record(line, file, offset, field, bad) if line.strip() else None
        offset += len(line)
        if text is not None and text.strip():
            yield Piece(text.replace("\r\n", "\n").replace("\r", "\n"), True, offset)


def _record(
    line: bytes, file: pathlib.Path, offset: int, field: str, bad: BadRecords
) -> str | None:
    """The text of a line of JSON; None where it is bad."""
    try:
        value = json.loads(line.decode().removeprefix(_MARK))
    except UnicodeDecodeError as error:
        bad.add(_not_utf8(error, file, offset + error.start), _CONVERT)
        return None
    except (ValueError, RecursionError) as error:
        reason = str(error) or "it is nested too deep"
        bad.add(f"'{file}', line {_line_at(file, offset):,}, must be JSON: {reason}")
        return None
    text = value.get(field) if isinstance(value, dict) else None
    if not isinstance(text, str):
        has = f"the keys {sorted(value)[:8]}" if isinstance(value, dict) else type(value).__name__
        found = f"got {type(text).__name__} there" if text is not None else f"it has {has}"
        where = f"'{file}', line {_line_at(file, offset):,}"
        bad.add(f"{where}, must have a text under {field!r} (data.field), {found}")
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        bad.add(f"'{file}', line {_line_at(file, offset):,}, has half of a surrogate pair")
        return None
    return text


def _rows(file: pathlib.Path, bad: BadRecords, field: str, start: int) -> Iterator[Piece]:
    """Documents of a Parquet file."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ConfigError(
            f"'{file}' needs pyarrow, which is missing; pip install \"jaxformer[data]\""
        ) from None
    row = 0
    try:
        table: Any = parquet.ParquetFile(file)
        names = table.schema_arrow.names
        if field not in names:
            raise DataError(
                f"'{file}' must have the column {field!r} (data.field), got {', '.join(names[:8])}"
            )
        for batch in table.iter_batches(batch_size=256, columns=[field]):
            for value in batch.column(0).to_pylist():
                row += 1
                if row <= start:
                    continue
                if not isinstance(value, str):
                    bad.add(
                        f"'{file}', row {row:,}, must have a text in {field!r}, got {value!r:.40}"
                    )
                elif value.strip():
                    yield Piece(value.replace("\r\n", "\n").replace("\r", "\n"), True, row)
    except (OSError, ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"'{file}' cannot be read as Parquet: {reason}") from None
