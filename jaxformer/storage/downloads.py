"""Copies on this machine of files in buckets that must be mapped into memory, such as weights."""

import fnmatch
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence

from jaxformer.errors import CheckpointError, storage_error
from jaxformer.storage.buckets import BucketPath
from jaxformer.storage.digests import file_digest
from jaxformer.storage.file_systems import BucketObject
from jaxformer.storage.files import default_cache_dir
from jaxformer.storage.json_files import read_json, write_json
from jaxformer.storage.paths import as_path

_VERSIONS = ".versions.json"  # sizes and versions of the files of a copy


def on_disk(path: str | os.PathLike[str], patterns: Sequence[str] = ("*",)) -> pathlib.Path:
    """The path itself, or the copy of a file or folder in a bucket, in the user's cache.

    Files that have not changed since an earlier call are not downloaded again. Of a folder, the
    files directly in it whose names match a pattern are copied.

    Args:
        path: path on this machine or in a bucket.
        patterns: patterns of file names, as in a shell.

    Raises:
        CheckpointError: the bucket cannot be read.
        StorageError: the copy cannot be written.

    Example:
        >>> on_disk("models/gpt2")
        PosixPath('models/gpt2')
    """
    found = as_path(path)
    if not isinstance(found, BucketPath):
        return found
    cache = default_cache_dir()
    parent = pathlib.Path(tempfile.gettempdir(), "jaxformer") if cache is None else cache
    folder = found.parent if (is_file := _is_file(found)) else found
    copy = parent / "buckets" / folder.scheme / folder.key
    import filelock

    try:
        copy.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(copy / ".lock"):
            _update(copy, folder, [found.name] if is_file else patterns)
    except OSError as error:
        raise storage_error(copy, error) from None
    return copy / found.name if is_file else copy


def _is_file(path: BucketPath) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise _unreadable(path, error) from None


def _update(copy: pathlib.Path, folder: BucketPath, patterns: Sequence[str]) -> None:
    """Downloads the files that are new or have changed, and removes those that are gone."""
    try:
        listed = {path: found for path, found in folder.files().items() if "/" not in path}
    except OSError as error:
        raise _unreadable(folder, error) from None
    wanted = {
        name: found
        for name, found in listed.items()
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    }
    known = _known(copy)
    for name in known.keys() - listed.keys():
        (copy / name).unlink(missing_ok=True)
    known = {name: found for name, found in known.items() if name in listed}
    new = {name: found for name, found in wanted.items() if known.get(name) != found}
    if new:
        size = sum(found.size for found in new.values())
        print(f"downloading {size:,} bytes from {folder} to {copy}", file=sys.stderr, flush=True)
    for name, found in new.items():
        try:
            (folder / name).download(copy / name)
        except FileNotFoundError as error:
            raise _unreadable(folder / name, error) from None
        if found.md5 is not None and file_digest(copy / name, "md5") != found.md5:
            raise CheckpointError(f"{folder / name} was damaged or replaced while it was copied")
        known[name] = found
        write_json(copy / _VERSIONS, known)


def _known(copy: pathlib.Path) -> dict[str, BucketObject]:
    """The files of a copy that are whole, with the versions that they are of."""
    try:
        found = read_json(
            copy / _VERSIONS,
            lambda values: {name: BucketObject(*each) for name, each in values.items()},
        )
    except CheckpointError:  # not written yet, or damaged
        return {}
    return {
        name: each
        for name, each in found.items()
        if (copy / name).is_file() and (copy / name).stat().st_size == each.size
    }


def _unreadable(path: BucketPath, error: OSError) -> CheckpointError:
    return CheckpointError(f"{path} cannot be read: {error.strerror}")
