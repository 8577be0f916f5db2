"""The files below a folder and their digests, on a disk or in a bucket."""

import abc
import concurrent.futures
import hashlib
import os
import pathlib
import stat
from collections.abc import Collection, Mapping

from jaxformer.errors import CheckpointError
from jaxformer.storage.buckets import BucketPath
from jaxformer.storage.files import NO_LINK, NO_WAIT, is_draft, sync_path

_HASHING_THREADS = 4  # hashlib releases the GIL
_READ = 2**22  # bytes of a file in a bucket, read at a time


def algorithm(digest: str = "") -> str:
    """Name in hashlib of the algorithm of a digest in hexadecimal, by its length."""
    return "md5" if len(digest) == 32 else "sha256"


def files_of(folder: pathlib.Path) -> "Files":
    """The files below a folder."""
    return BucketFiles(folder) if isinstance(folder, BucketPath) else DiskFiles(folder)


def file_sizes(folder: pathlib.Path) -> dict[str, int]:
    """Sizes of all regular files below a folder in bytes, by path."""
    return files_of(folder).sizes()


def file_digest(path: pathlib.Path, algorithm: str) -> str:
    """Digest of a regular file of this machine, in hexadecimal; OSError for a link."""
    with open(os.open(path, os.O_RDONLY | NO_LINK | NO_WAIT), "rb", buffering=0) as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


class Files(abc.ABC):
    """The files below a folder, by paths with slashes."""

    algorithm: str
    """Algorithm of new digests."""

    @abc.abstractmethod
    def paths(self, ignore: Collection[str]) -> list[str]:
        """Paths of all files, sorted, without `ignore` and drafts.

        Raises:
            CheckpointError: one is not a regular file.
        """

    @abc.abstractmethod
    def has(self, path: str) -> bool:
        """Whether there is a regular file; CheckpointError for a link, or a path out of here."""

    @abc.abstractmethod
    def sizes(self) -> dict[str, int]:
        """Sizes of all files in bytes."""

    @abc.abstractmethod
    def digest(self, path: str, algorithm: str) -> str:
        """Digest of a file, in hexadecimal."""

    @abc.abstractmethod
    def sync(self, paths: Collection[str]) -> None:
        """Syncs files and their names to the disk."""

    def digests(self, algorithms: Mapping[str, str]) -> dict[str, str]:
        """Digests of files by path, from their algorithms; OSError if one cannot be read."""
        with concurrent.futures.ThreadPoolExecutor(_HASHING_THREADS) as threads:
            found = threads.map(self.digest, algorithms.keys(), algorithms.values())
            return dict(zip(algorithms, found, strict=True))


class DiskFiles(Files):
    """Files on a disk: regular files, since links could lead anywhere."""

    algorithm = "sha256"

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def paths(self, ignore: Collection[str]) -> list[str]:
        """As described in `Files`; does not follow links."""
        found: list[str] = []
        folders = [""]
        while folders:
            prefix = folders.pop()
            with os.scandir(self._folder / prefix) as entries:
                for entry in entries:
                    path = f"{prefix}{entry.name}"
                    if path in ignore or is_draft(entry.name):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{path}/")
                    elif entry.is_file(follow_symlinks=False):
                        found.append(path)
                    else:
                        kind = "a link" if entry.is_symlink() else "not a regular file"
                        raise CheckpointError(f"{path} is {kind}")
        return sorted(found)

    def has(self, path: str) -> bool:
        """As described in `Files`."""
        parts = path.split("/")
        if ".." in parts or os.path.isabs(path):
            raise CheckpointError(f"{path} is not in the folder")
        for end in range(1, len(parts) + 1):
            part = "/".join(parts[:end])
            try:
                mode = os.lstat(self._folder / part).st_mode
            except FileNotFoundError:
                return False
            if not (stat.S_ISREG(mode) if part == path else stat.S_ISDIR(mode)):
                kind = "a link" if stat.S_ISLNK(mode) else "not a regular file"
                raise CheckpointError(f"{part} is {kind}")
        return True

    def sizes(self) -> dict[str, int]:
        """As described in `Files`."""
        return {path: (self._folder / path).lstat().st_size for path in self.paths(())}

    def digest(self, path: str, algorithm: str) -> str:
        """As described in `Files`."""
        return file_digest(self._folder / path, algorithm)

    def sync(self, paths: Collection[str]) -> None:
        """As described in `Files`."""
        parents = {os.path.dirname(path) for path in paths} | {""}
        with concurrent.futures.ThreadPoolExecutor(_HASHING_THREADS) as threads:
            list(threads.map(lambda path: sync_path(self._folder / path), paths))
        for parent in parents:
            sync_path(self._folder / parent)


class BucketFiles(Files):
    """Files in a bucket, listed once; the bucket knows the MD5 of most."""

    algorithm = "md5"

    def __init__(self, folder: BucketPath) -> None:
        self._folder = folder
        self._found = folder.files()

    def paths(self, ignore: Collection[str]) -> list[str]:
        """As described in `Files`."""
        names = ((path, path.rpartition("/")[2]) for path in self._found)
        return [path for path, name in names if path not in ignore and not is_draft(name)]

    def has(self, path: str) -> bool:
        """As described in `Files`."""
        return path in self._found

    def sizes(self) -> dict[str, int]:
        """As described in `Files`."""
        return {path: found.size for path, found in self._found.items()}

    def digest(self, path: str, algorithm: str) -> str:
        """As described in `Files`; reads the file if the bucket does not know its digest."""
        if algorithm == "md5" and (known := self._found[path].md5):
            return known
        digest = hashlib.new(algorithm)
        with (self._folder / path).open_stream() as stream:
            while data := stream.read(_READ):
                digest.update(data)
        return digest.hexdigest()

    def sync(self, paths: Collection[str]) -> None:
        """Does nothing: what a bucket lists is stored."""
