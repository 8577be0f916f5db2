"""Text in files of any size: scanned once, and then read in pieces."""

import dataclasses
import hashlib
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

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
from jaxformer.text.sources.holdout import Holdout, Scanner, require_fraction
from jaxformer.text.sources.record_files import (
    BadRecords,
    Errors,
    content_fingerprint,
    has_columns,
)
from jaxformer.text.store.shards import remembered

_SAMPLE = 2**25  # bytes of text, to train a tokenizer on
_LINES = 2**18  # bytes of validation text beyond that, for prompts
_RECORDED = 2**26  # bytes of text; less is scanned again
_TUPLES = "skipped_shown", "sample", "validation_sample"  # lists in JSON


class Place(NamedTuple):
    """Start of the next piece of a corpus: index of the file, and offset in the file."""

    file: int = 0
    within: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """The text of files, a share of which is for validation.

    A piece is a document, or at most 128 KiB of a text file. Its side depends on a hash of its
    text, so the same text is never on both sides.

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
        sample: training pieces, to train a tokenizer on: all, or a uniform sample.
        validation_sample: validation pieces: all, or a sample.
        is_sampled: whether the samples are not all of the text.
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
    sample: tuple[str, ...] = ()
    validation_sample: tuple[str, ...] = ()
    is_sampled: bool = False

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the files' content and of the options for reading and splitting it."""
        options = f"{self.field}\0{self.errors}\0{self.validation_fraction}"
        return content_fingerprint(self.files, options)

    def pieces(self, start: Place) -> Iterator[tuple[Piece, Place]]:
        """Reads the text.

        Args:
            start: `Place()`, or the place after an earlier piece.

        Yields:
            A piece, and the place after it.

        Raises:
            DataError: a file has changed or cannot be read.
        """
        bad = BadRecords(self.errors)
        for index in range(start.file, len(self.files)):
            state = self.files[index]
            path = as_path(state.path)
            require_unchanged(state)
            within = start.within if index == start.file else 0
            for piece in read_pieces(path, bad, field=self.field, start=within):
                yield piece, Place(index, piece.end)
            require_unchanged(state)

    def require_unchanged(self, start: Place, end: Place | None) -> None:
        """Raises DataError if a file with text between two places has changed.

        Args:
            start: first place.
            end: last place; None for the end of the text.
        """
        for state in self.files[start.file : None if end is None else end.file + 1]:
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
    r"""Scans text files once, or loads the record of an earlier scan of more than 64 MiB.

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
        DataError: a file cannot be read, or changes during the scan.
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
    key = "documents", validation_fraction, field, errors, characters
    return remembered(
        scan_stem(cache_dir, "corpora", files, key),
        lambda: _scan(files, validation_fraction, field, errors, characters, on_progress),
        lambda corpus: ({}, dataclasses.asdict(corpus)) if corpus.num_bytes > _RECORDED else None,
        lambda _, record: _restored(record),
    )


def _scan(
    files: Sequence[pathlib.Path],
    validation_fraction: float,
    field: str,
    errors: Errors,
    characters: bool,
    on_progress: Callable[[int], None],
) -> Corpus:
    """`scan_corpus` without a record."""
    bad, states = BadRecords(errors), []
    scanner = Scanner[str](validation_fraction, sample=_SAMPLE, held_out=_LINES)
    seen: set[str] = set()
    num_documents = num_bytes = done = 0
    for file in files:
        before = file_stamp(file)
        digest = None if has_columns(file) else hashlib.sha256()
        for piece in read_pieces(file, bad, field=field, digest=digest):
            num_documents += piece.is_start
            data = piece.text.encode()
            num_bytes += len(data)
            if characters:
                seen.update(piece.text)
            scanner.add(piece.text, data, len(data), len(data))
            on_progress(done + min(piece.end, before[0]))
        states.append(read_state(file, before, digest))
        done += before[0]
        on_progress(done)
    found = scanner.finish(Holdout.parts, cuts=True)
    if found.is_sampled and seen:
        found.training.append("".join(sorted(seen)))
    return Corpus(
        files=tuple(states), field=field, errors=errors, validation_fraction=validation_fraction,
        holdout=found.holdout, num_documents=num_documents, num_bytes=num_bytes,
        skipped=bad.count, skipped_shown=tuple(bad.shown), sample=tuple(found.training),
        validation_sample=tuple(found.validation), is_sampled=found.is_sampled,
    )  # fmt: skip


def split_documents(
    documents: Sequence[str], validation_fraction: float
) -> tuple[list[str], list[str]]:
    r"""Splits documents into training and validation, as a corpus of files is split.

    Those with the smallest hashes are for validation. The document where the share is reached is
    cut at the nearest line break: its end is for validation. So a single document is split into
    head and tail, and one more document changes the side of hardly any other.

    Args:
        documents: at least one document.
        validation_fraction: share of all bytes for validation, more than 0 and less than 1.

    Returns:
        The training documents and the validation documents, at least one of each, in their order.

    Raises:
        DataError: the fraction is out of range, or one of the sides would be empty.

    Example:
        >>> split_documents(["one\ntwo\nthree\nfour\n"], 0.25)
        (['one\ntwo\nthree\n'], ['four\n'])
    """
    require_fraction(validation_fraction)
    scanner = Scanner[str](validation_fraction, sample=sys.maxsize, held_out=0)
    for document in documents:
        data = document.encode(errors="surrogatepass")  # encoding reports what is not valid
        scanner.add(document, data, len(data), len(data))
    found = scanner.finish(Holdout.parts, cuts=True)
    for side, texts in (("training", found.training), ("validation", found.validation)):
        if not "".join(texts).strip():
            raise DataError(
                f"both sides of a split must have text, got an empty {side} side from "
                f"{len(documents)} documents of {sum(map(len, documents))} characters with "
                f"validation_fraction={validation_fraction}; add text, or change the fraction"
            )
    return found.training, found.validation


def _restored(values: dict[str, Any]) -> Corpus:
    tuples = {name: tuple(values[name]) for name in _TUPLES}
    files = tuple(FileState(*state) for state in values["files"])
    holdout = Holdout(*values["holdout"])
    return Corpus(**{**values, **tuples, "files": files, "holdout": holdout})
