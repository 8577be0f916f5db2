"""The door for paths: of this machine, or in a bucket."""

import os
import pathlib
import re

from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.storage.buckets import URL, BucketPath
from jaxformer.storage.file_systems import PACKAGES

PLAIN = re.compile(r"[A-Za-z0-9_./-]+")
"""Paths on a disk that Orbax is given; for others, a link, since it reads brackets as a pattern."""

# In a bucket there is no link. Tried with Orbax and TensorStore, which do not take ; # and ?.
_TRIED = re.compile(r"[\w./=,+@~ -]+")

_LIKE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+]+://")
# pathlib joins the slashes: str(pathlib.Path("gs://a/b")) is "gs:/a/b".
_JOINED = re.compile(rf"({'|'.join(PACKAGES)}):/[^/]")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]+[a-z0-9]")


def as_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """Parses a path of this machine, or a URL such as gs://bucket/folder.

    Raises:
        ConfigError: a URL has no bucket, or capital letters in its scheme.

    Example:
        >>> as_path("gs://bucket/a").name, type(as_path("gs://bucket/a")).__name__
        ('a', 'BucketPath')
        >>> as_path("runs/a")
        PosixPath('runs/a')
    """
    if isinstance(path, BucketPath):
        return path
    text = os.fspath(path)
    if isinstance(path, pathlib.PurePath) and _JOINED.match(text):
        text = text.replace(":/", "://", 1)
    if not _LIKE_URL.match(text):
        return pathlib.Path(path)
    if not URL.fullmatch(text):
        raise ConfigError(
            f"a path in a bucket must be like gs://bucket/folder, got {text!r}; correct it"
        )
    return BucketPath(text)


def require_plain(folder: BucketPath) -> None:
    """Raises CheckpointError for a path that Orbax does not take, which allows it no link."""
    if not _BUCKET.fullmatch(folder.bucket.key):
        raise CheckpointError(
            f"the name of a bucket must have 3 or more of a-z, 0-9, - _ and ., got {folder.bucket}"
        )
    if not _TRIED.fullmatch(folder.key):
        raise CheckpointError(
            f"{folder} has characters other than letters, digits, spaces and _ . / = , + @ ~ -, "
            "with which no run can be in a bucket; choose another folder"
        )


def in_bucket(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a URL, so that it cannot be memory-mapped, for example.

    Example:
        >>> in_bucket("gs://bucket/a"), in_bucket("a")
        (True, False)
    """
    return isinstance(as_path(path), BucketPath)


def real_path(path: str | os.PathLike[str]) -> str:
    """The absolute path without links, or the URL.

    Example:
        >>> real_path("gs://bucket/a"), real_path("/tmp/../a")
        ('gs://bucket/a', '/a')
    """
    return str(path) if in_bucket(path := as_path(path)) else os.path.realpath(path)


def stamp(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Size of a file in bytes, and a number that changes when it is written.

    The number is the modification time in nanoseconds, or from the version of an object in a
    bucket. OSError or ValueError if the file is missing or cannot be read.
    """
    path = as_path(path)
    if isinstance(path, BucketPath):
        found = path.info()
        return found.size, found.stamp
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
