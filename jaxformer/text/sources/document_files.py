"""Documents in files of any size, read in pieces: text, JSON Lines, Parquet and Arrow."""

import contextlib
import io
import pathlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from jaxformer.errors import DataError
from jaxformer.text.sources.files import (
    BYTE_ORDER_MARK,
    decoded,
    not_utf8,
    opened_text,
    remedy_of,
    unix_lines,
)
from jaxformer.text.sources.record_files import MAX_RECORD, BadRecords, has_records, read_records

_PIECE = 2**17  # bytes of a text file read at a time


class Piece(NamedTuple):
    """A part of a document, or all of it."""

    text: str
    is_start: bool  # whether a document begins with it


def read_pieces(file: pathlib.Path, bad: BadRecords, *, field: str = "text") -> Iterator[Piece]:
    r"""Reads the documents of a file; a text file in pieces of at most 128 KiB.

    A text file is one document. So is each line of a JSON Lines file (`.jsonl`, `.ndjson`), and
    each row of a Parquet or Arrow file (needs pyarrow). Text is UTF-8; `\r\n` and `\r` become `\n`.
    Text and JSON Lines files may be compressed (`.gz`, `.bz2`, `.xz`; `.zst` needs zstandard).

    A text file is cut before a line break (else a space) that follows another character. No
    tokenizer of this package has a token that spans such a cut. Blank records are skipped. A
    folder, and a file without text, is a DataError.
    """
    is_empty = True
    pieces = _records(file, bad, field) if has_records(file) else _blocks(file, bad)
    try:
        for piece in pieces:
            is_empty = False
            yield piece
    except DataError:
        with contextlib.suppress(OSError):
            if file.is_dir():
                raise DataError(
                    f"a path must be a file, got the folder '{file}'; try '{file}/**/*.txt'"
                ) from None
        raise
    if is_empty:
        raise DataError(f"a text file must have text, got the empty '{file}'; leave it out")


def _records(file: pathlib.Path, bad: BadRecords, field: str) -> Iterator[Piece]:
    """Documents of a file of records."""
    for record in read_records(
        file, bad, field=field, kind=str, noun="a text", setting=" (data.field)"
    ):
        text = record.value
        if not text.strip():
            continue
        try:
            text.encode()
        except UnicodeEncodeError:
            bad.add(record.line, f"{record.where}, has half of a surrogate pair")
        else:
            yield Piece(unix_lines(text), True)


def _blocks(file: pathlib.Path, bad: BadRecords) -> Iterator[Piece]:
    """Pieces of a text file, which is one document."""
    line, offset, left, blank, is_start = 1, 0, b"", "", True
    with opened_text(file) as stream:
        while data := _to_last_cut(stream, left, file, offset):
            piece, left = data
            text = _decoded(piece, file, line, offset, bad)
            text = text if offset else text.removeprefix(BYTE_ORDER_MARK)
            line, offset = line + piece.count(b"\n"), offset + len(piece)
            text = blank + unix_lines(text)
            if not is_start or text.strip():
                yield Piece(text, is_start)
                is_start, text = False, ""
            blank = text


def _to_last_cut(
    stream: BinaryIO | io.BufferedReader, left: bytes, file: pathlib.Path, offset: int
) -> tuple[bytes, bytes] | None:
    """Data before the last cut in 128 KiB, or the next one, and the rest; None at the end."""
    data, size = left, _PIECE
    while True:
        if len(data) < size:
            data += stream.read(size - len(data))
        if len(data) < size:  # the end of the file
            return (data, b"") if data else None
        if end := _last_cut(data[:size]):
            return data[:end], data[end:]
        if size >= MAX_RECORD:
            raise DataError(
                f"a text file must have a line break or a space in any {MAX_RECORD:,} bytes, got "
                f"none in '{file}' from byte {offset:,} on; is it a text file?"
            )
        size = min(2 * size, MAX_RECORD)


def _last_cut(data: bytes) -> int:
    """Finds the last line break, else space, that follows another character: there data is cut."""
    for sign in (b"\n", b"\r", b" "):
        place = data.rfind(sign)
        while place > 0:
            before = data[max(0, place - 4) : place].decode(errors="ignore")
            if not before[-1:].isspace():
                return place
            place = data.rfind(sign, 0, place)
    return 0


def _decoded(data: bytes, file: pathlib.Path, line: int, offset: int, bad: BadRecords) -> str:
    """Decodes a part of a text file; lines that are not UTF-8, or have NUL, are bad."""
    try:
        return decoded(data)
    except UnicodeDecodeError:
        texts = []
        for part in data.splitlines(keepends=True):
            try:
                texts.append(decoded(part))
            except UnicodeDecodeError as error:
                message = not_utf8(error, file, line, offset + error.start)
                bad.add(line, message, remedy_of(error))
                texts.append("\n")
            line, offset = line + part.count(b"\n"), offset + len(part)
        return "".join(texts)
