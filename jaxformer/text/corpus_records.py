"""Records of corpora that were looked through, so that their files need not be read again."""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from jaxformer.storage import make_folder, write_whole
from jaxformer.text.bad_records import Errors
from jaxformer.text.corpus import Corpus, scan_corpus
from jaxformer.text.file_states import FileState, file_stamp

__all__ = ["recorded_corpus"]

_LAYOUT = 1  # of a record; part of its name


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
    """Does `scan_corpus`, or finds what it returned for these files.

    They count as the same files where their paths, sizes and times of change are the same. Only a
    corpus that is too large for the memory is recorded.

    Args:
        files: as in `scan_corpus`.
        cache_dir: folder of the records; None where there is none.
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
    path = None
    if cache_dir is not None:
        key = _key(files, validation_fraction, field, errors, characters)
        path = cache_dir / "corpora" / f"{key}.json"
        if (corpus := _read(path)) is not None:
            return corpus
    corpus = scan_corpus(
        files, validation_fraction=validation_fraction, field=field, errors=errors,
        characters=characters, on_progress=on_progress,
    )  # fmt: skip
    if path is not None and corpus.documents is None:
        make_folder(path.parent)
        write_whole(path, json.dumps(dataclasses.asdict(corpus), ensure_ascii=False))
    return corpus


def _key(files: Sequence[pathlib.Path], *options: Any) -> str:
    digest = hashlib.sha256(repr((_LAYOUT, options)).encode())
    for file in files:
        stamp = os.path.realpath(file), file_stamp(file)
        digest.update(repr(stamp).encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def _read(path: pathlib.Path) -> Corpus | None:
    """The corpus of a record; None where it is missing or damaged."""
    try:
        values = json.loads(path.read_bytes())
        return Corpus(
            **{
                **values,
                "files": tuple(FileState(*state) for state in values["files"]),
                **{
                    name: tuple(values[name])
                    for name in ("skipped_shown", "sample", "validation_sample")
                },
            }
        )
    except Exception:  # whatever is wrong with it, it is made again
        return None
