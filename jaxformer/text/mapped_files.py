"""Files that are memory-mapped while somebody else may change them."""

import mmap

import numpy as np

from jaxformer.errors import DataError

__all__ = ["require_whole"]


def require_whole(array: object) -> None:
    """Raises DataError where the file that an array is mapped from has become shorter.

    Reading what is gone of it would end the process by SIGBUS. It still does where the file is cut
    between this and the reading, so that this is asked right before, for some microseconds of work.

    Args:
        array: an array, or a view of one; nothing else is mapped.

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
    # Its size is that of the file as it is now, and its length that of what is mapped.
    if isinstance(array, mmap.mmap) and (size := array.size()) < len(array):
        raise DataError(
            f"'{name}' was cut from {len(array):,} to {size:,} bytes while it was read; put the "
            "whole file back, and do the same again"
        )
