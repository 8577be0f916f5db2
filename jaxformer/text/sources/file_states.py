"""Whether files have changed: their sizes, and times or versions."""

import concurrent.futures
import hashlib
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from jaxformer.errors import ConfigError, DataError
from jaxformer.storage import as_path, in_bucket, real_path, stamp
from jaxformer.text.sources.files import readable

_SCAN_LAYOUT = 8  # version of what scans remember; part of its key
_STAMPED = 16  # files whose stamps are requested at a time, since in buckets each takes a while


class FileState(NamedTuple):
    """State of a file when it was scanned."""

    path: str  # without links, or a URL
    size: int  # in bytes
    modified: int  # in nanoseconds; in a bucket, its version


def file_stamp(file: str | pathlib.Path) -> tuple[int, int]:
    """Size in bytes and time or version, as in `stamp`; -1 for both if reading will fail."""
    try:
        return stamp(file)
    except ConfigError:  # such as a missing package
        raise
    except (OSError, ValueError):
        return -1, -1


def file_stamps(files: Iterable[str | pathlib.Path]) -> list[tuple[int, int]]:
    """The `file_stamp` of each file, which is a request for a file in a bucket."""
    files = list(files)
    if not any(map(in_bucket, files)):
        return list(map(file_stamp, files))
    with concurrent.futures.ThreadPoolExecutor(_STAMPED) as pool:
        return list(pool.map(file_stamp, files))


def read_state(file: pathlib.Path, before: tuple[int, int]) -> FileState:
    """State of a file that was just read; DataError if it has changed since the stamp `before`."""
    require_stamp(file, before)
    return FileState(real_path(file), *before)


def require_unchanged(state: FileState) -> None:
    """Raises DataError if size, modification time or version of a file have changed."""
    require_stamp(state.path, (state.size, state.modified))


def require_stamp(file: str | pathlib.Path, before: tuple[int, int]) -> None:
    """Raises DataError if a file has another `file_stamp`."""
    with readable(as_path(file)):
        try:
            after = stamp(file)
        except FileNotFoundError:
            after = -1, -1
    if after != before:
        raise DataError(
            f"'{file}' has changed while it was read; wait until it is complete, and try again"
        )


def scan_stem(
    cache_dir: pathlib.Path | None,
    name: str,
    files: Iterable[pathlib.Path],
    options: Sequence[Any],
) -> pathlib.Path | None:
    """Path in the cache for what a scan finds, named by a hash of options and file states."""
    if cache_dir is None:
        return None
    digest = hashlib.sha256(repr((_SCAN_LAYOUT, *options)).encode(errors="surrogateescape"))
    files = list(files)
    for file, state in zip(files, file_stamps(files), strict=True):
        digest.update(repr((real_path(file), state)).encode(errors="surrogateescape"))
    return cache_dir / name / digest.hexdigest()[:32]
