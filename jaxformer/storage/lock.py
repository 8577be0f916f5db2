"""The lock of a run folder: one process at a time trains in it."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator

from jaxformer.errors import storage_error
from jaxformer.storage.files import make_folder, write_whole
from jaxformer.storage.guard import being_trained, bucket_lock, holder_text
from jaxformer.storage.paths import in_bucket

LOCK = "lock"
"""Name of the lock file in a run folder."""

HOLDER = "holder.txt"
"""Name of the file that says who holds the lock of a folder on a disk."""


@contextlib.contextmanager
def run_lock(folder: pathlib.Path) -> Iterator[Callable[[], None]]:
    """Locks a run folder, made if missing; yields a check that it still is. CheckpointError."""
    if in_bucket(folder):
        with bucket_lock(folder / LOCK) as require:
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
        raise being_trained(folder, lock_holder(folder)) from None
    except OSError as error:
        raise storage_error(folder / LOCK, error, "locked") from error
    try:
        write_whole(folder / HOLDER, holder_text())
        yield lambda: None
    finally:
        with contextlib.suppress(OSError):
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
