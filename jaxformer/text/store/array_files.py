"""`.npy` files of one array with one axis: written in parts, and memory-mapped."""

import errno
import io
import pathlib
import resource
from collections.abc import Iterator

import numpy as np

from jaxformer.errors import DataError, StorageError
from jaxformer.storage import write_whole
from jaxformer.text.store.sharded_tokens import ShardedTokens

__all__ = ["map_array", "write_array"]

_PART = 2**20  # numbers written at a time


def write_array(path: pathlib.Path, array: np.ndarray | ShardedTokens) -> None:
    """Writes numbers with one axis to a file, completely or not at all.

    One part is read at a time, so the array may be memory-mapped.

    Raises:
        StorageError: it cannot be written.
    """
    write_whole(path, _parts(array))


def map_array(path: pathlib.Path, *, remedy: str) -> np.ndarray:
    """Maps a file into memory: an array of any type and shape, without Python objects.

    `remedy` ends the error message if the file cannot be read.

    Raises:
        DataError: the file is missing or damaged.
        StorageError: the process has too many open files; each map counts as one.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.npy")
        >>> write_array(path, np.arange(3))
        >>> map_array(path, remedy="write it again").tolist()
        [0, 1, 2]
    """
    try:
        try:
            return _map(path)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
        _raise_open_files()
        return _map(path)
    except Exception as error:  # NumPy raises half a dozen types, depending on the fault
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            raise StorageError(
                f"'{path}' cannot be mapped ({reason}): this process may not open more files; "
                "raise the limit, for example with ulimit -n 65536"
            ) from None
        raise DataError(f"'{path}' cannot be read ({reason}); {remedy}") from None


def _map(path: pathlib.Path) -> np.ndarray:
    # Unlike np.load, this closes a file that it cannot read.
    return np.lib.format.open_memmap(path, mode="r")


def _raise_open_files() -> None:
    """Raises the limit of open files (usually 1,024) to the hard limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _parts(array: np.ndarray | ShardedTokens) -> Iterator[bytes]:
    """The content of a file, in parts."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": array.dtype.str, "fortran_order": False, "shape": (array.size,)}
    )
    yield header.getvalue()
    for start in range(0, array.size, _PART):
        yield array[start : start + _PART].tobytes()
