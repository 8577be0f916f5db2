"""The lock of a run folder: one process at a time trains in it.

On a disk, it is a lock of the file system. In a bucket, it is a small file that names its holder,
who writes it anew every few seconds.
"""

import contextlib
import os
import pathlib
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

from jaxformer.errors import CheckpointError, ConfigError, StorageError
from jaxformer.storage.files import make_folder, write_whole
from jaxformer.storage.paths import bucket_system, in_bucket

LOCK = "lock"
"""Name of the lock file in a run folder."""

HOLDER = "holder.txt"
"""Name of the file that says who holds the lock of a folder on a disk."""

STALE = 45.0  # seconds without a refresh after which another process takes the lock
REFRESH = 10.0  # seconds between two refreshes
_POLL = 1.0  # seconds between two looks at the lock of another process


@contextlib.contextmanager
def run_lock(folder: pathlib.Path) -> Iterator[Callable[[], None]]:
    """Locks a run folder, made if missing; yields a check that it still is. CheckpointError."""
    if in_bucket(folder):
        with bucket_lock(folder) as require:
            yield require
        return
    import filelock

    is_new = not folder.exists()
    make_folder(folder)
    # It ends with its process, however that dies, and the file stays, empty.
    lock = filelock.FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise _being_trained(folder, lock_holder(folder)) from None
    try:
        write_whole(folder / HOLDER, _holder_text())
        yield lambda: None
    finally:
        (folder / HOLDER).unlink(missing_ok=True)
        if is_new and [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            folder.rmdir()
        lock.release()


def lock_holder(folder: pathlib.Path) -> str:
    """Text that names who holds the lock of a folder; empty if nobody does."""
    try:
        return (folder / (LOCK if in_bucket(folder) else HOLDER)).read_text(encoding="utf-8")
    except OSError:
        return ""


@contextlib.contextmanager
def bucket_lock(folder: pathlib.Path) -> Iterator[Callable[[], None]]:
    """Holds the lock of a run in a bucket; yields a check that nobody else has taken it."""
    if not str(folder).startswith("gs://"):
        raise ConfigError(
            f"a run folder must be on a disk or in a bucket gs://, got {folder}; Orbax saves "
            "checkpoints in no other kind of bucket"
        )
    lock, ended = _BucketLock(folder), threading.Event()
    lock.take()
    thread = threading.Thread(target=lock.refresh_until, args=(ended,), daemon=True)
    thread.start()
    try:
        yield lock.require
    finally:
        ended.set()
        thread.join()
        lock.release()


def _holder_text() -> str:
    """Text that names this process as the holder of a lock."""
    since = time.strftime("%Y-%m-%d %H:%M:%S%z")
    return f"process {os.getpid()} on {socket.gethostname()}, since {since}"


def _being_trained(folder: pathlib.Path, holder: str) -> CheckpointError:
    """The error for a folder that another process has locked."""
    return CheckpointError(
        f"{folder} is being trained by {holder or 'another process'}; wait until it ends, stop it "
        "with kill and its process number (it saves first), or choose another folder"
    )


class _BucketLock:
    """A lock file, whose text differs from that of every other holder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder, (self._system, self._key) = folder, bucket_system(folder / LOCK)
        self._text = f"{_holder_text()}, {secrets.token_hex(4)}"

    def take(self) -> None:
        """Creates the file, after removing one that nobody refreshes."""
        while True:
            # An answer that was lost may have been that of this process.
            with contextlib.suppress(FileExistsError):
                self._system.pipe_file(self._key, self._text.encode(), mode="create")
            if (holder := self._read()) == self._text:
                return
            if (before := self._version()) is None:  # removed since
                continue
            print(
                f"{self._folder} is locked by {holder}; waiting up to {STALE:.0f} seconds for a "
                "sign of it", file=sys.stderr, flush=True,
            )  # fmt: skip
            end = time.monotonic() + STALE
            while (now := self._version()) == before and time.monotonic() < end:
                time.sleep(_POLL)
            if now == before:
                self._system.rm_file(self._key)
            elif now is not None:
                raise _being_trained(self._folder, self._read())

    def require(self) -> None:
        """Raises StorageError if another process has taken the lock."""
        if (text := self._read()) != self._text:
            raise StorageError(
                f"{self._folder} is now being trained by {text or 'nobody'}, after {STALE:.0f} "
                "seconds without a sign of this process; this training stops"
            )

    def refresh_until(self, ended: threading.Event) -> None:
        """Writes the file now and then, unless another process has taken it."""
        while not ended.wait(REFRESH):
            if self._read() == self._text:
                self._system.pipe_file(self._key, self._text.encode())

    def release(self) -> None:
        """Removes the file, unless another process has taken it."""
        if self._read() == self._text:
            self._system.rm_file(self._key)

    def _read(self) -> str:
        """Text of the file; empty if there is none."""
        try:
            return str(self._system.cat_file(self._key).decode(errors="replace"))
        except FileNotFoundError:
            return ""

    def _version(self) -> str | None:
        """What changes with each refresh; None if there is no file."""
        try:
            return str(self._system.info(self._key)["generation"])
        except FileNotFoundError:
            return None
