"""Files of text: found by patterns, opened, unpacked, and read line by line."""

import bz2
import concurrent.futures
import contextlib
import glob
import gzip
import io
import json
import lzma
import pathlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from jaxformer.errors import ConfigError, DataError, reason_of
from jaxformer.storage import as_path, bucket_files, in_bucket, open_regular, real_path, stamp

BYTE_ORDER_MARK = "\ufeff"
_REQUESTS = 16  # states of files that are requested at a time; a file in a bucket takes a while


def text_files(paths: Sequence[str]) -> list[pathlib.Path]:
    """Expands paths and glob patterns to files, each once.

    Args:
        paths: files or glob patterns, of this machine or in buckets, such as
            `gs://bucket/corpus/*.jsonl`; `**` matches folders of any depth. The files of a pattern
            are sorted by name, and a file that is named twice is listed once. A folder written by
            `save_to_disk` of a Hugging Face dataset stands for its files.

    Returns:
        The files, at least one.

    Raises:
        ConfigError: a URL has an unknown scheme, or needs a package that is missing.
        DataError: there is no path, a pattern matches no file, or a bucket cannot be listed.

    Example:
        >>> text_files(["a.txt", "./a.txt"])
        [PosixPath('a.txt')]
    """
    if isinstance(paths, str) or not paths:
        raise DataError(f"paths must be a list of text files or patterns, got {paths!r}; name one")
    files: dict[str, pathlib.Path] = {}
    for path in paths:
        with readable(path):
            matches = _matches(path)
        for file in matches:
            files.setdefault(real_path(file), file)
    return list(files.values())


def _matches(path: str) -> list[pathlib.Path]:
    """Lists the files of a path or pattern."""
    place = as_path(path)
    if place.is_dir() and (files := _dataset_files(place)):
        return files
    if not glob.has_magic(path) or place.exists():
        return [place]
    if in_bucket(place):
        files = bucket_files(place)
    else:
        matches = map(pathlib.Path, glob.iglob(path, recursive=True))
        files = sorted(match for match in matches if match.is_file())
    if files:
        return files
    raise DataError(
        f"a pattern must match at least one file, got {path!r}, which matches none in "
        f"{pathlib.Path.cwd()}; check its spelling"
    )


def _dataset_files(folder: pathlib.Path) -> list[pathlib.Path] | None:
    """Files of a Hugging Face dataset saved by `save_to_disk`, in order; None for other folders."""
    state = folder / "state.json"
    if not state.is_file():
        return None
    values = json.loads(state.read_bytes())
    if values.get("_indices_files"):
        raise DataError(
            f"'{folder}' is a selection of another dataset; save it after flatten_indices()"
        )
    return [folder / pathlib.PurePath(file["filename"]).name for file in values["_data_files"]]


class FileState(NamedTuple):
    """What changes when a file is written."""

    path: str  # without links, or a URL
    size: int  # in bytes
    modified: int  # in nanoseconds; in a bucket, its version


def file_states(files: Iterable[str | pathlib.Path]) -> list[FileState]:
    """The state of each file; DataError if one is missing."""

    def state(file: str | pathlib.Path) -> FileState:
        with readable(file):
            return FileState(real_path(file), *stamp(file))

    with concurrent.futures.ThreadPoolExecutor(_REQUESTS) as pool:
        return list(pool.map(state, files))


def require_unchanged(states: Sequence[FileState]) -> None:
    """Raises DataError if a file has changed."""
    for before, now in zip(states, file_states(state.path for state in states), strict=True):
        if now != before:
            raise DataError(
                f"'{before.path}' has changed while it was read; wait until it is complete, and "
                "try again"
            )


def read_lines(file: pathlib.Path) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file, reading one at a time.

    The file is decompressed if its name ends in `.gz`, `.bz2`, `.xz` or `.zst`. A byte order mark
    is dropped. Only `\n` and `\r\n` end a line, so two files that were written line by line stay
    aligned even if a sentence contains U+2028.
    """
    with opened(as_path(file)) as stream:
        for number, data in enumerate(stream, 1):
            line = decoded(data, file, number)
            line = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
            yield line.removesuffix("\n").removesuffix("\r")


@contextlib.contextmanager
def opened(file: pathlib.Path) -> Iterator[BinaryIO | io.BufferedReader]:
    """Opens a file, decompressed as its name says; a context with clear errors."""
    with readable(file), open_regular(file) as plain:
        yield UNPACKERS.get(file.suffix.lower(), lambda stream: stream)(plain)


@contextlib.contextmanager
def readable(file: str | pathlib.Path) -> Iterator[None]:
    """A context in which a file that cannot be found, read or unpacked is a DataError."""
    try:
        yield
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else error
        raise DataError(
            f"a path must be a file that can be read, got '{file}': {reason}; check its spelling, "
            "or get the file again"
        ) from error


def _unpack_zstandard(plain: Any) -> io.BufferedReader:
    try:
        import pyarrow
    except ImportError as error:
        raise missing_pyarrow("a .zst file") from error
    # Unlike the package zstandard, it notices that a file ends within a frame.
    stream: Any = pyarrow.CompressedInputStream(pyarrow.PythonFile(plain, "r"), "zstd")
    return io.BufferedReader(stream)


UNPACKERS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda plain: gzip.GzipFile(fileobj=plain), ".bz2": bz2.BZ2File, ".xz": lzma.LZMAFile,
    ".zst": _unpack_zstandard,
}  # fmt: skip
"""Functions that decompress a stream, by the end of a file's name."""


def unpacked_name(file: pathlib.Path) -> str:
    """A file's name in lower case, without the end that says how it is compressed."""
    name = file.name.lower()
    return name.removesuffix(next(filter(name.endswith, UNPACKERS), ""))


def missing_pyarrow(file: object) -> ConfigError:
    """The error that a file needs pyarrow."""
    return ConfigError(f'{file} needs pyarrow, which is missing; pip install "jaxformer[data]"')


def decoded(data: bytes, file: pathlib.Path, line: int) -> str:
    """Text of data from a line on; DataError if it is not UTF-8, or has NUL, which no text has."""
    try:
        text = data.decode()
        if (place := data.find(b"\0")) >= 0:
            raise UnicodeDecodeError("utf-8", data, place, place + 1, "NUL")
    except UnicodeDecodeError as error:
        *lines, before = data[: error.start].split(b"\n")
        raise DataError(
            f"{file}:{line + len(lines)}: text must be UTF-8, got 0x{data[error.start]:02X} at "
            f"byte {len(before):,} of the line; unpack an archive, or convert text from its "
            "encoding, for example with: iconv -f WINDOWS-1252 -t UTF-8"
        ) from error
    return text
