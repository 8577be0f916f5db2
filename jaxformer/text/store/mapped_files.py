"""Memory-mapped files that another process may change."""

import mmap

import numpy as np

from jaxformer.errors import DataError

__all__ = ["require_whole"]


def require_whole(array: object) -> None:
    """Raises DataError if the file that an array is mapped from was truncated.

    Reading the missing part would kill the process with SIGBUS. This can still happen if the file
    is truncated between this check and the read, so check right before. It takes microseconds.

    Args:
        array: an array, or a view of one. Anything that is not memory-mapped passes.

    Example:
        >>> import os, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "tokens.bin")
        >>> np.arange(5, dtype=np.uint16).tofile(path)
        >>> tokens = np.memmap(path, np.uint16, mode="r")
        >>> os.truncate(path, 6)
        >>> require_whole(tokens[1:])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        jaxformer.errors.DataError: '...tokens.bin' was cut from 10 to 6 bytes while ...
    """
    name = None
    while isinstance(array, np.ndarray):
        name = getattr(array, "filename", name)
        array = array.base
    # Its size() is the current size of the file; its length is that of the map.
    if isinstance(array, mmap.mmap) and (size := array.size()) < len(array):
        raise DataError(
            f"'{name}' was cut from {len(array):,} to {size:,} bytes while it was read; restore "
            "the whole file, and try again"
        )
