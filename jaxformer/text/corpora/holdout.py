"""Validation data: held out by hashes of texts, in the same way at every size of the data."""

import bisect
import hashlib
import heapq
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from jaxformer.text.sources.records import Row
from jaxformer.text.tables.table import text_bytes

_HASHES = 2**64
NUM_BINS = 2**16
"""Number of ranges of numbers, of which the last texts for validation are in one."""


def text_draws(data: bytes) -> tuple[float, float]:
    """Two pseudorandom numbers in [0, 1] from a hash of a text: for its side, and for samples."""
    digest = hashlib.blake2b(data, digest_size=16).digest()
    side, drawn = (int.from_bytes(half, "little") / _HASHES for half in (digest[:8], digest[8:]))
    return side, drawn


class Holdout(NamedTuple):
    """The texts for validation: those with the smallest numbers of `text_draws`.

    Args:
        below: texts with a smaller number are for validation.
        cut_below: a text with a number from `below` to this is cut: its end is for validation.
        cut: share of the cut text for training.
    """

    below: float
    cut_below: float = 0.0
    cut: float = 0.0

    @classmethod
    def of_share(cls, bins: Sequence[tuple[int, int]], fraction: float, *, cuts: bool) -> Self:
        """Holds out a share of texts, by size and number of those in each of NUM_BINS ranges."""
        if not fraction:
            return cls(0.0)
        ends = list(itertools.accumulate(size for size, _ in bins))
        share = fraction * ends[-1]
        index = bisect.bisect_left(ends, share)
        size, count = bins[index]
        missing = share - (ends[index] - size)
        if cuts and count == 1:
            return cls(index / NUM_BINS, (index + 1) / NUM_BINS, 1 - missing / size)
        # A text that repeats may be more than the share, but is better than nothing.
        is_only = ends[index] == size < ends[-1] and share >= 0.5
        return cls((index + (is_only or 2 * missing > size)) / NUM_BINS)

    def parts(self, row: Row, key: int) -> Iterator[tuple[Row, bool]]:
        """Yields the parts of a row, nearly always one, by its column `key`; and their sides."""
        text = row.columns[key]
        side, _ = text_draws(text_bytes(text))
        if not self.below <= side < self.cut_below:
            yield row, side < self.below
            return
        at = round(self.cut * len(text))
        at = _nearest_break(text, at) if 0 < at < len(text) else at
        is_start = row.is_start
        for part, is_validation in ((text[:at], False), (text[at:], True)):
            if part:
                yield Row(row.line, (part,), is_start), is_validation
                is_start = False


class EvenSample:
    """Uniform sample of at most `size` bytes: keeps the rows with the smallest numbers."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._drawn: list[tuple[float, int, int, Row]] = []  # a heap, the largest number first
        self._added = 0

    def add(self, row: Row, size: int, number: float) -> None:
        """Offers a row of `size` bytes."""
        heapq.heappush(self._drawn, (-number, self._added, size, row))
        self._added += 1
        self._left -= size
        while self._left < 0 and len(self._drawn) > 1:
            self._left += heapq.heappop(self._drawn)[2]

    @property
    def is_complete(self) -> bool:
        """Whether it has every row that was offered."""
        return len(self._drawn) == self._added

    @property
    def rows(self) -> Iterator[Row]:
        """The sample, in the order of the offers."""
        return (row for *_, row in sorted(self._drawn, key=lambda drawn: drawn[1]))


def _nearest_break(text: str, index: int) -> int:
    """The line start nearest to an index, within the text; else the nearest space; else it."""
    for pattern in (r"(?<=\n)(?!\Z)", r"(?= )(?!\A)"):
        breaks = [match.start() for match in re.finditer(pattern, text)]
        if breaks:
            return min(breaks, key=lambda at: abs(at - index))
    return index
