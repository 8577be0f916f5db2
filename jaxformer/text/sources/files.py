"""Files: reading them, compressed or not, with clear errors; and whether they have changed."""

import bz2
import contextlib
import gzip
import io
import lzma
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from jaxformer.errors import ConfigError, DataError, first_line, reason_of
from jaxformer.storage import as_path, open_regular

BYTE_ORDER_MARK = "\ufeff"
_ICONV = "convert it with: iconv -f {} -t UTF-8"
# First bytes of files that are not text, what they are, and the remedy.
_KINDS = {
    b"\xff\xfe\0\0": ("UTF-32", _ICONV.format("UTF-32")),  # before UTF-16, which it begins with
    b"\0\0\xfe\xff": ("UTF-32", _ICONV.format("UTF-32")),
    b"\xff\xfe": ("UTF-16", _ICONV.format("UTF-16")),
    b"\xfe\xff": ("UTF-16", _ICONV.format("UTF-16")),
    b"PK\x03\x04": ("a zip archive", "unpack it"),
    b"7z\xbc\xaf\x27\x1c": ("a 7-Zip archive", "unpack it"),
    b"Rar!\x1a\x07": ("a RAR archive", "unpack it"),
    b"\x1f\x8b": ("gzip data", "unpack it, or let its name end in .gz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard data", "unpack it, or let its name end in .zst"),
    b"\xfd7zXZ\0": ("xz data", "unpack it, or let its name end in .xz"),
    b"BZh91AY&SY": ("bzip2 data", "unpack it, or let its name end in .bz2"),
    b"%PDF-": ("a PDF file", "extract its text, for example with: pdftotext"),
}
PACKED = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "Zstandard"}
"""Compressions by the end of a file's name."""

_UNPACKERS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda plain: gzip.GzipFile(fileobj=plain), ".bz2": bz2.BZ2File, ".xz": lzma.LZMAFile
}  # fmt: skip

_START = 2**10  # bytes at the start of a file that say whether it is text
_MAX_LINE = 2**24  # bytes; rows of tables and word vectors have a few thousand at most
_FED = 4096  # bytes of a .zst file decompressed at a time, to at most 140 MB


def read_lines(file: pathlib.Path) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file, reading one at a time.

    The file is decompressed if its name ends in `.gz`, `.bz2`, `.xz` or `.zst`. A byte order mark
    is dropped. Only `\n` and `\r\n` end a line, so two files that were written line by line stay
    aligned even if a sentence contains U+2028; and `\r`, if the file has no `\n`. A line of more
    than 16 MiB is an error.
    """
    file, number, offset = as_path(file), 0, 0
    with opened_text(file) as stream:
        while line := stream.readline(_MAX_LINE + 1):
            number += 1
            if len(line) > _MAX_LINE:
                raise DataError(
                    f"a line must have at most {_MAX_LINE:,} bytes, got more in '{file}' from "
                    f"offset {offset:,} on; put line breaks into the file"
                )
            try:
                text = decoded(line)
            except UnicodeDecodeError as error:
                wrong = not_utf8(error, file, number, offset + error.start)
                raise DataError(f"{wrong}; {remedy_of(error)}") from None
            text = text if offset else text.removeprefix(BYTE_ORDER_MARK)
            offset += len(line)
            is_whole_file = number == 1 and not text.endswith("\n")
            text = text.removesuffix("\n").removesuffix("\r")
            yield from text.split("\r") if is_whole_file else [text]


@contextlib.contextmanager
def opened_text(file: pathlib.Path) -> Iterator[BinaryIO | io.BufferedReader]:
    """Opens a file as `opened` does; a DataError if it begins like another format."""
    with opened(file) as stream:
        start = cast(io.BufferedReader, stream).peek(_START)[:_START]
        for first_bytes, (kind, remedy) in _KINDS.items():
            if start.startswith(first_bytes):
                raise DataError(f"text must be UTF-8, got {kind} in '{file}'; {remedy}")
        if start[257:262] == b"ustar":
            raise DataError(f"text must be UTF-8, got a tar archive in '{file}'; unpack it")
        if encoding := _utf16_without_mark(start):
            raise DataError(
                f"text must be UTF-8, got {encoding} in '{file}'; {_ICONV.format(encoding)}"
            )
        yield stream


def _utf16_without_mark(start: bytes) -> str | None:
    """Encoding of text of which every second byte, or nearly, is NUL; None for other text."""
    zeros = start[::2].count(0), start[1::2].count(0)
    if len(start) < 4 * max(zeros):
        if not zeros[0]:
            return "UTF-16LE"
        if not zeros[1]:
            return "UTF-16BE"
    return None


@contextlib.contextmanager
def opened(file: pathlib.Path) -> Iterator[BinaryIO | io.BufferedReader]:
    """Opens a file, decompressed as its name says; a context with clear errors."""
    suffix = pathlib.PurePath(file.name).suffix.lower()
    try:
        with readable(file), _undamaged(file), open_regular(file) as plain:
            if suffix == ".zst":
                yield io.BufferedReader(_Zstandard(plain, file))
            else:
                yield _UNPACKERS[suffix](plain) if suffix in _UNPACKERS else plain
    except ValueError as error:
        if isinstance(error, DataError) or "null" not in str(error):
            raise
        raise DataError(f"a path must have no NUL, got {str(file)!r}; correct it") from None


@contextlib.contextmanager
def _undamaged(file: pathlib.Path) -> Iterator[None]:
    """A context in which a file that cannot be unpacked is a DataError."""
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise _damaged(file, error) from None
    except OSError as error:
        if error.errno is not None or file.suffix.lower() not in PACKED:  # of the disk
            raise
        raise _damaged(file, error) from None


@contextlib.contextmanager
def readable(file: pathlib.Path) -> Iterator[None]:
    """A context in which a file that cannot be found or read is a DataError."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"a path must be a file that can be read, got '{file}': {reason_of(error)}; check "
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


