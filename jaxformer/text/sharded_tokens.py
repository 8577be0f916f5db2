"""Tokens in several memory-mapped files, sliced as one array."""

from typing import Any

import numpy as np

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
        self._arrays = arrays
        self._ends = np.cumsum([array.size for array in arrays], dtype=np.int64)
        self.size = int(self._ends[-1]) if arrays else 0
        self.dtype = arrays[0].dtype if arrays else np.dtype(np.uint16)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            place = range(self.size)[index]
            return self[place : place + 1][0]
        start, stop, step = index.indices(self.size)
        if step != 1:
            raise IndexError(f"tokens are sliced one after the other, got step={step}")
        first = int(np.searchsorted(self._ends, start, side="right"))
        parts = []
        for array, end in zip(self._arrays[first:], self._ends[first:], strict=True):
            if start >= stop:
                break
            begin = int(end) - array.size
            parts.append(array[start - begin : stop - begin])
            start = min(int(end), stop)
        return np.concatenate([np.zeros(0, self.dtype), *parts])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)
