"""Paths of files in buckets, such as gs://bucket/corpus/a.jsonl, read through fsspec."""

import concurrent.futures
import contextlib
import errno
import fnmatch
import glob
import io
import os
import pathlib
import posixpath
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from jaxformer.errors import ConfigError
from jaxformer.storage.file_systems import (
    MISSING,
    BucketObject,
    BucketStream,
    bucket_errors,
    file_system,
    listed,
    locks,
)

T = TypeVar("T")

URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+]+):/{1,2}(?P<key>[^/].*)", re.DOTALL)
"""Scheme and key of a URL, also of one whose slashes pathlib has joined."""

_BLOCK = 2**23  # bytes requested at a time
_BLOCKS = {"maxblocks": 3}  # in memory, besides the one that is requested
_REMOVED = 16  # files that are removed at a time
_READ = 2**17  # bytes copied from a block at a time


class BucketPath(type(pathlib.Path())):  # type: ignore[misc]
    """Path of a file or folder in a bucket: its text is the URL.

    The methods of `pathlib.Path` that are redefined here work on the bucket, and so do the
    functions of this package. The operating system knows no such path: `os.fspath` raises
    ConfigError.

    Example:
        >>> path = BucketPath("gs://bucket/corpus")
        >>> print(path / "a.jsonl", path.name, path.parent)
        gs://bucket/corpus/a.jsonl corpus gs://bucket
    """

    __slots__ = ()

    def __str__(self) -> str:
        found = URL.fullmatch(super().__str__())
        if not found:
            return super().__str__()
        key = found["key"]
        return f"{found['scheme']}://{posixpath.normpath(key) if '..' in self.parts else key}"

    def __fspath__(self) -> str:
        raise ConfigError(
            f"{self} is in a bucket, and must be on a disk of this machine; copy it there, for "
            f"example with: gcloud storage cp -r {self} ."
        )

    @property
    def scheme(self) -> str:
        """Name of the kind of bucket, such as gs."""
        return str(self).partition("://")[0]

    @property
    def key(self) -> str:
        """Bucket and path in it."""
        return str(self).partition("://")[2]

    @property
    def bucket(self) -> "BucketPath":
        """The bucket itself."""
        return BucketPath(f"{self.scheme}://{self.key.partition('/')[0]}")

    @property
    def system(self) -> Any:
        """The fsspec file system; ConfigError if its package is missing."""
        return file_system(str(self))

    def is_absolute(self) -> bool:
        """Always True: there is no working folder."""
        return True

    def absolute(self) -> "BucketPath":
        """Returns the path, which has no working folder."""
        return self

    def resolve(self, strict: bool = False) -> "BucketPath":
        """Returns the path: buckets have no links."""
        return self

    def is_symlink(self) -> bool:
        """Always False."""
        return False

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether a file has this path, or lies below it; OSError if the bucket does not say."""
        return self._type() is not None

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether a file has this path; OSError if the bucket does not say."""
        return self._type() == "file"

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether files lie below this path; OSError if the bucket does not say."""
        return self._type() == "directory"

    def _type(self) -> str | None:
        """Either "file" or "directory"; None if there is neither.

        Not by `isfile` of the file system, for which any error means that there is none.
        """
        try:
            return str(self._ask(lambda: self.system.info(self.key))["type"])
        except MISSING:
            return None

    def iterdir(self) -> Iterator["BucketPath"]:
        """Yields the paths of files and folders directly below this one."""
        prefix = f"{self.key}/"
        keys = self._ask(lambda: self.system.ls(self.key, detail=False))
        names = {key.removeprefix(prefix).rstrip("/") for key in keys if key.startswith(prefix)}
        yield from (self / name for name in sorted(names - {""}))

    def read_bytes(self) -> bytes:
        """Content of the file."""
        return bytes(self._ask(lambda: self.system.cat_file(self.key)))

    def write_bytes(self, data: Any) -> int:
        """Replaces the file atomically."""
        self._change(lambda: self.system.pipe_file(self.key, data))
        return len(data)

    def upload(self, file: pathlib.Path) -> None:
        """Replaces the file atomically by one of this machine."""
        self._change(lambda: self.system.put_file(str(file), self.key))

    def download(self, file: pathlib.Path) -> None:
        """Copies the file to one of this machine, which is whole or not there."""
        draft = file.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            # In one stream: gcsfs would send it again by itself, if it were several.
            self._ask(lambda: self.system.get_file(self.key, str(draft), concurrency=1))
            os.replace(draft, file)
        finally:
            draft.unlink(missing_ok=True)

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the file."""
        with contextlib.suppress(*(MISSING if missing_ok else ())):
            self._ask(lambda: self.system.rm_file(self.key), changes=True)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Does nothing: in a bucket, a folder is where files are."""

    def remove_tree(self) -> None:
        """Removes the file, and all files below this path, if there are any."""
        paths = [self / name for name in self.files()] + [self]
        with concurrent.futures.ThreadPoolExecutor(_REMOVED) as threads:
            list(threads.map(lambda path: path.unlink(missing_ok=True), paths))

    def rename(self, target: "BucketPath") -> "BucketPath":
        """Moves all files below this path, by copying each."""
        for name in self.files():
            (self / name)._copy(target / name)
            (self / name).unlink(missing_ok=True)  # the answer to a first request may be lost
        return target

    def _copy(self, target: "BucketPath") -> None:
        target._change(lambda: self.system.cp_file(self.key, target.key))

    def require_lock(self) -> None:
        """Raises StorageError if this process has locked a folder that the path is in, and lost it.

        All methods that change something do so themselves.
        """
        for folder, require in list(locks.items()):
            if str(self) == folder or str(self).startswith(f"{folder}/"):
                require()

    def _ask(
        self, request: Callable[[], T], *, changes: bool = False,
        missing: str = "there is no such file",
    ) -> T:  # fmt: skip
        """Answer of the bucket to a request, whose errors are of one kind.

        Before a request that changes something, the lock of a folder that the path is in must still
        be held, if this process has locked one. `missing` is the message if there is no file of
        this path.
        """
        if changes:
            self.require_lock()
        with bucket_errors(str(self), missing=missing):
            return request()

    def _change(self, request: Callable[[], object]) -> None:
        """As `_ask`, for a request that writes this file."""
        self._ask(request, changes=True, missing="there is no such bucket")

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Size of the file, with no other part of a status."""
        return os.stat_result((0, 0, 0, 1, 0, 0, self.info().size, 0, 0, 0))

    def open_stream(self) -> io.BufferedReader:
        """Opens the file for reading; while a block is read, the next one is requested.

        Closing the stream waits for that.
        """
        found = self._ask(lambda: self.system.info(self.key))
        if found["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "it is a folder", str(self))
        if (encoding := found.get("contentEncoding")) not in (None, "", "identity"):
            reason = f"its content is stored as {encoding}; upload it as it is, ending in .gz"
            raise OSError(errno.EINVAL, reason, str(self))
        stream = self._ask(
            lambda: self.system.open(
                self.key,
                "rb",
                block_size=_BLOCK,
                cache_type="background",
                cache_options=_BLOCKS,
                size=found["size"],
            )
        )
        read = BucketStream(str(self), stream, listed(found), self.info)
        return io.BufferedReader(read, _READ)

    def info(self) -> BucketObject:
        """Size and version of the file."""
        return listed(self._ask(lambda: self.system.info(self.key)))

    def files(self) -> dict[str, BucketObject]:
        """All files below this path, by their path relative to it, sorted."""
        prefix = f"{self.key.rstrip('/')}/"
        found = self._ask(lambda: self.system.find(prefix, detail=True))
        files = {
            key.removeprefix(prefix): listed(values)
            for key, values in sorted(found.items())
            if key.startswith(prefix) and not key.endswith("/")
        }
        for name in files:
            if {"", ".", ".."} & set(name.split("/")):
                raise OSError(
                    errno.EINVAL, f"it has the object {name!r}, which no path names", str(self)
                )
        return files

    def glob(self, pattern: str, **_: object) -> Iterator["BucketPath"]:
        """Yields the files below this path that match a pattern, sorted.

        `**` matches folders of any depth. Names that begin with a dot are matched only by a pattern
        that begins with one.

        Raises:
            OSError: the bucket cannot be listed.
        """
        parts = [part for part in pattern.split("/") if part]
        parts += ["*"] if parts[-1:] == ["**"] else []
        pairs = zip(parts, ["", *parts], strict=False)  # "**/**" is "**"
        parts = [part for part, before in pairs if not part == before == "**"]
        found = self._below(parts) if "**" in parts else self._at(parts)
        with contextlib.suppress(*MISSING):  # of the bucket
            yield from sorted(found)

    def _below(self, parts: list[str]) -> Iterator["BucketPath"]:
        """Files of any depth that match a pattern with `**`."""
        yield from (self / name for name in self.files() if _matches(name.split("/"), parts))

    def _at(self, parts: list[str]) -> Iterator["BucketPath"]:
        """Files that match a pattern without `**`: only folders that match are listed."""
        found = self._ask(lambda: self.system.ls(self.key, detail=True))
        wanted = "file" if len(parts) == 1 else "directory"
        for values in found:
            folder, _, name = values["name"].rstrip("/").rpartition("/")
            is_below = folder == self.key  # not the object that stands for this folder itself
            if is_below and values["type"] == wanted and _matches([name], parts[:1]):
                yield from (self / name)._at(parts[1:]) if len(parts) > 1 else [self / name]

    def matching(self) -> Iterator["BucketPath"]:
        """Yields the files that match this path as a pattern, sorted; as in `glob`."""
        first = next((i for i, part in enumerate(self.parts) if glob.has_magic(part)), None)
        if first is None:
            return iter([self] if self.is_file() else [])
        first = max(first, 2)  # after the scheme and the bucket
        folder = BucketPath(*self.parts[:first])
        return folder.glob("/".join(self.parts[first:]))


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the names of a path match the parts of a pattern.

    Example:
        >>> _matches(["a", "b", "c.txt"], ["**", "*.txt"]), _matches([".c"], ["*"])
        (True, False)
    """
    if not (names and pattern):
        return not (names or pattern)
    (name, *others), (part, *rest) = names, pattern
    is_shown = part.startswith(".") or not name.startswith(".")
    if part == "**":
        return _matches(names, rest) or (is_shown and _matches(others, pattern))
    return is_shown and fnmatch.fnmatchcase(name, part) and _matches(others, rest)
