"""Uniform samples of a stream of texts, drawn by a hash of each text."""

import hashlib
import heapq
from typing import Generic, TypeVar

__all__ = ["EvenSample", "text_draws"]

_HASHES = 2**64
_T = TypeVar("_T")


def text_draws(data: bytes) -> tuple[float, float]:
    """Two pseudorandom numbers in [0, 1] from a hash of a text: for its side, and for samples."""
    digest = hashlib.blake2b(data, digest_size=16).digest()
    side, drawn = (int.from_bytes(half, "little") / _HASHES for half in (digest[:8], digest[8:]))
    return side, drawn


class EvenSample(Generic[_T]):
    """Uniform sample of limited size: keeps the values with the smallest numbers.

    Args:
        size: limit for all values together, in bytes.
    """

    def __init__(self, size: int) -> None:
        self._left = size
        self._drawn: list[tuple[float, int, _T]] = []  # a heap with the largest number first

    def add(self, value: _T, size: int, number: float) -> None:
        """Offers a value of `size` bytes."""
        heapq.heappush(self._drawn, (-number, size, value))
        self._left -= size
        while self._left < 0 and len(self._drawn) > 1:
            self._left += heapq.heappop(self._drawn)[1]

    @property
    def values(self) -> tuple[_T, ...]:
        """The sample, in an order that depends only on the values."""
        return tuple(value for _, _, value in sorted(self._drawn))
