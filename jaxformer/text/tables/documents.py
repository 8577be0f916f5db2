"""Documents: text files of any size, read in pieces, and records of one text each."""

import dataclasses
import io
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Self

from jaxformer.errors import DataError
from jaxformer.storage import as_path
from jaxformer.text.sources.files import BYTE_ORDER_MARK, decoded, opened
from jaxformer.text.sources.records import Counts, Row, has_records, read_field
from jaxformer.text.tables.table import Table
from jaxformer.text.tokenizers.texts import require_texts

_PIECE = 2**17  # bytes of a text file read at a time
# Shorter paragraphs and lines, such as headings, often repeat without leaking validation text.
LONG = 40
_BLANK_LINES = re.compile(r"(\n\s*\n)")


@dataclasses.dataclass(frozen=True)
class Documents(Table):
    r"""Texts as they are: nothing is stripped.

    A text file is one document, which is read in pieces of at most 128 KiB. So is each line of a
    JSON Lines file (`.jsonl`, `.ndjson`), and each row of a Parquet or Arrow file (needs pyarrow).
    Text is UTF-8; `\r\n` and `\r` become `\n`. Text and JSON Lines files may be compressed (`.gz`,
    `.bz2`, `.xz`; `.zst` needs pyarrow). Blank files and records are skipped.

    A text file is cut before a line break (else a space) that follows another character. No
    tokenizer of this package has a token that spans such a cut.

    Args:
        texts: the texts.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.jsonl")
        >>> _ = path.write_text('{"text": "one\\n"}\n{"text": "two"}\n')
        >>> documents, counts = Documents.read([str(path)])
        >>> documents.texts, str(counts)
        (('one\n', 'two'), '2 documents read, 2 kept')
    """

    unit = "documents"
    layout = 'text, or an object such as {"text": "..."}'
    inputs = ("texts",)
    is_cut = True

    texts: tuple[str, ...]

    @classmethod
    def of(cls, documents: Sequence[str]) -> Self:
        """Makes documents of a list of texts; blank ones are left out.

        Raises:
            DataError: the documents are a single text, one is not valid Unicode, or all are blank.

        Example:
            >>> Documents.of(["a text", " "]).texts
            ('a text',)
        """
        require_texts(documents)
        texts = tuple(document for document in documents if document.strip())
        if not texts:
            raise DataError(f"documents must have text, got none in {len(documents)}; add text")
        return cls(texts)

    @classmethod
    def rows(cls, paths: Sequence[str], *, field: str = "text") -> Iterator[Row]:
        """Reads a file in pieces; `field` is the key of the text in JSON, or its column."""
        file = as_path(paths[0])
        return _records(file, field) if has_records(file) else _pieces(file)

    @classmethod
    def clean(cls, rows: Iterable[Row], counts: Counts) -> Iterator[Row]:
        """Yields the rows as they are."""
        for row in rows:
            counts.read += row.is_start
            yield row


def _records(file: pathlib.Path, field: str) -> Iterator[Row]:
    """Documents of a file of records."""
    noun, setting = "a text", " (data.field)"
    for line, text in read_field(file, field=field, kind=str, noun=noun, setting=setting):
        if not text.strip():
            continue
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{file}:{line}: text must be Unicode, got half of a surrogate pair; correct it"
            ) from error
        yield Row(str(line), (_unix_lines(text),))


def _pieces(file: pathlib.Path) -> Iterator[Row]:
    """Pieces of a text file, which is one document."""
    line, is_start, left = 1, True, b""
    with opened(file) as stream:
        while True:
            piece, left = _to_last_cut(stream, left)
            if not piece:
                return
            text = decoded(piece, file, line)
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


def _unix_lines(text: str) -> str:
    r"""Replaces `\r\n` and `\r` by `\n`."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def python_documents() -> list[str]:
    """Returns the documentation that ships with Python, about 0.5 MB; downloads nothing.

    Returns:
        The topics of `help()`, one document each, sorted by name.

    Example:
        >>> documents = python_documents()
        >>> 400_000 < sum(map(len, documents)) < 800_000
        True
    """
    from pydoc_data.topics import topics

    return [topics[name] for name in sorted(topics)]


BUILT_IN = {"python": python_documents}
"""Documents that need no files, by `data.source`."""


def paragraphs(document: str) -> Iterator[str]:
    """Yields the paragraphs of at least 40 characters; shorter ones do not matter for a split."""
    for part in _BLANK_LINES.split(document)[::2]:
        if len(part.strip()) >= LONG:
            yield part.strip()


def without_repeats(documents: Sequence[str]) -> list[str]:
    """Keeps each paragraph of at least 40 characters once, where it is first; drops blank texts."""
    seen: set[str] = set()
    texts = []
    for document in documents:
        parts = _BLANK_LINES.split(document) + [""]
        pairs = zip(parts[::2], parts[1::2], strict=True)
        text = "".join(text + blank for text, blank in pairs if text.strip() not in seen)
        seen.update(paragraphs(document))
        if text.strip():
            texts.append(text)
    return texts
