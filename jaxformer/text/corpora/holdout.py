"""Validation data: held out by hashes of texts, in the same way at every size of the data."""

import bisect
import hashlib
import heapq
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from jaxformer.errors import DataError
from jaxformer.text.tables.table import Row, text_bytes

_HASHES = 2**64
_BINS = 2**16
_FEW = 64  # records that are kept as candidates for validation, whatever their numbers


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

    def parts(self, row: Row, key: int = 0) -> Iterator[tuple[Row, bool]]:
        """Yields the parts of a row, nearly always one, and whether each is for validation."""
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


class HoldoutCounter:
    """Counts texts, and holds out a share of them, from 0 to less than 1.

    It keeps the sizes of 65,536 ranges of numbers, not of each text. So the share is exact for few
    texts, and up to 1/65,536 for many.
    """

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction
        self._sizes, self._counts = [0] * _BINS, [0] * _BINS

    def add(self, side: float, size: int = 1) -> None:
        """Counts a text with this number and size."""
        index = min(int(side * _BINS), _BINS - 1)
        self._sizes[index] += size
        self._counts[index] += 1

    def holdout(self, *, cuts: bool = False) -> Holdout:
        """The holdout of the texts so far; `cuts` says whether a text may be cut."""
        if not self._fraction:
            return Holdout(0.0)
        ends = list(itertools.accumulate(self._sizes))
        share = self._fraction * ends[-1]
        index = bisect.bisect_left(ends, share)
        size = self._sizes[index]
        missing = share - (ends[index] - size)
        if cuts and self._counts[index] == 1:
            return Holdout(index / _BINS, (index + 1) / _BINS, 1 - missing / size)
        # A text that repeats may be more than the share, but is better than nothing.
        is_only = ends[index] == size < ends[-1] and share >= 0.5
        return Holdout((index + (is_only or 2 * missing > size)) / _BINS)


def _nearest_break(text: str, index: int) -> int:
    """The line start nearest to an index, within the text; else the nearest space; else it."""
    for pattern in (r"(?<=\n)(?!\Z)", r"(?= )(?!\A)"):
        breaks = [match.start() for match in re.finditer(pattern, text)]
        if breaks:
            return min(breaks, key=lambda at: abs(at - index))
    return index


class _EvenSample:
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


class Sample(NamedTuple):
    """Rows that a scan keeps."""

    holdout: Holdout
    training: list[Row]  # all, or a uniform sample
    validation: list[Row]  # all, or those with the smallest hashes
    is_sampled: bool  # whether `training` is only a sample
    is_cut: bool  # whether `validation` is not all


class Scanner:
    """Holds out a fraction of rows that are seen once, and keeps a sample of both sides.

    `key` is the column that decides the side of a row. `is_cut` says whether a row may be cut; then
    the fraction is of the bytes, else of the rows. `sample` and `held_out` limit the sample, and
    the validation rows beyond it, in bytes.
    """

    def __init__(
        self, fraction: float, *, key: int, is_cut: bool, sample: int, held_out: int
    ) -> None:
        if not 0 <= fraction < 1:
            raise DataError(
                "validation_fraction must be at least 0 and less than 1, got "
                f"{fraction}; 0.1 holds out a tenth"
            )
        self._fraction, self._key, self._is_cut, self._count = fraction, key, is_cut, 0
        self._counter = HoldoutCounter(fraction)
        self._sample, self._smallest = _EvenSample(sample), _EvenSample(held_out)

    def add(self, row: Row, size: int) -> None:
        """Adds a row of `size` bytes."""
        side, number = text_draws(text_bytes(row.columns[self._key]))
        self._count += 1
        self._counter.add(side, size if self._is_cut else 1)
        self._sample.add(row, size, number)
        # The holdout is known at the end. Of many rows, it is far below twice the fraction.
        if side < max(2 * self._fraction, _FEW / self._count):
            self._smallest.add(row, size, side)

    def finish(self) -> Sample:
        """The rows by side, after the last one was added."""
        holdout = self._counter.holdout(cuts=self._is_cut)
        sides: tuple[list[Row], list[Row]] = [], []
        for row in self._sample.rows:
            for part, is_validation in holdout.parts(row, self._key):
                sides[is_validation].append(part)
        training, validation = sides
        is_sampled, is_cut = not self._sample.is_complete, False
        if is_sampled:
            rows = list(self._smallest.rows)
            parts = [part for row in rows for part in holdout.parts(row, self._key)]
            validation = [part for part, is_validation in parts if is_validation]
            is_cut = not self._smallest.is_complete and len(validation) == len(parts)
        return Sample(holdout, training, validation, is_sampled, is_cut)
