"""Training examples of unequal lengths, stored as a few large arrays."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Self, overload

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.batches.windows import IGNORE

__all__ = ["Example", "ExampleArrays", "RaggedArray", "example_lengths"]

Example = dict[str, np.ndarray]
"""Arrays of one example, by name; each has one axis or none."""


@dataclasses.dataclass(frozen=True, eq=False)
class RaggedArray:
    """Arrays of several examples under one name, concatenated.

    Args:
        values: values of all examples, [values]; or [examples] if they have no axis.
        offsets: int64 [examples + 1], start of each example in `values`, and the end of the last;
            None if examples have one value without an axis.
    """

    values: np.ndarray
    offsets: np.ndarray | None = None

    def __len__(self) -> int:
        return self.values.size if self.offsets is None else self.offsets.size - 1

    def __getitem__(self, index: int) -> np.ndarray:
        if self.offsets is None:
            return np.asarray(self.values[index])
        return np.asarray(self.values[self.offsets[index] : self.offsets[index + 1]])

    def copy_rows(self, indices: np.ndarray, batch: np.ndarray, rows: np.ndarray) -> None:
        """Copies the values of some examples to the beginning of some rows of a batch."""
        if self.offsets is None:
            batch[rows] = self.values[indices]
            return
        starts, ends = self.offsets[indices], self.offsets[indices + 1]
        columns = np.arange(batch.shape[1])
        is_value = columns < (ends - starts)[:, None]
        found = self.values[(starts[:, None] + columns)[is_value]]
        row_of, column_of = np.nonzero(is_value)
        batch[rows[row_of], column_of] = found

    @property
    def sizes(self) -> np.ndarray:
        """Number of values of each example: int64 [examples]; 1 if they have no axis."""
        if self.offsets is None:
            return np.ones(self.values.size, np.int64)
        return np.diff(self.offsets)


class ExampleArrays(Sequence[Example]):
    """Examples, stored as one array per name. A pair of 25 tokens takes 300 bytes, not 1,600.

    A sequence of dicts, for example for `BucketedBatches`. The arrays of an example are views.

    Attributes:
        parts: arrays by name, for each part of the examples.

    Args:
        parts: arrays by name, with the same names and dtypes in each part. The parts are
            concatenated. Arrays may be memory-mapped.

    Example:
        >>> examples = [{"labels": np.array([7, 8])}, {"labels": np.array([9])}]
        >>> arrays = ExampleArrays.of(examples)
        >>> len(arrays), arrays[1], arrays.lengths
        (2, {'labels': array([9])}, array([2, 1]))
    """

    def __init__(self, parts: Sequence[Mapping[str, RaggedArray]]) -> None:
        self.parts = tuple(parts)
        counts = [len(next(iter(part.values()))) for part in self.parts]
        self._ends = np.cumsum(counts, dtype=np.int64)

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Self:
        """Copies examples.

        Args:
            examples: dicts of the same arrays and dtypes, each array with one axis or none.

        Raises:
            DataError: as for `example_lengths`.
        """
        example_lengths(examples)
        part = {}
        for name, first in examples[0].items():
            if first.ndim:
                arrays = [example[name] for example in examples]
                offsets = np.cumsum([0, *(array.size for array in arrays)], dtype=np.int64)
                part[name] = RaggedArray(np.concatenate(arrays), offsets)
            else:
                part[name] = RaggedArray(np.array([example[name] for example in examples]))
        return cls([part])

    def __len__(self) -> int:
        return int(self._ends[-1]) if self.parts else 0

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...

    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        place = int(np.searchsorted(self._ends, index, side="right"))
        within = index - (int(self._ends[place - 1]) if place else 0)
        return {name: array[within] for name, array in self.parts[place].items()}

    def __iter__(self) -> Iterator[Example]:
        return (self[i] for i in range(len(self)))

    def padded(self, indices: np.ndarray, rows: int, length: int) -> Example:
        """Makes a batch of examples.

        Args:
            indices: int64 [examples], at most `rows`.
            rows: rows of the batch; those after the examples are padding.
            length: length of a row, at least that of each example.

        Returns:
            Arrays [rows, length], padded with `IGNORE` in "labels" and 0 in all others; or [rows]
            for arrays without an axis.
        """
        places = np.searchsorted(self._ends, indices, side="right")
        within = indices - np.append(0, self._ends)[places]
        batch = {}
        for name, first in self.parts[0].items():
            shape = (rows,) if first.offsets is None else (rows, length)
            fill = IGNORE if name == "labels" else 0
            batch[name] = np.full(shape, fill, first.values.dtype)
            for place in np.unique(places):
                (chosen,) = np.nonzero(places == place)
                self.parts[place][name].copy_rows(within[chosen], batch[name], chosen)
        return batch

    def sizes(self, name: str) -> np.ndarray:
        """Number of values of an array in each example: int64 [examples]."""
        return np.concatenate([part[name].sizes for part in self.parts])

    @property
    def lengths(self) -> np.ndarray:
        """Size of the longest array of each example: int64 [examples]."""
        names = [name for name, array in self.parts[0].items() if array.offsets is not None]
        lengths: np.ndarray = np.max([self.sizes(name) for name in names], axis=0)
        return lengths


def example_lengths(examples: Sequence[Example]) -> np.ndarray:
    """Checks that examples can be batched together, and returns their lengths: int64 [examples].

    The length of an example is the size of its longest array.

    Raises:
        DataError: there are no examples, an example has no tokens, no labels or different arrays
            than the first, or the labels cannot hold `IGNORE`.

    Example:
        >>> example_lengths([{"labels": np.array([7, 8])}, {"labels": np.array([9])}])
        array([2, 1])
    """
    if len(examples) == 0:
        raise DataError("batches must have at least one example, got none; add text")
    layout = _layout(examples[0])
    axes = [array.ndim for array in examples[0].values()]
    if "labels" not in layout or max(axes) != 1 or examples[0]["labels"].dtype.kind != "i":
        raise DataError(
            "an example must have labels of signed integers, an array with one axis, and no array "
            f"with more, got {layout}; make labels int32, with {IGNORE} where there is none"
        )
    if isinstance(examples, ExampleArrays):  # all have the same layout
        lengths = examples.lengths
    else:
        lengths = np.zeros(len(examples), np.int64)
        for i in range(len(examples)):
            example = examples[i]
            if _layout(example) != layout:
                raise DataError(
                    f"every example must have the arrays of the first, {layout}, got "
                    f"{_layout(example)} in example {i}; use the same names, axes and dtypes"
                )
            lengths[i] = max(array.size for array in example.values() if array.ndim)
    if not lengths.all():
        raise DataError(
            "every example must have at least one token, got none in example "
            f"{int(np.argmin(lengths))}; leave it out"
        )
    return lengths


def _layout(example: Example) -> dict[str, tuple[np.dtype, int]]:
    """Dtype and number of axes of each array."""
    return {name: (array.dtype, array.ndim) for name, array in example.items()}
