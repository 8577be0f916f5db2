"""Records of corpus scans, by their files."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from jaxformer.text.sources.bad_records import Errors
from jaxformer.text.sources.corpus import Corpus, scan_corpus
from jaxformer.text.sources.file_states import FileState
from jaxformer.text.store.scan_records import recorded_scan

__all__ = ["recorded_corpus"]


def recorded_corpus(
    files: Sequence[pathlib.Path],
    cache_dir: pathlib.Path | None,
    *,
    validation_fraction: float,
    field: str = "text",
    errors: Errors = "strict",
    characters: bool = False,
    on_progress: Callable[[int], None] = lambda size: None,
) -> Corpus:
    """`scan_corpus` with a record of the result on disk.

    The record is used if paths, sizes and modification times of the files are the same. Only a
    corpus too large for memory is recorded.

    Args:
        files: as in `scan_corpus`.
        cache_dir: folder for the records; None for no records.
        validation_fraction: as in `scan_corpus`.
        field: as in `scan_corpus`.
        errors: as in `scan_corpus`.
        characters: as in `scan_corpus`.
        on_progress: as in `scan_corpus`.

    Returns:
        The corpus.

    Raises:
        DataError: as in `scan_corpus`.
        StorageError: the record cannot be written.
    """
    options = (validation_fraction, field, errors, characters)
    return recorded_scan(
        files, ("documents", *options), cache_dir,
        scan=lambda: scan_corpus(
            files, validation_fraction=validation_fraction, field=field, errors=errors,
            characters=characters, on_progress=on_progress,
        ),
        pack=lambda corpus: dataclasses.asdict(corpus) if corpus.documents is None else None,
        unpack=_unpacked,
    )  # fmt: skip


def _unpacked(values: dict[str, Any]) -> Corpus:
    tuples = ("skipped_shown", "sample", "validation_sample")
    return Corpus(
        **{
            **values,
            "files": tuple(FileState(*state) for state in values["files"]),
            **{name: tuple(values[name]) for name in tuples},
        }
    )
