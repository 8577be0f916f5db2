"""Scans of files: the states of the files, samples of their texts, and keys to remember them by."""

import hashlib
import heapq
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from jaxformer.errors import DataError
from jaxformer.storage import open_regular
from jaxformer.text.sources.holdout import Holdout, HoldoutCounter, text_draws

__all__ = [
    "EvenSample",
    "FileState",
    "Scanned",
    "Scanner",
    "file_stamp",
    "read_state",
    "require_stamp",
    "require_unchanged",
    "scan_stem",
]

_LAYOUT = 5  # version of what scans remember; part of its key
_FEW = 64  # records that are kept as candidates for validation, whatever their numbers
_T = TypeVar("_T")


class FileState(NamedTuple):
    """State of a file when it was scanned."""

    path: str  # without links
    size: int  # in bytes
    modified: int  # in nanoseconds
    content: str  # SHA-256


def file_stamp(file: str | pathlib.Path) -> tuple[int, int]:
    """Size in bytes and modification time in nanoseconds; -1 for both if reading will fail."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return -1, -1
    return found.st_size, found.st_mtime_ns


def read_state(
    file: pathlib.Path, before: tuple[int, int], digest: "hashlib._Hash | None" = None
) -> FileState:
    """State of a file that was just read; DataError if it has changed since the stamp `before`.

    Without the digest of its bytes, they are read again.
    """
    if digest is None:
        digest = hashlib.sha256()
        with open_regular(file) as stream:
            while data := stream.read(2**20):
                digest.update(data)
    require_stamp(file, before)
    return FileState(os.path.realpath(file), *before, digest.hexdigest())


def require_unchanged(state: FileState) -> None:
    """Raises DataError if size or modification time of a file have changed."""
    require_stamp(state.path, (state.size, state.modified))


def require_stamp(file: str | pathlib.Path, stamp: tuple[int, int]) -> None:
    """Raises DataError if a file has another `file_stamp`."""
    if file_stamp(file) != stamp:
        raise DataError(
            f"'{file}' has changed while it was read; wait until it is complete, and try again"
        )


def scan_stem(
    cache_dir: pathlib.Path | None,
    name: str,
    files: Iterable[pathlib.Path],
    options: Sequence[Any],
) -> pathlib.Path | None:
    """Path without suffix, in a folder of the cache, for what a scan finds; None without a cache.

    Its name is a hash of paths, sizes and times of the files, and of the `repr`s of the options.
    """
    if cache_dir is None:
        return None
    digest = hashlib.sha256(repr((_LAYOUT, *options)).encode(errors="surrogateescape"))
    for file in files:
        stamp = os.path.realpath(file), file_stamp(file)
        digest.update(repr(stamp).encode(errors="surrogateescape"))
    return cache_dir / name / digest.hexdigest()[:32]


class EvenSample(Generic[_T]):
    """Uniform sample of limited size: keeps the values with the smallest numbers.

    Args:
        size: limit for all values together, in bytes.
    """

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
    """Records that a scan keeps.

    Args:
        holdout: which records are for validation.
        training: training records: all, or a uniform sample.
        validation: validation records: all, or those with the smallest hashes.
        is_sampled: whether `training` is only a sample.
        is_cut: whether `validation` is not all.
    """

    holdout: Holdout
    training: list[_T]
    validation: list[_T]
    is_sampled: bool
    is_cut: bool


class Scanner(Generic[_T]):
    """Holds out records that are seen once, and keeps a sample of both sides.

    Args:
        fraction: share for validation, from 0 to less than 1.
        sample: limit of the sample, in bytes.
        held_out: limit of the validation records beyond it, in bytes.
    """

    def __init__(self, fraction: float, *, sample: int, held_out: int) -> None:
        self._fraction, self._count = fraction, 0
        self._counter = HoldoutCounter(fraction)
        self._sample = EvenSample[tuple[_T, float]](sample)
        self._smallest = EvenSample[tuple[_T, float]](held_out)

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

        Args:
            parts: parts of a record by its number, and whether each is for validation.
            cuts: whether `parts` may cut a record.
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