def _damaged(file: pathlib.Path, reason: object) -> DataError:
    suffix = pathlib.PurePath(file.name).suffix
    return DataError(
        f"a {suffix} file must be a whole {PACKED[suffix.lower()]} file, got the damaged "
        f"'{file}': {first_line(reason)}; get it again, or drop {suffix} from its name if it is "
        "plain text"
    )


class _Zstandard(io.RawIOBase):
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

    def readable(self) -> bool:
        """Always true; io.BufferedReader checks it."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer; 0 at the end."""
        while not self._left and (packed := self._plain.read(_FED)):
            self._left = memoryview(self._unpacked(packed))
        if not self._left and self._frame is not None:
            raise _damaged(self._file, "it ends within a frame")
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size

    def _unpacked(self, packed: bytes) -> bytes:
        parts = []
        while packed:
            if self._frame is None:
                self._frame = self._library.ZstdDecompressor().decompressobj()
            try:
                parts.append(self._frame.decompress(packed))
            except self._library.ZstdError as error:
                raise _damaged(self._file, error) from None
            packed = b""
            if self._frame.eof:
                packed, self._frame = self._frame.unused_data, None
        return b"".join(parts)


def decoded(data: bytes) -> str:
    """Decodes UTF-8; NUL, which no text has, is a UnicodeDecodeError, too."""
    if (place := data.find(b"\0")) >= 0:
        raise UnicodeDecodeError("utf-8", data, place, place + 1, "NUL")
    return data.decode()


def not_utf8(error: UnicodeDecodeError, file: pathlib.Path, line: int, byte: int) -> str:
    """Error message: the byte of the decompressed file that is not UTF-8, and its line."""
    return (
        f"text must be UTF-8, got the byte 0x{error.object[error.start]:02X} in '{file}', line "
        f"{line:,}, byte {byte:,}"
    )


def remedy_of(error: UnicodeDecodeError) -> str:
    """End of an error message on a byte that is not UTF-8, or NUL."""
    if error.object[error.start] == 0:
        return "remove the NUL, or check what kind of file this is"
    return "convert it from its encoding, for example with: iconv -f WINDOWS-1252 -t UTF-8"


def unix_lines(text: str) -> str:
    r"""Replaces `\r\n` and `\r` by `\n`."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
