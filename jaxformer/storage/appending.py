"""Appending to a file in a bucket, where files can only be replaced."""

import contextlib
import threading

from jaxformer.errors import StorageError, storage_error
from jaxformer.storage.buckets import BucketPath

_INTERVAL = 20.0  # seconds between two uploads of a small file
_SMALL = 2**22  # bytes; larger files are uploaded less often


class BucketAppender:
    """A file in a bucket to append to: kept in memory, and uploaded whole now and then.

    A thread uploads what is new every 20 seconds, so that appending does not wait for the bucket.
    If it fails, the next `write` raises. `flush` and `close` upload at once.

    Args:
        path: path of the file; what it has so far is kept.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(self, path: BucketPath) -> None:
        self._path, self.name = path, str(path)
        self._content = bytearray(path.read_bytes() if path.is_file() else b"")
        self._uploaded = len(self._content)
        self._uploading = threading.Lock()
        self._failure: StorageError | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._upload_now_and_then, daemon=True)
        self._thread.start()

    def write(self, data: bytes | memoryview) -> int:
        """Appends to the file in memory; StorageError if it could not be uploaded before."""
        if self._failure is not None:
            raise self._failure
        self._content += data
        return len(data)

    def flush(self) -> None:
        """Uploads what is new; returns when it is stored. StorageError if that fails."""
        with self._uploading:
            content = bytes(self._content)
            if self._uploaded < len(content):
                try:
                    self._path.write_bytes(content)
                except OSError as error:
                    raise storage_error(self._path, error) from None
                self._uploaded = len(content)

    def close(self) -> None:
        """Uploads what is new, and ends the thread."""
        self._closed.set()
        self._thread.join()
        self.flush()

    def __enter__(self) -> "BucketAppender":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Closes it; an error that is being raised is not replaced by one of closing."""
        with contextlib.nullcontext() if kind is None else contextlib.suppress(StorageError):
            self.close()

    def _upload_now_and_then(self) -> None:
        while not self._closed.wait(_INTERVAL * max(1.0, len(self._content) / _SMALL)):
            try:
                self.flush()
            except StorageError as error:
                self._failure = error
                return
