"""Text larger than memory: files that are scanned once and then read in pieces."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jaxformer.errors import DataError
from jaxformer.text.sources.document_files import Piece, read_pieces
from jaxformer.text.sources.record_files import (
    BadRecords,
    Errors,
    content_fingerprint,
    has_columns,
)
from jaxformer.text.sources.scans import (
    EvenSample,
    FileState,
    file_stamp,
    read_state,
    require_unchanged,
    scan_stem,
    text_draws,
)
from jaxformer.text.store.shards import remembered

__all__ = ["Corpus", "CorpusPart", "Place", "recorded_corpus", "scan_corpus"]

_IN_MEMORY = 2**26  # bytes; smaller text is kept in memory
_SAMPLE = 2**25  # bytes of training text for training a tokenizer
_LINES = 2**18  # bytes of validation text for prompts
_TUPLES = "skipped_shown", "sample", "validation_sample"  # lists in JSON


class Place(NamedTuple):
    """Start of the next piece of a corpus: index of the file, and offset in the file."""

    file: int = 0
    within: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """The text of files, a share of which is for validation.

    A piece is a document, or at most 128 KiB of a text file. Its side depends only on its text. So
    the same document is never on both sides.

    Args:
        files: the files.
        field: key of the text in JSON, or its column.
        errors: "strict", or "skip" to skip unreadable records.
        validation_fraction: share of the text for validation, from 0 to less than 1.
        num_documents: number of documents on both sides.
        num_bytes: bytes of their text, in UTF-8.
        skipped: number of skipped records.
        skipped_shown: the first skipped records.
        documents: all documents if they fit in memory, else None.
        sample: uniform sample of the training pieces, for training a tokenizer.
        validation_sample: uniform sample of the validation pieces, smaller.
    """

    files: tuple[FileState, ...]
    field: str
    errors: Errors
    validation_fraction: float
    num_documents: int
    num_bytes: int
    skipped: int
    skipped_shown: tuple[str, ...]
    documents: tuple[str, ...] | None = None
    sample: tuple[str, ...] = ()
    validation_sample: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the files' content and of the options for reading and splitting it."""
        options = f"{self.field}\0{self.errors}\0{self.validation_fraction}"
        return content_fingerprint(self.files, options)

    @property
    def parts(self) -> "tuple[CorpusPart, CorpusPart]":
        """The text for training and for validation."""
        return CorpusPart(self, is_validation=False), CorpusPart(self, is_validation=True)

    def pieces(self, start: Place) -> Iterator[tuple[Piece, bool, Place]]:
        """Reads the text.

        Args:
            start: `Place()`, or the place after an earlier piece.

        Yields:
            A piece, whether it is for validation, and the place after it.

        Raises:
            DataError: a file has changed or cannot be read.
        """
        bad = BadRecords(self.errors)
        for index in range(start.file, len(self.files)):
            state = self.files[index]
            path = pathlib.Path(state.path)
            require_unchanged(state)
            within = start.within if index == start.file else 0
            for piece in read_pieces(path, bad, field=self.field, start=within):
                side, _ = text_draws(piece.text.encode())
                yield piece, side < self.validation_fraction, Place(index, piece.end)
            require_unchanged(state)

    def require_unchanged(self, start: Place, end: Place | None) -> None:
        """Raises DataError if a file with text between two places has changed.

        Args:
            start: first place.
            end: last place; None for the end of the text.
        """
        for state in self.files[start.file : None if end is None else end.file + 1]:
            require_unchanged(state)


class CorpusPart(NamedTuple):
    """One side of a corpus: training or validation."""

    corpus: Corpus
    is_validation: bool

    @property
    def sample(self) -> tuple[str, ...]:
        """Uniform sample of its pieces."""
        corpus = self.corpus
        return corpus.validation_sample if self.is_validation else corpus.sample


