"""Validation data: held out by hashes of texts, in the same way at every size of the data."""

import bisect
import hashlib
import heapq
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from jaxformer.errors import DataError

_HASHES = 2**64
_BINS = 2**16
_FEW = 64  # records that are kept as candidates for validation, whatever their numbers
_T = TypeVar("_T")


def text_draws(data: bytes) -> tuple[float, float]:
    """Two pseudorandom numbers in [0, 1] from a hash of a text: for its side, and for samples."""
    digest = hashlib.blake2b(data, digest_size=16).digest()
    side, drawn = (int.from_bytes(half, "little") / _HASHES for half in (digest[:8], digest[8:]))
    return side, drawn


def text_bytes(text: str) -> bytes:
    """A text in UTF-8; a half of a surrogate pair is reported when it is encoded as tokens."""
    return text.encode(errors="surrogatepass")


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

    def has(self, side: float) -> bool:
        """Whether a whole text is for validation, by its number."""
        return side < self.below

    def parts(self, text: str, side: float) -> Iterator[tuple[str, bool]]:
        """Yields the parts of a text, nearly always one, and whether each is for validation."""
        if not self.below <= side < self.cut_below:
            yield text, self.has(side)
            return
        at = round(self.cut * len(text))
        at = _nearest_break(text, at) if 0 < at < len(text) else at
        for part, is_validation in ((text[:at], False), (text[at:], True)):
            if part:
                yield part, is_validation


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
        wanted = self._fraction * ends[-1]
        index = bisect.bisect_left(ends, wanted)
        size = self._sizes[index]
        missing = wanted - (ends[index] - size)
        if cuts and self._counts[index] == 1:
            return Holdout(index / _BINS, (index + 1) / _BINS, 1 - missing / size)
        # A text that repeats may be more than was wanted, but is better than nothing.
        is_only = ends[index] == size < ends[-1] and wanted >= 0.5
        return Holdout((index + (is_only or 2 * missing > size)) / _BINS)


def _nearest_break(text: str, index: int) -> int:
    """The line start nearest to an index, within the text; else the nearest space; else it."""
    for pattern in (r"(?<=\n)(?!\Z)", r"(?= )(?!\A)"):
        breaks = [match.start() for match in re.finditer(pattern, text)]
        if breaks:
            return min(breaks, key=lambda at: abs(at - index))
    return index


class _EvenSample(Generic[_T]):
    """Uniform sample of at most `size` bytes: keeps the values with the smallest numbers."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._drawn: list[tuple[float, int, int, _T]] = []  # a heap with the largest number first
        self._added = 0

    def add(self, value: _T, size: int, number: float) -> None:
        """Offers a value of `size` bytes."""
        heapq.heappush(self._drawn, (-number, self._added, size, value))
        self._added += 1
        self._left -= size
        while self._left < 0 and len(self._drawn) > 1:
            self._left += heapq.heappop(self._drawn)[2]

    @property
    def is_complete(self) -> bool:
        """Whether it has every value that was offered."""
        return len(self._drawn) == self._added

    @property
    def values(self) -> tuple[_T, ...]:
        """The sample, in the order of the offers."""
        return tuple(value for *_, value in sorted(self._drawn, key=lambda drawn: drawn[1]))


class Scanned(NamedTuple, Generic[_T]):
    """Records that a scan keeps."""

    holdout: Holdout
    training: list[_T]  # all, or a uniform sample
    validation: list[_T]  # all, or those with the smallest hashes
    is_sampled: bool  # whether `training` is only a sample
    is_cut: bool  # whether `validation` is not all


class Scanner(Generic[_T]):
    """Holds out a fraction of records that are seen once, and keeps a sample of both sides.

    `sample` and `held_out` limit the sample, and the validation records beyond it, in bytes.
    """

    def __init__(self, fraction: float, *, sample: int, held_out: int) -> None:
        if not 0 <= fraction < 1:
            raise DataError(
                "validation_fraction must be at least 0 and less than 1, got "
                f"{fraction}; 0.1 holds out a tenth"
            )
        self._fraction, self._count = fraction, 0
        self._counter = HoldoutCounter(fraction)
        self._sample = _EvenSample[tuple[_T, float]](sample)
        self._smallest = _EvenSample[tuple[_T, float]](held_out)

    def add(self, record: _T, key: bytes, size: int, weight: int) -> None:
        """Adds a record of `size` bytes; its key decides its side, and its weight is its share."""
        side, drawn = text_draws(key)
        self._count += 1
        self._counter.add(side, weight)
        self._sample.add((record, side), size, drawn)
        # The holdout is known at the end. Of many records, it is far below twice the fraction.
        if side < max(2 * self._fraction, _FEW / self._count):
            self._smallest.add((record, side), size, side)

    def finish(
        self, parts: Callable[[Holdout, _T, float], Iterable[tuple[_T, bool]]], *, cuts: bool
    ) -> Scanned[_T]:
        """The records by side, after the last one was added.

        `parts(holdout, record, number)` yields the parts of a record, and whether each is for
        validation; `cuts` says whether it may cut a record.
        """
        holdout = self._counter.holdout(cuts=cuts)
        sides: tuple[list[_T], list[_T]] = [], []
        for record, side in self._sample.values:
            for part, is_validation in parts(holdout, record, side):
                sides[is_validation].append(part)
        training, validation = sides
        is_sampled, is_cut = not self._sample.is_complete, False
        if is_sampled:
            kept = self._smallest.values
            found = (part for one in kept for part in parts(holdout, *one))
            validation = [part for part, is_validation in found if is_validation]
            is_cut = not self._smallest.is_complete and holdout.has(max(side for _, side in kept))
        return Scanned(holdout, training, validation, is_sampled, is_cut)
