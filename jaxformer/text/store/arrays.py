"""Arrays with one axis in `.npy` files: written in parts, memory-mapped, and joined."""

import bisect
import io
import itertools
import mmap
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxformer.errors import DataError, first_line
from jaxformer.storage import in_bucket, write_whole

_PART = 2**20  # numbers written at a time


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
            require_whole(array)
            begin = end - array.size
            parts.append(array[start - begin : stop - begin])
            start = min(end, stop)
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, self.dtype), *parts])

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Values by index: [indices]."""
        values = np.empty(indices.size, self.dtype)
        for array, begin, chosen in self.arrays_of(indices):
            values[chosen] = array[indices[chosen] - begin]
        return values

    def arrays_of(self, indices: np.ndarray) -> Iterator[tuple[np.ndarray, int, np.ndarray]]:
        """The arrays that hold some indices: each, where it begins, and which of them it holds."""
        places = np.searchsorted(self._ends, indices, side="right")
        order = np.argsort(places, kind="stable")
        held = places[order]
        firsts = np.flatnonzero(np.diff(held, prepend=-1)).tolist()
        for first, after in itertools.pairwise([*firsts, indices.size]):
            array = self._arrays[held[first]]
            require_whole(array)
            yield array, self._ends[held[first]] - array.size, order[first:after]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)


def joined(arrays: Sequence[np.ndarray]) -> np.ndarray | JoinedArray:
    """Several arrays as one, without a copy."""
    return arrays[0] if len(arrays) == 1 else JoinedArray(arrays)


def write_array(path: pathlib.Path, array: np.ndarray | JoinedArray) -> None:
    """Writes numbers with one axis to a file, completely or not at all, one part at a time."""
    write_whole(path, _parts(array))


def map_array(path: pathlib.Path, *, remedy: str) -> np.ndarray:
    """Maps a file, or reads one in a bucket; `remedy` ends the message if it is damaged."""
    try:
        if in_bucket(path):
            return np.asarray(np.load(io.BytesIO(path.read_bytes()), allow_pickle=False))
        # Unlike np.load, this closes a file that it cannot read.
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # NumPy raises half a dozen types, depending on the fault
        raise DataError(f"'{path}' cannot be read ({first_line(error)}); {remedy}") from error


def _parts(array: np.ndarray | JoinedArray) -> Iterator[bytes]:
    """The content of a file, in parts."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": array.dtype.str, "fortran_order": False, "shape": (array.size,)}
    )
    yield header.getvalue()
    for start in range(0, array.size, _PART):
        yield array[start : start + _PART].tobytes()


def require_whole(array: object) -> None:
    """Raises DataError if the file that an array is mapped from was truncated.

    Reading the missing part would kill the process with SIGBUS. This can still happen if the file
    is truncated between this check and the read, so check right before. It takes microseconds.
    Arrays that are not memory-mapped pass.
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
