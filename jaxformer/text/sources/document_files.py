"""Documents in files of any size, read in pieces: text, JSON Lines, Parquet and Arrow."""

import io
import pathlib
from collections.abc import Iterator
from typing import BinaryIO

from jaxformer.errors import DataError
from jaxformer.text.sources.counts import Counts
from jaxformer.text.sources.files import (
    BYTE_ORDER_MARK,
    decoded,
    not_utf8,
    opened,
)
from jaxformer.text.sources.records import Row, has_records, read_field

_PIECE = 2**17  # bytes of a text file read at a time


def read_pieces(file: pathlib.Path, counts: Counts, *, field: str = "text") -> Iterator[Row]:
    r"""Reads the documents of a file; a text file in pieces of at most 128 KiB.

    A text file is one document. So is each line of a JSON Lines file (`.jsonl`, `.ndjson`), and
    each row of a Parquet or Arrow file (needs pyarrow). Text is UTF-8; `\r\n` and `\r` become `\n`.
    Text and JSON Lines files may be compressed (`.gz`, `.bz2`, `.xz`; `.zst` needs pyarrow).

    A text file is cut before a line break (else a space) that follows another character. No
    tokenizer of this package has a token that spans such a cut. Blank records are skipped. A file
    without text is a DataError.
    """
    rows = _records(file, counts, field) if has_records(file) else _pieces(file, counts)
    is_empty = True
    for row in rows:
        is_empty = False
        yield row
    if is_empty:
        raise DataError(f"a text file must have text, got the empty '{file}'; leave it out")


def _records(file: pathlib.Path, counts: Counts, field: str) -> Iterator[Row]:
    """Documents of a file of records."""
    noun, setting = "a text", " (data.field)"
    for line, text in read_field(file, counts, field=field, kind=str, noun=noun, setting=setting):
        if not text.strip():
            continue
        try:
            text.encode()
        except UnicodeEncodeError:
            message = "text must be Unicode, got half of a surrogate pair"
            counts.unreadable(f"{file}:{line}", message)
        else:
            yield Row(str(line), (_unix_lines(text),))


def _pieces(file: pathlib.Path, counts: Counts) -> Iterator[Row]:
    """Pieces of a text file, which is one document."""
    line, is_start, left = 1, True, b""
    with opened(file) as stream:
        while True:
            piece, left = _to_last_cut(stream, left)
            if not piece:
                return
            text = _decoded(piece, file, line, counts)
            text = _unix_lines(text.removeprefix(BYTE_ORDER_MARK) if is_start else text)
            if not is_start or text.strip():
                yield Row(str(line), (text,), is_start)
                is_start = False
            line += piece.count(b"\n")


def _to_last_cut(stream: BinaryIO | io.BufferedReader, left: bytes) -> tuple[bytes, bytes]:
    """Data before the last cut in 128 KiB, or in more if there is none, and the rest."""
    data, size = left, _PIECE
    while True:
        data += stream.read(max(size - len(data), 0))
        if len(data) < size:  # the end of the file
            return data, b""
        if end := _last_cut(data[:size]):
            return data[:end], data[end:]
        size *= 2


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


def _decoded(data: bytes, file: pathlib.Path, line: int, counts: Counts) -> str:
    """Decodes a part of a text file; lines that are not UTF-8, or have NUL, are unreadable."""
    try:
        return decoded(data)
    except UnicodeDecodeError:
        texts = []
        for number, part in enumerate(data.split(b"\n"), line):
            try:
                texts.append(decoded(part))
            except UnicodeDecodeError as error:
                counts.unreadable(f"{file}:{number}", not_utf8(error))
                texts.append("")
        return "\n".join(texts)


def _unix_lines(text: str) -> str:
    r"""Replaces `\r\n` and `\r` by `\n`."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
