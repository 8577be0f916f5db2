"""Reading text files, packed by gzip or not, with clear errors."""

import contextlib
import gzip
import io
import pathlib
import zlib
from collections.abc import Iterator

from jaxformer.errors import DataError

__all__ = ["read_lines", "read_text"]

_MARK = "\ufeff"  # The byte order mark.


def read_text(file: pathlib.Path) -> str:
    """Returns the text of a UTF-8 file, which is unpacked if its name ends in `.gz`.

    A byte order mark at the start is left out; line endings stay as they are.

    Raises:
        DataError: the file is missing, a folder, not UTF-8, or a damaged `.gz` file.
    """
    with _opened(file) as stream:
        data = stream.read()
    return _decoded(data, file, offset=0).removeprefix(_MARK)


def read_lines(file: pathlib.Path) -> Iterator[str]:
    r"""Yields the lines of what `read_text` returns, reading no more than one at a time.

    A line ends at `\n` or `\r\n` and at no other character: two files that were written line by
    line stay aligned though a sentence holds a U+2028.
    """
    offset = 0
    with _opened(file) as stream:
        for line in stream:
            text = _decoded(line, file, offset)
            text = text if offset else text.removeprefix(_MARK)
            offset += len(line)
            yield text.removesuffix("\n").removesuffix("\r")


@contextlib.contextmanager
def _opened(file: pathlib.Path) -> Iterator[io.BufferedIOBase]:
    """Opens a file, and gives clear errors of opening and of reading it."""
    try:
        with gzip.open(file) if file.name.endswith(".gz") else file.open("rb") as stream:
            yield stream
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"a .gz file must be a whole gzip file, got the damaged '{file}': {error}; get it "
            "again, or drop .gz from its name if it is plain text"
        ) from None
    except OSError as error:
        raise DataError(
            f"a path must be a file that can be read, got '{file}': {error.strerror}; check "
            f"its spelling, it starts from {pathlib.Path.cwd()}"
        ) from None


def _decoded(data: bytes, file: pathlib.Path, offset: int) -> str:
    """Decodes bytes that are at an offset of a file."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"a text file must be UTF-8, got the byte 0x{data[error.start]:02X} at offset "
            f"{offset + error.start} of '{file}'; convert it with: iconv -f LATIN1 -t UTF-8"
        ) from None
