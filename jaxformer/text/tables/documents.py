"""Documents: text files, whole or in pieces, and records of one text each."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from jaxformer.errors import DataError
from jaxformer.storage import as_path
from jaxformer.text.sources.counts import Counts
from jaxformer.text.sources.document_files import read_pieces
from jaxformer.text.sources.records import Row
from jaxformer.text.tables.table import Table
from jaxformer.text.tokenizers.pieces import require_texts


@dataclasses.dataclass(frozen=True)
class Documents(Table):
    r"""Texts as they are: nothing is stripped.

    A text file is one document, which is read in pieces of at most 128 KiB. So is each line of a
    JSON Lines file, and each row of a Parquet or Arrow file.

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
    def rows(cls, paths: Sequence[str], counts: Counts, *, field: str = "text") -> Iterator[Row]:
        """Reads a file in pieces; `field` is the key of the text in JSON, or its column."""
        return read_pieces(as_path(paths[0]), counts, field=field)

    @classmethod
    def clean(cls, rows: Iterable[Row], counts: Counts) -> Iterator[Row]:
        """Yields the rows as they are."""
        for row in rows:
            counts.read += row.is_start
            yield row
