"""Tokens in several memory-mapped files, sliced as one array."""

import bisect
import itertools
from typing import Any

import numpy as np

from jaxformer.text.store.mapped_files import require_whole

__all__ = ["ShardedTokens"]


class ShardedTokens:
    """Tokens of several memory-mapped files, sliced as one array.

    Args:
        arrays: integers [tokens] each, all of one dtype.

    Example:
        >>> tokens = ShardedTokens([np.array([1, 2, 3]), np.array([4, 5])])
        >>> tokens.size, tokens[2:5].tolist(), int(tokens[-1])
        (5, [3, 4, 5], 5)
    """

    def __init__(self, arrays: list[np.ndarray]) -> None:
        # Plain views: slicing a np.memmap itself is slow.
        self._arrays = [array.view(np.ndarray) for array in arrays]
        self._ends = list(itertools.accumulate(array.size for array in arrays))
        self.size = self._ends[-1] if arrays else 0
        self.dtype = arrays[0].dtype if arrays else np.dtype(np.uint16)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            place = range(self.size)[index]
            return self[place : place + 1][0]
        start, stop, step = index.indices(self.size)
        if step != 1:
            raise IndexError(f"slices of tokens must have step 1, got step={step}")
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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)
