"""The lock of a run folder: one process at a time trains in it."""

import contextlib
import datetime
import errno
import fcntl
import os
import pathlib
import socket
import sys
import threading
from collections.abc import Iterator

from jaxformer.errors import CheckpointError
from jaxformer.storage import storage_error

__all__ = ["LOCK", "run_lock"]

LOCK = "lock"
"""Name of the file, in a run folder."""

_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_PREFIX = b"process "
_MAX_HOLDER = 300  # bytes

_held: dict[tuple[int, int] | None, int] = {}
"""Thread that holds a lock of this process, by device and inode of the file."""


@contextlib.contextmanager
def run_lock(folder: pathlib.Path) -> Iterator[None]:
    """Locks a run folder, which it makes, while a run is trained in it.

    The lock is `flock` on a file in the folder: in the folder, so that all paths to it mean the
    same lock, and so that no other folder need be writable. It ends with its process, however that
    dies; the file stays, empty. Of a folder in which nothing else was made, nothing stays.

    The thread that holds a lock can take it again. On NFS, Linux turns `flock` into a lock of
    byte ranges on the server, which also holds between computers, unless the folder is mounted with
    `local_lock=flock` or `nolock`: then it holds on one computer only. A process that was forked
    while a run is trained keeps the lock as long as it lives.

    Args:
        folder: the run folder.

    Raises:
        CheckpointError: another process trains in it, with its host, number and start.
        StorageError: the folder, or the file in it, cannot be made.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> with run_lock(folder):
        ...     (folder / LOCK).read_text().startswith("process ")
        True
    """
    if _held.get(_key(folder)) == threading.get_ident():
        yield
        return
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


def _key(folder: pathlib.Path) -> tuple[int, int] | None:
    """Device and inode of the file of a lock; None where there is none."""
    try:
        status = (folder / LOCK).lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _open_and_take(folder: pathlib.Path) -> int:
    """Opens and locks the file of a lock; never through a link, which could lead anywhere."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(folder / LOCK, flags, 0o644)
        try:
            _take(descriptor, folder)
            status = os.fstat(descriptor)
            if os.pread(descriptor, len(_PREFIX), 0) not in (b"", _PREFIX):
                raise CheckpointError(
                    f"{folder / LOCK} is not the lock of a run folder, which has that name; rename "
                    "it, or choose another folder"
                )
            # Another process may have removed the file between the two, and a third made a new one.
            if _key(folder) == (status.st_dev, status.st_ino):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _take(descriptor: int, folder: pathlib.Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointError(
            f"{folder} is being trained by {_holder(descriptor)}; wait until that ends, end it by "
            "kill and its number, which saves first, or choose another folder"
        ) from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise storage_error(folder / LOCK, error, "locked") from None
        print(
            f"jaxformer: {folder} is on a file system without locks ({error.strerror}); see to it "
            "that no other process trains in it",
            file=sys.stderr,
        )


def _write_holder(descriptor: int) -> None:
    since = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
    holder = f"{os.getpid()} on {socket.gethostname()}, since {since}"
    with contextlib.suppress(OSError):  # a full disk: the lock holds without a name in it
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _PREFIX + holder.encode(), 0)


def _holder(descriptor: int) -> str:
    """Who holds the lock, as it has written into the file, or in general words."""
    written = os.pread(descriptor, _MAX_HOLDER, 0).decode(errors="replace")
    is_plain = written.startswith(_PREFIX.decode()) and written.isprintable()
    return written if is_plain else "another process"


def _clear(descriptor: int, folder: pathlib.Path, is_new: bool) -> None:
    """Removes the holder from the file, and what was made for a run that never came to be."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        if [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            if is_new:
                folder.rmdir()
