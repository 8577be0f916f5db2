"""Text of any size and source: scanned once, and then read in pieces."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from jaxformer.errors import DataError
from jaxformer.storage import as_path
from jaxformer.text.sources.document_files import Piece, read_pieces
from jaxformer.text.sources.files import (
    FileState,
    file_stamp,
    read_state,
    require_unchanged,
    scan_stem,
)
from jaxformer.text.sources.holdout import Holdout, Scanner, text_bytes
from jaxformer.text.sources.record_files import (
    BadRecords,
    Errors,
)
from jaxformer.text.sources.streams import require_sequence
from jaxformer.text.store.shards import remembered

_SAMPLE = 2**25  # bytes of text, to train a tokenizer on
_LINES = 2**18  # bytes of validation text beyond that, for prompts
_TUPLES = "skipped_shown", "sample", "validation_sample", "documents"  # lists in JSON


class Place(NamedTuple):
    """Start of the next piece of a corpus."""

    item: int = 0  # index of the file or document
    within: int = 0  # offset in the file


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Text of files or in memory, a share of which is for validation.

    A piece is a document, or at most 128 KiB of a text file. Its side depends on a hash of its
    text, so the same text is never on both sides. The piece where the share is reached is cut at
    the nearest line break: its end is for validation. So a single document is split into head and
    tail, and one more document changes the side of hardly any other.

    Args:
        files: the files.
        field: key of the text in JSON, or its column.
        errors: "strict", or "skip" to skip unreadable records.
        validation_fraction: share of the text for validation, from 0 to less than 1.
        holdout: which pieces are for validation.
        num_documents: number of documents on both sides.
        num_bytes: bytes of their text, in UTF-8.
        skipped: number of skipped records.
        skipped_shown: the first skipped records.
        fingerprint: SHA-256 of the pieces, with their places, and of the options for splitting.
        sample: training pieces, to train a tokenizer on: all, or a uniform sample.
        validation_sample: validation pieces: all, or a sample.
        is_sampled: whether the samples are not all of the text.
        documents: the documents, if they are not in files.
    """

    files: tuple[FileState, ...]
    field: str
    errors: Errors
    validation_fraction: float
    holdout: Holdout
    num_documents: int
    num_bytes: int
    skipped: int
    skipped_shown: tuple[str, ...]
    fingerprint: str
    sample: tuple[str, ...] = ()
    validation_sample: tuple[str, ...] = ()
    is_sampled: bool = False
    documents: tuple[str, ...] = ()

    @classmethod
    def of(cls, documents: Sequence[str], validation_fraction: float = 0.0) -> Self:
        r"""Makes a corpus of documents in memory; blank ones are left out.

        Args:
            documents: the texts.
            validation_fraction: share of the text for validation, from 0 to less than 1.

        Raises:
            DataError: the documents are not a sequence of texts, or one of the sides is empty.

        Example:
            >>> corpus = Corpus.of(["one\ntwo\nthree\nfour\n"], 0.25)
            >>> corpus.sample, corpus.validation_sample
            (('one\ntwo\nthree\n',), ('four\n',))
        """
        require_sequence(documents)
        texts = tuple(document for document in documents if document.strip())
        pieces = ((Piece(text, True, 0), Place(index)) for index, text in enumerate(texts, 1))
        return cls(**_scan(pieces, BadRecords(), validation_fraction), files=(), documents=texts)

    def pieces(self, start: Place) -> Iterator[tuple[Piece, Place]]:
        """Reads the text.

        Args:
            start: `Place()`, or the place after an earlier piece.

        Yields:
            A piece, and the place after it.

        Raises:
            DataError: a file has changed or cannot be read.
        """
        for index, document in enumerate(self.documents[start.item :], start.item + 1):
            yield Piece(document, True, 0), Place(index)
        bad = BadRecords(self.errors)
        for index in range(start.item, len(self.files)):
            state = self.files[index]
            path = as_path(state.path)
            require_unchanged(state)
            within = start.within if index == start.item else 0
            for piece in read_pieces(path, bad, field=self.field, start=within):
                yield piece, Place(index, piece.end)
            require_unchanged(state)

    def require_unchanged(self, start: Place, end: Place | None) -> None:
        """Raises DataError if a file with text between two places has changed.

        Args:
            start: first place.
            end: last place; None for the end of the text.
        """
        for state in self.files[start.item : None if end is None else end.item + 1]:
            require_unchanged(state)


