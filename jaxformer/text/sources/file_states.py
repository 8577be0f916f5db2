"""State of a file when it was read: size, modification time and SHA-256."""

import hashlib
import os
import pathlib
from typing import NamedTuple

from jaxformer.errors import DataError
from jaxformer.storage import open_regular

__all__ = ["FileState", "file_stamp", "read_state", "require_stamp", "require_unchanged"]


class FileState(NamedTuple):
    """State of a file when it was scanned.

    Args:
        path: its path, without links.
        size: its size in bytes.
        modified: its modification time in nanoseconds.
        content: SHA-256 of its bytes.
    """

    path: str
    size: int
    modified: int
    content: str


def file_stamp(file: str | pathlib.Path) -> tuple[int, int]:
    """Size in bytes and modification time in nanoseconds; -1 for both if reading will fail."""
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
        digest: SHA-256 of its bytes; if None, they are read again.

    Raises:
        DataError: it changed while it was read.
    """
    if digest is None:
        digest = hashlib.sha256()
        with open_regular(file) as stream:
            while data := stream.read(2**20):
                digest.update(data)
    require_stamp(file, before)
    return FileState(os.path.realpath(file), *before, digest.hexdigest())


def require_unchanged(state: FileState) -> None:
    """Raises DataError if size or modification time of a file have changed."""
    require_stamp(state.path, (state.size, state.modified))


def require_stamp(file: str | pathlib.Path, stamp: tuple[int, int]) -> None:
    """Raises DataError if a file has another `file_stamp`."""
    if file_stamp(file) != stamp:
        raise DataError(
            f"'{file}' has changed while it was read; wait until it is complete, and try again"
        )
