"""File systems of fsspec by URL: their errors, listings and streams, made the same for all."""

import base64
import binascii
import contextlib
import errno
import hashlib
import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jaxformer.errors import ConfigError, StorageError, first_line

MISSING = (FileNotFoundError, NotADirectoryError)
"""Errors for a file that is not there."""

PATIENCE = 600.0
"""Seconds for which a bucket that does not answer is asked again during a training."""

locks: dict[str, Callable[[], None]] = {}
"""Of each folder that this process has locked, what raises StorageError if the lock is lost."""

given_up = threading.Event()
"""Set from giving a bucket up until an answer: what an ending training still asks waits no more."""

trainings: set[object] = set()
"""One object for each training of this process, as long as it lasts."""

_QUIET = 30.0  # seconds between two lines about buckets that do not answer
_said = -_QUIET  # when the last one was printed

_GOOGLE = ("gs://", "gcs://")
_SETTINGS = {
    # gcsfs then does not load the client of a second service, for a rare kind of bucket.
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    # TensorStore sends a request again after so many seconds with fewer bytes a second.
    "TENSORSTORE_CURL_LOW_SPEED_TIME_SECONDS": "30",
    "TENSORSTORE_CURL_LOW_SPEED_LIMIT_BYTES": "1",
}
PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "s3": "s3fs", "az": "adlfs"}  # by scheme
_DENIED = ("Forbidden", "nonymous caller", "CredentialsError", "AccessDenied")  # in messages


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

    @property
    def stamp(self) -> int:
        """The version as a number: itself if it is one, as in Google's buckets, else its hash."""
        if self.version.isdecimal():
            return int(self.version)
        return int.from_bytes(hashlib.sha256(self.version.encode()).digest()[:7])


class BucketStream(io.RawIOBase):
    """A stream of fsspec, all of whose errors are an OSError with one line."""

    def __init__(
        self, url: str, stream: Any, opened: BucketObject, info: Callable[[], BucketObject]
    ) -> None:
        self._url, self._stream, self._opened, self._info = url, stream, opened, info

    def readable(self) -> bool:
        """Always True."""
        return True

    def seekable(self) -> bool:
        """Always True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer; the next block is requested if need be."""
        with bucket_errors(self._url):
            data = self._stream.read(len(buffer))
        if len(buffer) and not data:  # the end
            if self._stream.tell() < self._opened.size or self._info() != self._opened:
                raise OSError(errno.EIO, "it has changed while it was read", self._url)
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves to a byte, without a request."""
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        """The byte that is read next."""
        return int(self._stream.tell())

    def close(self) -> None:
        """Closes the stream."""
        self._stream.close()
        super().close()


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """A training, during which buckets that do not answer are asked again for ten minutes."""
    training = object()
    trainings.add(training)
    try:
        yield
    finally:
        trainings.remove(training)


def say_waiting(line: str) -> None:
    """Prints what a training waits for, once each half minute: many requests may wait at once."""
    global _said
    if time.monotonic() - _said >= _QUIET:
        _said = time.monotonic()
        print(f"{line}; trying again", file=sys.stderr, flush=True)


@contextlib.contextmanager
def bucket_errors(url: str, *, missing: str = "there is no such file") -> Iterator[None]:
    """Turns every error of a bucket into an OSError whose strerror is one line.

    Its errno is ENOENT, EACCES, or EIO for a bucket that does not answer as it should.
    """
    try:
        yield
    except (ConfigError, StorageError):  # a missing package, a lost lock
        raise
    except MISSING:
        raise FileNotFoundError(errno.ENOENT, missing, url) from None
    except IsADirectoryError:
        raise IsADirectoryError(errno.EISDIR, "it is a folder", url) from None
    except Exception as error:  # each file system raises kinds of its own
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):  # of this machine
            raise
        line = first_line(error)[:300]
        if not _is_denied(error):
            raise OSError(errno.EIO, line, url) from None
        remedy = "have the right to it, and log in"
        if url.startswith(_GOOGLE):
            remedy += " with: gcloud auth application-default login"
        raise PermissionError(errno.EACCES, f"{line}; {remedy}", url) from None


def _is_denied(error: Exception) -> bool:
    """Whether the bucket has refused the credentials, or there are none."""
    code = str(getattr(error, "code", None))
    return code in ("401", "403") or any(word in repr(error) for word in _DENIED)


def listed(values: Any) -> BucketObject:
    """The entry of a listing, whose keys each file system names in its own way."""
    names = ("generation", "etag", "ETag", "mtime", "LastModified", "created")
    version = next((str(values[name]) for name in names if values.get(name)), None)
    if version is None:
        raise OSError(errno.EINVAL, "its file system tells no version of it", values["name"])
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


def file_system(url: str) -> Any:
    """The fsspec file system of a scheme; fsspec makes one for each."""
    scheme = url.partition("://")[0]
    if is_google := url.startswith(_GOOGLE):
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        log = logging.getLogger("gcsfs")
        if log.level == logging.NOTSET:
            log.setLevel(logging.CRITICAL)  # it logs tracebacks of what is raised anyway
    try:
        import fsspec

        if is_google:
            from jaxformer.storage import google

            google.register()
        # Listings are not kept: other processes write to the bucket, too.
        return fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError as error:
        if missing := PACKAGES.get(scheme):
            install = '"jaxformer[gcs]"' if is_google else missing
            reason = f"{missing}, which is missing; pip install {install}"
        else:
            reason = f"a package that is missing ({first_line(error)})"
        raise ConfigError(f"{url} needs {reason}") from None
    except ValueError as error:
        raise ConfigError(f"{url} has an unknown scheme ({error}); use gs:// or s3://") from None
