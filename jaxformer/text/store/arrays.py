"""Arrays with one axis in `.npy` files, memory-mapped, and joined."""

import bisect
import io
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxformer.errors import DataError, first_line
from jaxformer.storage import in_bucket, replacing


class JoinedArray:
    """Arrays of one axis and dtype, such as maps of several files, read as one."""

    ndim = 1

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        # Plain views: slicing a np.memmap itself is slow.
        self._arrays = [array.view(np.ndarray) for array in arrays]
        self._ends = list(itertools.accumulate(array.size for array in arrays))
        self.size, self.dtype = self._ends[-1], arrays[0].dtype

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            place = range(self.size)[index]
            return self[place : place + 1][0]
        start, stop, step = index.indices(self.size)
        if step != 1:
            raise IndexError(f"slices of joined arrays must have step 1, got step={step}")
        parts = []
        for index in range(bisect.bisect_right(self._ends, start), len(self._arrays)):
            if start >= stop:
                break
            array, end = self._arrays[index], self._ends[index]
            begin = end - array.size
            parts.append(array[start - begin : stop - begin])
            start = min(end, stop)
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, self.dtype), *parts])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)


def write_array(path: pathlib.Path, array: np.ndarray | JoinedArray) -> None:
    """Writes numbers to a `.npy` file, completely or not at all."""
    with replacing(path) as draft, draft.open("xb") as file:
        np.save(file, np.asarray(array), allow_pickle=False)


def map_array(path: pathlib.Path, *, remedy: str) -> np.ndarray:
    """Maps a file, or reads one in a bucket; `remedy` ends the message if it is damaged."""
    try:
        if in_bucket(path):
            return np.asarray(np.load(io.BytesIO(path.read_bytes()), allow_pickle=False))
        # Unlike np.load, this closes a file that it cannot read.
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # NumPy raises half a dozen types, depending on the fault
        raise DataError(f"'{path}' cannot be read ({first_line(error)}); {remedy}") from error
