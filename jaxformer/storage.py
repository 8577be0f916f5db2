"""Files that survive a crash, a full disk and a stranger: written whole, checked when read."""

import concurrent.futures
import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import pathlib
import re
import secrets
import stat
from collections.abc import Collection, Mapping
from typing import Any, BinaryIO

from jaxformer.errors import CheckpointError, StorageError

__all__ = [
    "Manifest",
    "append",
    "make_folder",
    "open_regular",
    "open_to_append",
    "read_manifest",
    "read_whole",
    "remove_drafts",
    "sha256",
    "storage_error",
    "write_manifest",
    "write_whole",
]

_MAX_MANIFEST = 64 * 2**20  # bytes: some 500,000 files
_DRAFT = re.compile(r"\.[0-9a-f]{16}\.tmp")
_HASHING_THREADS = 4  # hashlib lets other threads run while it works


def storage_error(path: str | pathlib.Path, error: OSError, doing: str = "written") -> StorageError:
    """Makes the StorageError of a file that could not be written, or read."""
    reason = error.strerror or str(error) or type(error).__name__
    remedy = "free space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "mend that"
    return StorageError(f"{path} cannot be {doing}: {reason}; {remedy}, and do the same again")


def write_whole(path: str | pathlib.Path, content: str | bytes) -> None:
    """Writes a file in one step: after a crash it is as before, or has all of the content.

    A link at the path is replaced, not followed.

    Args:
        path: of the file, in a folder that exists.
        content: text, which becomes UTF-8, or bytes.

    Raises:
        StorageError: the disk is full, or the file cannot be written for another reason.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "notes.txt")
        >>> write_whole(path, "two words")
        >>> read_whole(path)
        b'two words'
    """
    path = pathlib.Path(path)
    data = content.encode() if isinstance(content, str) else content
    draft = path.with_name(f".{secrets.token_hex(8)}.tmp")  # a name for which _DRAFT looks
    try:
        # "x" makes a new file, so that nothing that lies there is written through.
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise storage_error(path, error) from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def make_folder(folder: pathlib.Path) -> None:
    """Makes a folder that is written to, and those above it, where they are missing.

    Raises:
        StorageError: it cannot be made, or a link or another file is there.
    """
    try:
        if folder.is_symlink():
            raise OSError(errno.ELOOP, "it is a link, which could lead anywhere")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(folder, error) from None


def remove_drafts(folder: pathlib.Path) -> None:
    """Removes from a folder what a killed `write_whole` has left; call it while no other writes."""
    for path in folder.iterdir():
        if _DRAFT.fullmatch(path.name):
            with contextlib.suppress(OSError):
                path.unlink()


def _sync_folder(folder: pathlib.Path) -> None:
    """Puts the names of a folder's files on disk, where the system can do that."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def open_to_append(path: str | pathlib.Path) -> BinaryIO:
    """Opens a file for `append`; makes it where it is missing.

    Raises:
        StorageError: the path is a link, or not a regular file, or cannot be written to.
    """

    def opener(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)

    try:
        # Without a buffer, whose rest would be written, or fail to be, when it is closed.
        file = open(path, "ab", buffering=0, opener=opener)
    except OSError as error:
        raise storage_error(path, _named(error)) from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise storage_error(path, OSError(errno.EINVAL, "it is not a regular file"))
    return file


def append(file: BinaryIO, data: bytes) -> None:
    """Writes to the end of a file of `open_to_append`; StorageError where that fails."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        raise storage_error(file.name, error) from None


