"""Files: reading them, compressed or not, with clear errors; and whether they have changed."""

import concurrent.futures
import contextlib
import gzip
import hashlib
import io
import os
import pathlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from jaxformer.errors import ConfigError, DataError
from jaxformer.memory import host_memory
from jaxformer.storage import as_path, in_bucket, open_regular, real_path, stamp

BYTE_ORDER_MARK = "\ufeff"
CONVERT = "convert it with: iconv -f LATIN1 -t UTF-8"
_READ = 2**17  # bytes read at a time
_MAX_LINE = 2**24  # bytes; rows of tables and word vectors have a few thousand at most
# Text compresses 3 to 10 times. A file that expands more than this is a decompression bomb. Small
# files are exempt, since one word repeated is text, too.
_MAX_UNPACKED = 200  # times the size of the file
_ALWAYS_UNPACKED = 2**26  # bytes
_SCAN_LAYOUT = 5  # version of what scans remember; part of its key
_FED = 4096  # bytes of a .zst file decompressed at a time, to at most 140 MB
_STAMPED = 16  # files whose stamps are requested at a time, since in buckets each takes a while


def read_lines(file: pathlib.Path) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file, reading one at a time.

    The file is decompressed if its name ends in `.gz` or `.zst`. A byte order mark is dropped. Only
    `\n` and `\r\n` end a line, so two files that were written line by line stay aligned even if a
    sentence contains U+2028. A line of more than 16 MiB is an error.
    """
    file, offset = as_path(file), 0
    with opened(file) as stream:
        while line := stream.readline(_MAX_LINE + 1):
            if len(line) > _MAX_LINE:
                raise DataError(
                    f"a line must have at most {_MAX_LINE:,} bytes, got more in '{file}' from "
                    f"offset {offset:,} on; put line breaks into the file"
                )
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                wrong = not_utf8(error, file, offset + error.start)
                raise DataError(f"{wrong}; {CONVERT}") from None
            text = text if offset else text.removeprefix(BYTE_ORDER_MARK)
            offset += len(line)
            yield text.removesuffix("\n").removesuffix("\r")


def require_fits_memory(file: pathlib.Path) -> None:
    """Raises DataError if a file is larger than memory; a missing file is reported when read."""
    size, _ = file_stamp(file)
    if size > host_memory():
        raise DataError(f"a file must fit in memory, got {size:,} bytes in '{file}'; split it")


@contextlib.contextmanager
def opened(
    file: pathlib.Path, digest: "hashlib._Hash | None" = None
) -> Iterator[BinaryIO | io.BufferedReader]:
    """Opens a file, decompressed if its name ends in `.gz` or `.zst`; a context with clear errors.

    `digest` is updated with the bytes on disk; it is complete once the stream was read to its end.
    """
    try:
        with readable(file), open_regular(file) as regular:
            limit = max(_ALWAYS_UNPACKED, _MAX_UNPACKED * regular.seek(0, os.SEEK_END))
            regular.seek(0)
            plain: Any = regular
            if digest is not None:
                plain = io.BufferedReader(_Watched(regular, digest.update), _READ)
            name = file.name.lower()
            if name.endswith(".gz"):
                with gzip.GzipFile(fileobj=plain) as packed:
                    yield _bounded(packed, file, limit)
            elif name.endswith(".zst"):
                yield _bounded(_Zstandard(plain, file), file, limit)
            else:
                yield plain
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"a .gz file must be a whole gzip file, got the damaged '{file}': {error}; get it "
            "again, or drop .gz from its name if it is plain text"
        ) from None
    except ValueError as error:
        if isinstance(error, DataError) or "null" not in str(error):
            raise
        raise DataError(f"a path must have no NUL, got {str(file)!r}; correct it") from None


@contextlib.contextmanager
def readable(file: pathlib.Path) -> Iterator[None]:
    """A context in which a file that cannot be found or read is a DataError."""
    try:
        yield
    except gzip.BadGzipFile:
        raise
    except OSError as error:
        raise DataError(
            f"a path must be a file that can be read, got '{file}': {error.strerror}; check "
            f"its spelling{start_of_paths(file)}"
        ) from None


def start_of_paths(path: pathlib.Path) -> str:
    """End of an error message: where a path starts from, if from a folder that still exists."""
    if path.is_absolute():
        return ""
    try:
        return f", it starts from {pathlib.Path.cwd()}"
    except OSError:
        return "; it starts from a working folder that has been deleted"


class _Watched(io.RawIOBase):
    """A stream that calls a function with the bytes of each read."""

    def __init__(self, stream: Any, on_read: Callable[[bytes], object]) -> None:
        self._stream, self._on_read = stream, on_read

    def readable(self) -> bool:
        """Always true; io.BufferedReader checks it."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer."""
        data = self._stream.read(len(buffer))
        self._on_read(data)
        buffer[: len(data)] = data
        return len(data)


def _bounded(packed: Any, file: pathlib.Path, limit: int) -> io.BufferedReader:
    """Decompressed content of a file, up to a limit in bytes; more is a DataError."""
    left = limit

    def count(data: bytes) -> None:
        nonlocal left
        left -= len(data)
        if left < 0:
            raise DataError(
                f"a compressed file must unpack to at most {_MAX_UNPACKED} times its size, or "
                f"{_ALWAYS_UNPACKED:,} bytes, got more in '{file}'; unpack it yourself if "
                "you trust it"
            )

    return io.BufferedReader(_Watched(packed, count))


