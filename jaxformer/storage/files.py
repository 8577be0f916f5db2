"""Atomic writes, and reads that follow no links and never block; on a disk or in a bucket."""

import contextlib
import errno
import os
import pathlib
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from jaxformer.errors import CheckpointError, storage_error
from jaxformer.storage.appending import BucketAppender
from jaxformer.storage.buckets import BucketPath
from jaxformer.storage.paths import as_path

_DRAFT = re.compile(r"\.[0-9a-f]{16}\.tmp")

# Flags of os.open; Windows has neither.
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a FIFO would block


def default_cache_dir() -> pathlib.Path | None:
    """Returns the folder of caches: `$XDG_CACHE_HOME/jaxformer`, else `~/.cache/jaxformer`.

    Returns:
        The folder, which need not exist; None if the user has no home folder either.

    Example:
        >>> default_cache_dir().name
        'jaxformer'
    """
    try:
        home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    except RuntimeError:  # neither HOME nor an entry in the user database
        return None
    return pathlib.Path(home) / "jaxformer"


def write_whole(path: str | pathlib.Path, content: str | bytes | Iterable[bytes]) -> None:
    """Writes a file atomically: after a crash it has its old content, or all of the new.

    A link at the path is replaced, not followed. The parts of an iterable need not be in memory at
    the same time.
    """
    parts = content.encode() if isinstance(content, str) else content
    with replacing(path) as draft, draft.open("xb") as file:
        for part in (parts,) if isinstance(parts, bytes) else parts:
            file.write(part)


@contextlib.contextmanager
def replacing(path: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the path of a new file on this machine, which is moved to `path` at the end.

    For a bucket, it is uploaded. If the block raises, nothing is at `path` but what was there.
    """
    path = as_path(path)
    with contextlib.ExitStack() as stack:
        if isinstance(path, BucketPath):
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            folder = path.parent
        draft = folder / f".{secrets.token_hex(8)}.tmp"  # recognized by `is_draft`
        try:
            yield draft
            if isinstance(path, BucketPath):
                path.upload(draft)
            else:
                sync_path(draft)
                os.replace(draft, path)
                sync_path(folder)
        except OSError as error:
            raise storage_error(path, error) from None
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


def lexists(path: pathlib.Path) -> bool:
    """Whether there is a file, a folder, or a link that may lead nowhere."""
    return path.exists() if isinstance(path, BucketPath) else os.path.lexists(path)


def remove_tree(folder: pathlib.Path, *, ignore_errors: bool = True) -> None:
    """Removes a folder and all in it; what cannot be removed stays, or is an OSError."""
    if not isinstance(folder, BucketPath):
        shutil.rmtree(folder, ignore_errors=ignore_errors)
        return
    with contextlib.suppress(*((OSError,) if ignore_errors else ())):
        folder.remove_tree()


def remove(path: pathlib.Path) -> None:
    """Removes a file, a link, or a folder and all in it, if there is one."""
    try:
        if path.is_dir() and not path.is_symlink():
            remove_tree(path, ignore_errors=False)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(path, error, "removed") from None


def make_folder(folder: pathlib.Path) -> None:
    """Makes a folder and its missing parents; a link of that name is an error."""
    try:
        if folder.is_symlink():
            raise OSError(errno.ELOOP, "it is a link, which could lead anywhere")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(folder, error) from None


def remove_drafts(folder: pathlib.Path, *, older_than: float = 0) -> None:
    """Removes drafts of a killed `write_whole`, if not written to for `older_than` seconds."""
    for path in folder.iterdir():
        if is_draft(path.name):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime >= older_than:
                    path.unlink()


def is_draft(name: str) -> bool:
    """Whether a file name is that of a draft, of `write_whole` or of a run folder."""
    return _DRAFT.fullmatch(name) is not None


def sync_path(path: pathlib.Path) -> None:
    """Syncs a file, or the names in a folder, to disk; ignores systems that cannot."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def open_to_append(path: pathlib.Path) -> BinaryIO | BucketAppender:
    """Opens a regular file, never through a link, for `append`; creates it if it is missing."""
    if isinstance(path, BucketPath):
        try:
            return BucketAppender(path)
        except OSError as error:
            raise storage_error(path, error, "read") from None

    def opener(path: str, flags: int) -> int:
        return os.open(path, flags | NO_LINK | NO_WAIT, 0o644)

    try:
        # Unbuffered, so that no write is left to happen (or fail) in close().
        file = open(path, "ab", buffering=0, opener=opener)
    except OSError as error:
        raise storage_error(path, _named(error)) from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise storage_error(path, OSError(errno.EINVAL, "it is not a regular file"))
    return file


def append(file: BinaryIO | BucketAppender, data: bytes) -> None:
    """Appends to a file of `open_to_append`; StorageError if that fails."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        raise storage_error(file.name, error) from None


def open_regular(path: str | pathlib.Path) -> BinaryIO:
    """Opens a regular file, or a file in a bucket, for reading; follows links."""
    path = as_path(path)
    if isinstance(path, BucketPath):
        return path.open_stream()
    descriptor = os.open(path, os.O_RDONLY | NO_WAIT)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = "FIFO" if stat.S_ISFIFO(mode) else "device"
    raise OSError(errno.EINVAL, f"it is a {kind}, not a regular file", str(path))


def read_regular(path: str | pathlib.Path, *, limit: int) -> bytes:
    """Reads a regular file of a user, of limited bytes (else ValueError); follows links."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"it must have at most {limit:,} bytes, and it has more")
    return data


def read_whole(path: str | pathlib.Path, *, limit: int = 2**30) -> bytes:
    """Reads a file of a run folder: a regular file, not a link, of limited bytes."""
    path = as_path(path)
    try:
        if isinstance(path, BucketPath):
            if path.info().size > limit:
                raise _too_large(path, limit)
            return path.read_bytes()  # in one request, so that it is of one version
        with open(os.open(path, os.O_RDONLY | NO_LINK | NO_WAIT), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise CheckpointError(f"{path} must be a file, got something else; remove it")
            data = file.read(limit + 1)
    except OSError as error:
        require_answer(path, error)
        raise CheckpointError(f"{path} cannot be read: {_named(error).strerror}") from None
    if len(data) > limit:
        raise _too_large(path, limit)
    return data


def require_answer(path: pathlib.Path, error: OSError) -> None:
    """Raises StorageError if a bucket did not say what a file is, which is no damage to it."""
    if isinstance(path, BucketPath) and error.errno in (errno.EIO, errno.EACCES):
        raise storage_error(error.filename or path, error, "read") from None


def _too_large(path: pathlib.Path, limit: int) -> CheckpointError:
    return CheckpointError(f"{path} must have at most {limit:,} bytes, got more")


def _named(error: OSError) -> OSError:
    """The error; ELOOP gets a message that says what it means here."""
    if error.errno == errno.ELOOP:
        return OSError(errno.ELOOP, "it is a link, which could lead anywhere")
    return error
