"""Reading text files, packed by gzip or not, with clear errors."""

import contextlib
import gzip
import io
import os
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from jaxformer.errors import DataError
from jaxformer.memory import host_memory
from jaxformer.storage import open_regular

__all__ = ["read_lines", "read_text", "start_of_paths"]

_MARK = "\ufeff"  # The byte order mark.
_MAX_LINE = 2**24  # bytes; a row of a table, or a word vector, has some thousand at most
# Text is packed to a third or a tenth of its size; what unpacks to more than this is made to fill
# the memory. Small files may, since the same word over and over is text, too.
_MAX_UNPACKED = 200  # times the size of the file
_ALWAYS_UNPACKED = 2**26  # bytes


def read_text(file: pathlib.Path) -> str:
    """Returns the text of a UTF-8 file, which is unpacked if its name ends in `.gz`.

    A byte order mark at the start is left out; line endings stay as they are.

    Raises:
        DataError: the file is missing, not a regular file, larger than the memory, not UTF-8, a
            damaged `.gz` file, or one of more than 64 MiB and 200 times its size unpacked.
    """
    with _opened(file) as stream:
        data = stream.read()
    return _decoded(data, file, offset=0).removeprefix(_MARK)


def read_lines(file: pathlib.Path) -> Iterator[str]:
    r"""Yields the lines of what `read_text` returns, reading no more than one at a time.

    A line ends at `\n` or `\r\n` and at no other character: two files that were written line by
    line stay aligned though a sentence holds a U+2028. One of more than 16 MiB is an error.
    """
    offset = 0
    with _opened(file) as stream:
        while line := stream.readline(_MAX_LINE + 1):
            if len(line) > _MAX_LINE:
                raise DataError(
                    f"a line must have at most {_MAX_LINE:,} bytes, got more in '{file}' from "
                    f"offset {offset:,} on; put line breaks into the file"
                )
            text = _decoded(line, file, offset)
            text = text if offset else text.removeprefix(_MARK)
            offset += len(line)
            yield text.removesuffix("\n").removesuffix("\r")


@contextlib.contextmanager
def _opened(file: pathlib.Path) -> Iterator[BinaryIO | io.BufferedReader]:
    """Opens a file, and gives clear errors of opening and of reading it."""
    try:
        with open_regular(file) as plain:
            size = os.fstat(plain.fileno()).st_size
            if size > host_memory():
                raise DataError(
                    f"a file must be smaller than the memory, got {size:,} bytes in '{file}'; "
                    "split it"
                )
            if file.name.endswith(".gz"):
                limit = max(_ALWAYS_UNPACKED, _MAX_UNPACKED * size)
                with gzip.GzipFile(fileobj=plain) as packed:
                    yield io.BufferedReader(_Bounded(packed, file, limit))
            else:
                yield plain
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"a .gz file must be a whole gzip file, got the damaged '{file}': {error}; get it "
            "again, or drop .gz from its name if it is plain text"
        ) from None
    except OSError as error:
        raise DataError(
            f"a path must be a file that can be read, got '{file}': {error.strerror}; check "
            f"its spelling{start_of_paths()}"
        ) from None
    except ValueError as error:
        if isinstance(error, DataError) or "null" not in str(error):
            raise
        raise DataError(f"a path must have no NUL, got {str(file)!r}; correct it") from None


def start_of_paths() -> str:
    """End of a message: the folder that relative paths start from, if it is still there."""
    try:
        return f", it starts from {pathlib.Path.cwd()}"
    except OSError:
        return "; it starts from a working folder that has been deleted"


class _Bounded(io.RawIOBase):
    """What a gzip file unpacks to, up to a limit in bytes; more is a DataError."""

    def __init__(self, packed: gzip.GzipFile, file: pathlib.Path, limit: int) -> None:
        self._packed, self._file, self._limit = packed, file, limit
        self._read = 0

    def readable(self) -> bool:
        """That it is: io.BufferedReader asks."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Unpacks into a buffer."""
        data = self._packed.read(len(buffer))
        self._read += len(data)
        if self._read > self._limit:
            raise DataError(
                f"a .gz file must unpack to at most {_MAX_UNPACKED} times its size, or "
                f"{_ALWAYS_UNPACKED:,} bytes, got more in '{self._file}'; unpack it yourself if "
                "you trust it"
            )
        buffer[: len(data)] = data
        return len(data)


def _decoded(data: bytes, file: pathlib.Path, offset: int) -> str:
    """Decodes bytes that are at an offset of a file."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"a text file must be UTF-8, got the byte 0x{data[error.start]:02X} at offset "
            f"{offset + error.start} of '{file}'; convert it with: iconv -f LATIN1 -t UTF-8"
        ) from None
