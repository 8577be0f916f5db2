"""Files as they were when they were read: size, time of change and SHA-256."""

import hashlib
import os
import pathlib
from typing import NamedTuple

from jaxformer.errors import DataError
from jaxformer.storage import open_regular

__all__ = ["FileState", "file_stamp", "read_state", "require_stamp", "require_unchanged"]


class FileState(NamedTuple):
    """A file as it was when it was looked through.

    Args:
        path: its path, without links.
        size: bytes.
        modified: when, in nanoseconds.
        content: SHA-256 of its bytes.
    """

    path: str
    size: int
    modified: int
    content: str


def file_stamp(file: str | pathlib.Path) -> tuple[int, int]:
    """Size in bytes and time of change in nanoseconds; -1 for both where reading will fail."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return -1, -1
    return found.st_size, found.st_mtime_ns


def read_state(
    file: pathlib.Path, before: tuple[int, int], digest: "hashlib._Hash | None" = None
) -> FileState:
    """State of a file that was just read.

    Args:
        file: the file.
        before: its `file_stamp` before it was read.
        digest: SHA-256 of its bytes, if they went into one; they are read again otherwise.

    Raises:
        DataError: it has changed meanwhile.
    """
    if digest is None:
        digest = hashlib.sha256()
        with open_regular(file) as stream:
            while data := stream.read(2**20):
                digest.update(data)
    require_stamp(file, before)
    return FileState(os.path.realpath(file), *before, digest.hexdigest())


def require_unchanged(state: FileState) -> None:
    """Raises DataError where a file has another size or time of change than it had."""
    require_stamp(state.path, (state.size, state.modified))


def require_stamp(file: str | pathlib.Path, stamp: tuple[int, int]) -> None:
    """Raises DataError where a file has another `file_stamp`."""
    if file_stamp(file) != stamp:
        raise DataError(
            f"'{file}' has changed while it was read; let it be complete, and do the same again"
        )
