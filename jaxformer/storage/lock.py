"""The lock of a run folder on a disk: one process at a time trains in it."""

import contextlib
import os
import pathlib
import socket
import time
from collections.abc import Iterator

from jaxformer.errors import CheckpointError
from jaxformer.storage.files import make_folder, write_whole

LOCK = "lock"
"""Name of the lock file in a run folder."""

HOLDER = "holder.txt"
"""Name of the file that says who holds the lock."""


@contextlib.contextmanager
def run_lock(folder: pathlib.Path) -> Iterator[None]:
    """Locks a run folder, made if missing; CheckpointError if another process has locked it."""
    import filelock

    is_new = not folder.exists()
    make_folder(folder)
    # It ends with its process, however that dies, and the file stays, empty.
    lock = filelock.FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise CheckpointError(
            f"{folder} is being trained by {lock_holder(folder) or 'another process'}; wait until "
            "it ends, stop it with kill and its process number (it saves first), or choose another "
            "folder"
        ) from None
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S%z")
        holder = f"process {os.getpid()} on {socket.gethostname()}, since {since}"
        write_whole(folder / HOLDER, holder)
        yield
    finally:
        (folder / HOLDER).unlink(missing_ok=True)
        if is_new and [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            folder.rmdir()
        lock.release()


def lock_holder(folder: pathlib.Path) -> str:
    """Text that names who holds the lock of a folder; empty if nobody does, and in a bucket."""
    try:
        return (folder / HOLDER).read_text(encoding="utf-8")
    except OSError:
        return ""