def scan_corpus(
    files: Sequence[pathlib.Path],
    *,
    validation_fraction: float,
    field: str = "text",
    errors: Errors = "strict",
    characters: bool = False,
    in_memory: int | None = None,
    on_progress: Callable[[int], None] = lambda size: None,
) -> Corpus:
    r"""Scans text files once.

    Args:
        files: the files, each once.
        validation_fraction: share of the text for validation.
        field: key of the text in JSON, or its column.
        errors: "strict", or "skip" to skip and count unreadable records.
        characters: whether the sample must contain every character, for a character tokenizer.
        in_memory: documents are kept up to this many bytes of text; 64 MiB if not given.
        on_progress: called with the number of bytes read so far.

    Returns:
        The corpus.

    Raises:
        DataError: a file cannot be read, or changes during the scan.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.jsonl")
        >>> _ = path.write_text('{"text": "one"}\n{"text": "two"}\n')
        >>> corpus = scan_corpus([path], validation_fraction=0.5)
        >>> corpus.num_documents, corpus.num_bytes, corpus.documents
        (2, 6, ('one', 'two'))
    """
    bad, states = BadRecords(errors), []
    in_memory = _IN_MEMORY if in_memory is None else in_memory
    kept: list[Piece] | None = []
    samples = {False: EvenSample[str](_SAMPLE), True: EvenSample[str](_LINES)}
    seen: set[str] = set()
    num_documents = num_bytes = done = 0
    for file in files:
        if file.is_dir():
            raise DataError(
                f"a path must be a file, got the folder '{file}'; try '{file}/**/*.txt'"
            )
        before, is_empty = file_stamp(file), True
        digest = None if has_columns(file) else hashlib.sha256()
        for piece in read_pieces(file, bad, field=field, digest=digest):
            is_empty = False
            num_documents += piece.is_start
            data = piece.text.encode()
            num_bytes += len(data)
            if characters:
                seen.update(piece.text)
            side, drawn = text_draws(data)
            samples[side < validation_fraction].add(piece.text, len(data), drawn)
            if kept is not None:
                kept.append(piece)
                kept = kept if num_bytes <= in_memory else None
            on_progress(done + min(piece.end, before[0]))
        if is_empty:
            raise DataError(f"a text file must have text, got the empty '{file}'; leave it out")
        states.append(read_state(file, before, digest))
        done += before[0]
        on_progress(done)
    return Corpus(
        files=tuple(states), field=field, errors=errors, validation_fraction=validation_fraction,
        num_documents=num_documents, num_bytes=num_bytes, skipped=bad.count,
        skipped_shown=tuple(bad.shown), documents=None if kept is None else _joined(kept),
        sample=samples[False].values + (("".join(sorted(seen)),) if characters else ()),
        validation_sample=samples[True].values,
    )  # fmt: skip


def _joined(pieces: Sequence[Piece]) -> tuple[str, ...]:
    """Joins pieces to documents."""
    documents: list[list[str]] = []
    for piece in pieces:
        if piece.is_start:
            documents.append([])
        documents[-1].append(piece.text)
    return tuple(map("".join, documents))


def recorded_corpus(
    files: Sequence[pathlib.Path], cache_dir: pathlib.Path | None, **options: Any
) -> Corpus:
    """`scan_corpus` with a record of the result on disk.

    The record is used if paths, sizes and modification times of the files are the same. Only a
    corpus too large for memory is recorded.

    Args:
        files: as in `scan_corpus`.
        cache_dir: folder for the records; None for no records.
        **options: keyword arguments of `scan_corpus`.

    Returns:
        The corpus.

    Raises:
        DataError: as in `scan_corpus`.
        StorageError: the record cannot be written.
    """
    key = sorted((name, value) for name, value in options.items() if name != "on_progress")
    return remembered(
        scan_stem(cache_dir, "corpora", files, ("documents", *key)),
        lambda: scan_corpus(files, **options),
        lambda corpus: ({}, dataclasses.asdict(corpus)) if corpus.documents is None else None,
        lambda _, record: _restored(record),
    )


def _restored(values: dict[str, Any]) -> Corpus:
    tuples = {name: tuple(values[name]) for name in _TUPLES}
    files = tuple(FileState(*state) for state in values["files"])
    return Corpus(**{**values, **tuples, "files": files})
