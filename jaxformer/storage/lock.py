"""The lock of a run folder: one process at a time trains in it."""

import contextlib
import datetime
import errno
import importlib.util
import os
import pathlib
import socket
import sys
import threading
from collections.abc import Iterator

from jaxformer.errors import CheckpointError, StorageError
from jaxformer.storage.buckets import BucketPath
from jaxformer.storage.files import storage_error
from jaxformer.storage.lease import BUCKET_LOCK, DISK_LOCK, being_trained, lease_holder, run_lease

LOCK = "lock"
"""Name of the lock file in a run folder."""

_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_MAX_HOLDER = 300  # bytes

_held: dict[tuple[int, int] | None, int] = {}
"""Thread of this process that holds a lock, by device and inode of the file."""


@contextlib.contextmanager
def run_lock(folder: pathlib.Path) -> Iterator[None]:
    """Locks a run folder during training; creates the folder if missing.

    The lock is `flock` on a file in the folder, so that every path to the folder means the same
    lock, and no other folder must be writable. It ends with its process, however that dies. The
    file stays, empty; if nothing else was created in the folder, file and new folder are removed.

    The thread that holds a lock can take it again. On NFS, Linux implements `flock` by byte-range
    locks on the server, which also work between computers; with the mount options
    `local_lock=flock` or `nolock`, the lock works on one computer only. A process forked during
    training keeps the lock for as long as it lives.

    In a bucket, the file holds the lock until some seconds after its holder stops renewing it.

    Raises:
        StorageError: the file cannot be locked, as on Windows, where there is no `flock`.
    """
    if isinstance(folder, BucketPath):
        with run_lease(folder, LOCK):
            yield
        return
    if _held.get(_key(folder)) == threading.get_ident():
        yield
        return
    if importlib.util.find_spec("fcntl") is None:
        raise StorageError(
            f"{folder} cannot be locked, because Windows has no flock; train on Linux, macOS or WSL"
        )
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _open_and_take(folder)
    except OSError as error:
        raise storage_error(folder / LOCK, error) from None
    key = _key(folder)
    _held[key] = threading.get_ident()
    try:
        _write_holder(descriptor)
        yield
    finally:
        del _held[key]
        _clear(descriptor, folder, is_new)
        os.close(descriptor)


def lock_holder(folder: pathlib.Path) -> str:
    """Text that names who holds the lock of a folder; empty if nobody does, as in a copy of it."""
    path = folder / LOCK
    if isinstance(path, BucketPath):
        return lease_holder(path)
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _key(folder: pathlib.Path) -> tuple[int, int] | None:
    """Device and inode of the lock file; None if it is missing."""
    try:
        status = (folder / LOCK).lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _open_and_take(folder: pathlib.Path) -> int:
    """Opens and locks the lock file; never through a link, which could lead anywhere."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(folder / LOCK, flags, 0o644)
        try:
            _take(descriptor, folder)
            status = os.fstat(descriptor)
            written = os.pread(descriptor, _MAX_HOLDER, 0)
            if written and not written.startswith((DISK_LOCK, BUCKET_LOCK)):
                raise CheckpointError(
                    f"{folder / LOCK} must be the lock of a run folder, got another file of that "
                    "name; rename it, or choose another folder"
                )
            # Between open and lock, another process may have removed or replaced the file.
            if _key(folder) == (status.st_dev, status.st_ino):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _take(descriptor: int, folder: pathlib.Path) -> None:
    import fcntl  # missing on Windows

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise being_trained(folder, _holder(descriptor)) from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise storage_error(folder / LOCK, error, "locked") from None
        print(
            f"jaxformer: {folder} is on a file system without locks ({error.strerror}); make sure "
            "that no other process trains in it",
            file=sys.stderr,
        )


def _write_holder(descriptor: int) -> None:
    since = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
    holder = f"{os.getpid()} on {socket.gethostname()}, since {since}"
    with contextlib.suppress(OSError):  # on a full disk, the lock works without the name
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, DISK_LOCK + holder.encode(), 0)


def _holder(descriptor: int) -> str:
    """Who holds the lock: as written in the file, or "another process"."""
    written = os.pread(descriptor, _MAX_HOLDER, 0).decode(errors="replace")
    is_plain = written.startswith(DISK_LOCK.decode()) and written.isprintable()
    return written if is_plain else "another process"


def _clear(descriptor: int, folder: pathlib.Path, is_new: bool) -> None:
    """Empties the file; removes it, and a new folder, if the run created nothing else."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        if [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            if is_new:
                folder.rmdir()
