"""Paths of files in buckets, such as gs://bucket/corpus/a.jsonl, read through fsspec."""

import base64
import binascii
import contextlib
import errno
import logging
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from jaxformer.errors import ConfigError
from jaxformer.storage.json_files import first_line

# pathlib joins the slashes: str(pathlib.Path("gs://a/b")) is "gs:/a/b".
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+]+):/{1,2}(?P<key>[^/].*)", re.DOTALL)
_GOOGLE = ("gs", "gcs")
_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "s3": "s3fs", "az": "adlfs"}  # of fsspec, by scheme
_DENIED = ("Forbidden", "nonymous caller", "redentials", "AccessDenied")  # in messages
_BLOCK = 2**22  # bytes requested at a time
_MISSING = (FileNotFoundError, NotADirectoryError)


class BucketObject(NamedTuple):
    """A file in a bucket, as a listing shows it.

    Args:
        size: in bytes.
        version: text that differs after each write.
        md5: its MD5 in hexadecimal, computed by the bucket; None if the bucket has none.
    """

    size: int
    version: str
    md5: str | None


class BucketPath(type(pathlib.Path())):  # type: ignore[misc]
    """Path of a file or folder in a bucket: its text is the URL.

    The methods of `pathlib.Path` that are redefined here work on the bucket, and so do the
    functions of this package. The operating system knows no such path: `os.fspath` raises
    TypeError.

    Example:
        >>> path = BucketPath("gs://bucket/corpus")
        >>> print(path / "a.jsonl", path.name, path.parent)
        gs://bucket/corpus/a.jsonl corpus gs://bucket
    """

    __slots__ = ()

    def __str__(self) -> str:
        found = _URL.fullmatch(super().__str__())
        return f"{found['scheme']}://{found['key']}" if found else super().__str__()

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is in a bucket, and not a path of this machine")

    @property
    def scheme(self) -> str:
        """Name of the kind of bucket, such as gs."""
        return str(self).partition("://")[0]

    @property
    def key(self) -> str:
        """Bucket and path in it."""
        return str(self).partition("://")[2]

    @property
    def system(self) -> Any:
        """The fsspec file system; ConfigError if its package is missing."""
        return _file_system(self.scheme, str(self))

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
        """Whether a file has this path, or lies below it."""
        with bucket_errors(self):
            return bool(self.system.exists(self.key))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether a file has this path."""
        with bucket_errors(self):
            return bool(self.system.isfile(self.key))

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether files lie below this path."""
        with bucket_errors(self):
            return bool(self.system.isdir(self.key))

    def iterdir(self) -> Iterator["BucketPath"]:
        """Yields the paths of files and folders directly below this one."""
        with bucket_errors(self):
            keys = self.system.ls(self.key, detail=False)
        names = sorted({key.rstrip("/").rpartition("/")[2] for key in keys} - {""})
        yield from (self / name for name in names)

    def read_bytes(self) -> bytes:
        """Content of the file."""
        with bucket_errors(self):
            return bytes(self.system.cat_file(self.key))

    def write_bytes(self, data: Any) -> int:
        """Replaces the file atomically."""
        with bucket_errors(self):
            self.system.pipe_file(self.key, data)
        return len(data)

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the file."""
        with contextlib.suppress(*(_MISSING if missing_ok else ())), bucket_errors(self):
            self.system.rm_file(self.key)

    def open_stream(self) -> BinaryIO:
        """Opens the file for reading; blocks are requested as they are read."""
        with bucket_errors(self):
            stream: BinaryIO = self.system.open(
                self.key, "rb", block_size=_BLOCK, cache_type="readahead"
            )
        return stream

    def info(self) -> BucketObject:
        """Size and version of the file."""
        with bucket_errors(self):
            return _object(self.system.info(self.key))

    def files(self) -> dict[str, BucketObject]:
        """All files below this path, by their path relative to it, sorted."""
        prefix = f"{self.key.rstrip('/')}/"
        with bucket_errors(self):
            found = self.system.find(prefix, detail=True)
        return {
            key.removeprefix(prefix): _object(values)
            for key, values in sorted(found.items())
            if key.startswith(prefix) and not key.endswith("/")
        }


def as_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """Parses a path of this machine, or a URL such as gs://bucket/folder.

    Example:
        >>> as_path("gs://bucket/a").name, type(as_path("gs://bucket/a")).__name__
        ('a', 'BucketPath')
        >>> as_path("runs/a")
        PosixPath('runs/a')
    """
    if isinstance(path, BucketPath):
        return path
    text = os.fspath(path)
    return BucketPath(text) if _URL.fullmatch(text) else pathlib.Path(path)


@contextlib.contextmanager
def bucket_errors(path: BucketPath) -> Iterator[None]:
    """Turns every error of a bucket into an OSError whose strerror is one line."""
    try:
        yield
    except ConfigError:
        raise
    except _MISSING:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", str(path)) from None
    except Exception as error:  # each file system raises kinds of its own
        raise OSError(errno.EIO, _reason(path, error), str(path)) from None


def _reason(path: BucketPath, error: Exception) -> str:
    """What went wrong, on one line, and what to do without credentials."""
    line = first_line(error)[:300]
    code = getattr(error, "code", None)
    if str(code) in ("401", "403") or any(word in line for word in _DENIED):
        remedy = "have the right to it, and log in"
        if path.scheme in _GOOGLE:
            remedy += " with: gcloud auth application-default login"
        return f"{line}; {remedy}"
    return line


def _object(values: Any) -> BucketObject:
    """The entry of a listing, whose keys each file system names in its own way."""
    names = ("generation", "etag", "ETag", "mtime", "LastModified", "created")
    version = next((str(values[name]) for name in names if values.get(name)), "")
    md5 = values.get("md5Hash")
    return BucketObject(int(values.get("size") or 0), version, _hexadecimal(md5))


def _hexadecimal(md5: str | None) -> str | None:
    """A digest in base64, in hexadecimal."""
    if md5 is None:
        return None
    try:
        return base64.b64decode(md5, validate=True).hex()
    except binascii.Error:
        return None


def _file_system(scheme: str, url: str) -> Any:
    """The fsspec file system of a scheme; fsspec makes one for each."""
    is_google = scheme in _GOOGLE
    if is_google:
        # Without it, gcsfs asks a second service for the kind of a bucket before every request.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        logging.getLogger("gcsfs").setLevel(logging.ERROR)
    try:
        import fsspec

        # Listings are not kept: other processes write to the bucket, too.
        return fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError as error:
        if missing := _PACKAGES.get(scheme):
            install = '"jaxformer[gcs]"' if is_google else missing
            reason = f"{missing}, which is missing; pip install {install}"
        else:
            reason = f"a package that is missing ({first_line(error)})"
        raise ConfigError(f"{url} needs {reason}") from None
    except ValueError as error:
        raise ConfigError(f"{url} has an unknown scheme ({error}); use gs:// or s3://") from None
