"""Samples of texts that come one by one: each text decides by itself whether it is drawn."""

import hashlib
import heapq
from typing import Generic, TypeVar

__all__ = ["EvenSample", "text_draws"]

_HASHES = 2**64
_T = TypeVar("_T")


def text_draws(data: bytes) -> tuple[float, float]:
    """Two numbers from 0 to 1 that depend on a text alone: for its side, and for samples."""
    digest = hashlib.blake2b(data, digest_size=16).digest()
    side, drawn = (int.from_bytes(half, "little") / _HASHES for half in (digest[:8], digest[8:]))
    return side, drawn


class EvenSample(Generic[_T]):
    """Values drawn evenly, of so many bytes in all: those with the smallest numbers.

    Args:
        size: bytes of all values together.
    """

    def __init__(self, size: int) -> None:
        self._left = size
        self._drawn: list[tuple[float, int, _T]] = []  # a heap with the largest number first

    def add(self, value: _T, size: int, number: float) -> None:
        """Draws a value of so many bytes, or not."""
        heapq.heappush(self._drawn, (-number, size, value))
        self._left -= size
        while self._left < 0 and len(self._drawn) > 1:
            self._left += heapq.heappop(self._drawn)[1]

    @property
    def values(self) -> tuple[_T, ...]:
        """What was drawn, in an order that depends on the values alone."""
        return tuple(value for _, _, value in sorted(self._drawn))