class _Zstandard:
    """Decompressed content of a Zstandard file with any number of frames."""

    def __init__(self, plain: BinaryIO, file: pathlib.Path) -> None:
        try:
            import zstandard
        except ImportError:
            raise ConfigError(
                f"'{file}' needs zstandard, which is missing; pip install \"jaxformer[data]\""
            ) from None
        self._library: Any = zstandard
        self._plain, self._file = plain, file
        self._frame: Any = None
        self._left = memoryview(b"")  # slices are not copies

    def read(self, size: int) -> bytes:
        """Returns up to `size` bytes; none at the end."""
        while not self._left and (packed := self._plain.read(_FED)):
            self._left = memoryview(self._unpacked(packed))
        if not self._left and self._frame is not None:
            raise self._damaged("it ends within a frame")
        data, self._left = self._left[:size], self._left[size:]
        return bytes(data)

    def _unpacked(self, packed: bytes) -> bytes:
        parts = []
        while packed:
            if self._frame is None:
                self._frame = self._library.ZstdDecompressor().decompressobj()
            try:
                parts.append(self._frame.decompress(packed))
            except self._library.ZstdError as error:
                raise self._damaged(error) from None
            packed = b""
            if self._frame.eof:
                packed, self._frame = self._frame.unused_data, None
        return b"".join(parts)

    def _damaged(self, reason: object) -> DataError:
        return DataError(
            f"a .zst file must be a whole Zstandard file, got the damaged '{self._file}': "
            f"{reason}; get it again, or drop .zst from its name if it is plain text"
        )


def not_utf8(error: UnicodeDecodeError, file: pathlib.Path, byte: int) -> str:
    """Error message: the byte of the decompressed file that is not UTF-8, and its line."""
    return (
        f"text must be UTF-8, got the byte 0x{error.object[error.start]:02X} in '{file}', line "
        f"{line_at(file, byte):,}, byte {byte:,}"
    )


def line_at(file: pathlib.Path, byte: int) -> int:
    """Line number, from 1, of a byte of the decompressed file."""
    line = 1
    with opened(file) as stream:
        while byte > 0 and (data := stream.read(min(byte, _READ))):
            line += data.count(b"\n")
            byte -= len(data)
    return line


def skip_bytes(stream: BinaryIO | io.BufferedReader, count: int) -> None:
    """Skips bytes of a file that was just opened: seeks, or reads if it is compressed."""
    if stream.seekable():
        stream.seek(count)
        return
    while count and (data := stream.read(min(count, _READ))):
        count -= len(data)


def unix_lines(text: str) -> str:
    r"""Replaces `\r\n` and `\r` by `\n`."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


class FileState(NamedTuple):
    """State of a file when it was scanned."""

    path: str  # without links, or a URL
    size: int  # in bytes
    modified: int  # in nanoseconds; in a bucket, its version
    content: str  # SHA-256


def file_stamp(file: str | pathlib.Path) -> tuple[int, int]:
    """Size in bytes and time or version, as in `stamp`; -1 for both if reading will fail."""
    try:
        return stamp(file)
    except ConfigError:  # such as a missing package
        raise
    except (OSError, ValueError):
        return -1, -1


def file_stamps(files: Iterable[str | pathlib.Path]) -> list[tuple[int, int]]:
    """The `file_stamp` of each file, which is a request for a file in a bucket."""
    files = list(files)
    if not any(map(in_bucket, files)):
        return list(map(file_stamp, files))
    with concurrent.futures.ThreadPoolExecutor(_STAMPED) as pool:
        return list(pool.map(file_stamp, files))


def read_state(
    file: pathlib.Path, before: tuple[int, int], digest: "hashlib._Hash | None" = None
) -> FileState:
    """State of a file that was just read; DataError if it has changed since the stamp `before`.

    Without the digest of its bytes, they are read again.
    """
    if digest is None:
        digest = hashlib.sha256()
        with readable(file), open_regular(file) as stream:
            while data := stream.read(2**20):
                digest.update(data)
    require_stamp(file, before)
    return FileState(real_path(file), *before, digest.hexdigest())


def require_unchanged(state: FileState) -> None:
    """Raises DataError if size, modification time or version of a file have changed."""
    require_stamp(state.path, (state.size, state.modified))


def require_stamp(file: str | pathlib.Path, before: tuple[int, int]) -> None:
    """Raises DataError if a file has another `file_stamp`."""
    with readable(as_path(file)):
        try:
            found = stamp(file)
        except FileNotFoundError:
            found = -1, -1
    if found != before:
        raise DataError(
            f"'{file}' has changed while it was read; wait until it is complete, and try again"
        )


def scan_stem(
    cache_dir: pathlib.Path | None,
    name: str,
    files: Iterable[pathlib.Path],
    options: Sequence[Any],
) -> pathlib.Path | None:
    """Path without suffix, in a folder of the cache, for what a scan finds; None without a cache.

    Its name is a hash of paths, sizes and times of the files, and of the `repr`s of the options.
    """
    if cache_dir is None:
        return None
    digest = hashlib.sha256(repr((_SCAN_LAYOUT, *options)).encode(errors="surrogateescape"))
    files = list(files)
    for file, found in zip(files, file_stamps(files), strict=True):
        digest.update(repr((real_path(file), found)).encode(errors="surrogateescape"))
    return cache_dir / name / digest.hexdigest()[:32]
