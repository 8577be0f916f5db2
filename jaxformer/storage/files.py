"""Files that are written whole or not at all."""

import contextlib
import errno
import io
import os
import pathlib
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from jaxformer.errors import CheckpointError, reason_of
from jaxformer.storage.paths import as_path, bucket_system, in_bucket

_READ = 2**22  # bytes of a file in a bucket that are requested at a time, at least


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
    """Writes a file atomically: after a crash it has its old content, or all of the new."""
    parts = content.encode() if isinstance(content, str) else content
    with replacing(path) as draft, draft.open("xb") as file:
        for part in (parts,) if isinstance(parts, bytes) else parts:
            file.write(part)


@contextlib.contextmanager
def replacing(path: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the path of a new file on this machine, which replaces `path` if nothing is raised."""
    path = as_path(path)
    with contextlib.ExitStack() as stack:
        folder = path.parent
        if in_bucket(path):
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        draft = folder / f".{path.name[:99]}.{secrets.token_hex(8)}.draft"
        try:
            if not in_bucket(path) and path.exists():  # root may replace even a device
                _require_regular(path)
            yield draft
            if in_bucket(path):
                system, key = bucket_system(path)
                system.put_file(str(draft), key)
            else:
                sync(draft)
                os.replace(draft, path)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


def sync(path: pathlib.Path) -> None:
    """Syncs a file to the disk."""
    with open(path, "rb+") as file:  # Windows syncs only files that it may write
        os.fsync(file.fileno())


def is_draft(name: str) -> bool:
    """Whether a file name is that of a draft, which a killed process has left."""
    return name.startswith(".") and name.endswith(".draft")


def remove_drafts(folder: pathlib.Path) -> None:
    """Removes drafts of killed processes."""
    for path in () if in_bucket(folder) else folder.iterdir():  # there they are elsewhere
        if is_draft(path.name):
            remove(path)


def remove(path: pathlib.Path) -> None:
    """Removes a file, a link, or a folder and all in it, if there is one."""
    if in_bucket(path):
        path.rmtree(missing_ok=True)  # type: ignore[attr-defined]
    elif path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def make_folder(folder: pathlib.Path) -> None:
    """Makes a folder and its missing parents; PermissionError if it cannot be written to."""
    folder.mkdir(parents=True, exist_ok=True)
    if not in_bucket(folder) and not os.access(folder, os.W_OK):  # Orbax waits for minutes
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def append(path: pathlib.Path, data: bytes) -> None:
    """Appends to a file on a disk, which is created if it is missing."""
    with open(path, "ab") as file:
        file.write(data)


def open_regular(path: str | pathlib.Path) -> io.BufferedReader:
    """Opens a regular file, or a file in a bucket, for reading; follows links."""
    path = as_path(path)
    if in_bucket(path):
        stream: Any = path.open("rb")
        if stream.details["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return io.BufferedReader(stream, _READ)
    _require_regular(path)  # opening a FIFO would block
    return path.open("rb")


def _require_regular(path: pathlib.Path) -> None:
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kind = "FIFO" if stat.S_ISFIFO(mode) else "device"
        raise OSError(errno.EINVAL, f"it is a {kind}, not a regular file", str(path))


def read_regular(path: str | pathlib.Path) -> bytes:
    """Reads a regular file of a user; follows links."""
    with open_regular(path) as file:
        return file.read()


def read_whole(path: str | pathlib.Path) -> bytes:
    """Reads a file of a run or model folder; CheckpointError if it cannot be read."""
    try:
        return read_regular(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {reason_of(error)}") from error