def open_regular(path: str | pathlib.Path) -> BinaryIO:
    """Opens a regular file to read; links are followed.

    Raises:
        OSError: it cannot be opened, or is a folder, FIFO, socket or device, which one could wait
            for without end, or read from without end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO would wait for a writer
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = "FIFO" if stat.S_ISFIFO(mode) else "device"
    raise OSError(errno.EINVAL, f"it is a {kind}, and no regular file", str(path))


def read_whole(path: str | pathlib.Path, *, limit: int = 2**30) -> bytes:
    """Reads a file of a run folder: a regular file, not a link, and not larger than it may be.

    Args:
        path: of the file.
        limit: bytes that it may have at most.

    Raises:
        CheckpointError: the file is missing, a link, not a regular file, or too large.
    """
    try:
        # O_NONBLOCK, because opening a FIFO would wait for a writer.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise CheckpointError(f"{path} must be a file, got something else; remove it")
            data = file.read(limit + 1)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {_named(error).strerror}") from None
    if len(data) > limit:
        raise CheckpointError(f"{path} must have at most {limit:,} bytes, got more")
    return data


def _named(error: OSError) -> OSError:
    """The error, in words that say what the system means by a loop."""
    if error.errno == errno.ELOOP:
        return OSError(errno.ELOOP, "it is a link, which could lead anywhere")
    return error


@dataclasses.dataclass(frozen=True)
class Manifest:
    """SHA-256 of every file of a folder, and what the folder is.

    Args:
        about: what the folder is, as JSON has it, such as the version that wrote it.
        files: SHA-256 in hexadecimal by path, relative to the folder, with slashes; several where
            a file is just being replaced, any of which is right.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> write_whole(folder / "a.txt", "one")
        >>> manifest = Manifest.of(folder, {"layout": 1})
        >>> manifest.damage(folder) is None
        True
        >>> write_whole(folder / "a.txt", "two")
        >>> manifest.damage(folder)
        'a.txt is not the file that was written: its SHA-256 differs'
    """

    about: Mapping[str, Any]
    files: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(
        cls,
        folder: pathlib.Path,
        about: Mapping[str, Any],
        *,
        ignore: Collection[str] = (),
        sync: bool = False,
    ) -> "Manifest":
        """Makes the manifest of a folder.

        Args:
            folder: with regular files and folders only.
            about: what the folder is.
            ignore: paths of files and folders to leave out, as drafts of `write_whole` are anyway.
            sync: put the files and the names in the folders on disk.

        Raises:
            OSError: a file cannot be read, or put on disk.
            CheckpointError: there is a link, or something else that is no file.
        """
        paths = _regular_files(folder, ignore)
        digests = _digests(folder, paths, sync=sync)
        if sync:
            for parent in {os.path.dirname(path) for path in paths} | {""}:
                _sync_folder(folder / parent)
        return cls(about, {path: (digest,) for path, digest in digests.items()})

    def damage(
        self, folder: pathlib.Path, *, ignore: Collection[str] = (), others: bool = False
    ) -> str | None:
        """Compares a folder with the manifest.

        Args:
            folder: to check.
            ignore: paths of files and folders that the manifest does not speak of.
            others: the folder may have other files and links, too, which are not read.

        Returns:
            What is wrong with the first file that is not as it was, for an error message; None
            where every file is there, as it was, and no other.
        """
        try:
            if others:
                paths = [path for path in sorted(self.files) if _lies_in(folder, path)]
            else:
                paths = _regular_files(folder, ignore)
            found = _digests(folder, paths)
        except CheckpointError as error:
            return str(error)
        except OSError as error:
            return f"{error.filename} cannot be read: {error.strerror}"
        for path in sorted(self.files.keys() | found.keys()):
            if path not in found:
                return f"{path} is missing"
            if path not in self.files:
                return f"{path} is no file of it"
            if found[path] not in self.files[path]:
                return f"{path} is not the file that was written: its SHA-256 differs"
        return None


def _regular_files(folder: pathlib.Path, ignore: Collection[str]) -> list[str]:
    """Paths of the files in a folder and the folders in it, sorted; links are not followed."""
    found: list[str] = []
    folders = [""]
    while folders:
        prefix = folders.pop()
        with os.scandir(folder / prefix) as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if path in ignore or _DRAFT.fullmatch(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{path}/")
                elif entry.is_file(follow_symlinks=False):
                    found.append(path)
                else:
                    kind = "a link" if entry.is_symlink() else "no regular file"
                    raise CheckpointError(f"{path} is {kind}")
    return sorted(found)


def _lies_in(folder: pathlib.Path, path: str) -> bool:
    """Tells whether a folder has a regular file at a path; CheckpointError for a link or other."""
    parts = path.split("/")
    if ".." in parts or os.path.isabs(path):
        raise CheckpointError(f"{path} is not in the folder")
    for end in range(1, len(parts) + 1):
        part = "/".join(parts[:end])
        try:
            mode = os.lstat(folder / part).st_mode
        except FileNotFoundError:
            return False
        if not (stat.S_ISREG(mode) if part == path else stat.S_ISDIR(mode)):
            kind = "a link" if stat.S_ISLNK(mode) else "no regular file"
            raise CheckpointError(f"{part} is {kind}")
    return True


def _digests(folder: pathlib.Path, paths: Collection[str], *, sync: bool = False) -> dict[str, str]:
    """SHA-256 of files in a folder, by path; OSError where one cannot be read."""
    with concurrent.futures.ThreadPoolExecutor(_HASHING_THREADS) as threads:
        digests = threads.map(lambda path: _digest(folder / path, sync), paths)
        return dict(zip(paths, digests, strict=True))


def _digest(path: pathlib.Path, sync: bool) -> str:
    """SHA-256 of a file, in hexadecimal; with sync, the file is on disk then."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sync:
            os.fsync(descriptor)
        return digest


def write_manifest(path: pathlib.Path, manifest: Manifest) -> None:
    """Writes a manifest as JSON, with a SHA-256 of its own.

    Raises:
        StorageError: it cannot be written.
    """
    values = {"about": dict(manifest.about), "files": {k: [*v] for k, v in manifest.files.items()}}
    text = json.dumps({**values, "sha256": _json_digest(values)}, indent=0)
    write_whole(path, text + "\n")


def read_manifest(path: pathlib.Path) -> Manifest:
    """Reads a manifest.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        values = json.loads(read_whole(path, limit=_MAX_MANIFEST))
        digest = values.pop("sha256")
        if digest != _json_digest(values):
            raise ValueError("its SHA-256 differs")
        files = {str(name): tuple(map(str, digests)) for name, digests in values["files"].items()}
        return Manifest(dict(values["about"]), files)
    except CheckpointError:
        raise
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None


def _json_digest(values: Any) -> str:
    """SHA-256 of JSON values, whatever the spaces and the order of the keys."""
    return sha256(json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True))


def sha256(content: str | bytes) -> str:
    """SHA-256 of text in UTF-8, or of bytes, in hexadecimal."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()