def scan_corpus(
    files: Sequence[pathlib.Path],
    *,
    validation_fraction: float,
    field: str = "text",
    errors: Errors = "strict",
    characters: bool = False,
    cache_dir: pathlib.Path | None = None,
    on_progress: Callable[[int], None] = lambda size: None,
) -> Corpus:
    r"""Scans text files once, or loads the record of an earlier scan.

    The record is used if paths, sizes and modification times (or versions) of the files are
    the same.

    Args:
        files: the files, each once.
        validation_fraction: share of the text for validation.
        field: key of the text in JSON, or its column.
        errors: "strict", or "skip" to skip and count unreadable records.
        characters: whether the sample must contain every character, for a character tokenizer.
        cache_dir: folder for the records of scans; None for no records.
        on_progress: called with the number of bytes read so far.

    Returns:
        The corpus.

    Raises:
        DataError: a file cannot be read, or changes during the scan; or one of the sides is empty.
        StorageError: the record cannot be written.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.jsonl")
        >>> _ = path.write_text('{"text": "one"}\n{"text": "two"}\n')
        >>> corpus = scan_corpus([path], validation_fraction=0.5)
        >>> corpus.num_documents, corpus.num_bytes, corpus.sample, corpus.validation_sample
        (2, 6, ('two',), ('one',))
    """
    files = [as_path(file) for file in files]
    bad, states = BadRecords(errors), list[FileState]()

    def pieces() -> Iterator[tuple[Piece, Place]]:
        done = 0
        for index, file in enumerate(files):
            before = file_stamp(file)
            for piece in read_pieces(file, bad, field=field):
                yield piece, Place(index, piece.end)
                on_progress(done + min(piece.end, before[0]))
            states.append(read_state(file, before))
            done += before[0]
            on_progress(done)

    def scan() -> Corpus:
        values = _scan(pieces(), bad, validation_fraction, field=field, characters=characters)
        return Corpus(**values, files=tuple(states))

    key = "documents", validation_fraction, field, errors, characters
    return remembered(
        scan_stem(cache_dir, "corpora", files, key),
        scan,
        lambda corpus: ({}, dataclasses.asdict(corpus)),
        lambda _, record: _restored(record),
    )


def _scan(
    pieces: Iterable[tuple[Piece, Place]],
    bad: BadRecords,
    validation_fraction: float,
    *,
    field: str = "text",
    characters: bool = False,
) -> dict[str, Any]:
    """Reads all pieces: the arguments of their `Corpus`, except files and documents."""
    scanner = Scanner[str](validation_fraction, sample=_SAMPLE, held_out=_LINES)
    seen: set[str] = set()
    num_documents = num_bytes = 0
    digest = hashlib.sha256(repr((field, bad.errors, validation_fraction)).encode())
    for piece, place in pieces:
        num_documents += piece.is_start
        data = text_bytes(piece.text)
        digest.update(repr((len(data), *place)).encode() + data)
        num_bytes += len(data)
        if characters:
            seen.update(piece.text)
        scanner.add(piece.text, data, len(data), len(data))
    scanned = scanner.finish(Holdout.parts, cuts=True)
    for side, texts in (("validation", scanned.validation), ("training", scanned.training)):
        if validation_fraction and not "".join(texts).strip():
            raise DataError(
                f"both sides of a split must have text, got an empty {side} side from "
                f"{num_documents:,} documents of {num_bytes:,} bytes with "
                f"validation_fraction={validation_fraction}; add text, or change the fraction"
            )
    if scanned.is_sampled and seen:
        scanned.training.append("".join(sorted(seen)))
    return {
        "field": field, "errors": bad.errors, "validation_fraction": validation_fraction,
        "holdout": scanned.holdout, "num_documents": num_documents, "num_bytes": num_bytes,
        "skipped": bad.count, "skipped_shown": tuple(bad.shown), "sample": tuple(scanned.training),
        "fingerprint": digest.hexdigest(), "validation_sample": tuple(scanned.validation),
        "is_sampled": scanned.is_sampled,
    }  # fmt: skip


def _restored(values: dict[str, Any]) -> Corpus:
    tuples = {name: tuple(values[name]) for name in _TUPLES}
    files = tuple(FileState(*state) for state in values["files"])
    holdout = Holdout(*values["holdout"])
    return Corpus(**{**values, **tuples, "files": files, "holdout": holdout})
