"""Flat arrays: joined, of unequal lengths, token streams, training examples; in `.npy` files."""

import bisect
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from jaxformer.errors import DataError, first_line
from jaxformer.storage import in_bucket, replacing

IGNORE = -1
"""The label of a position without a target."""

Example = dict[str, np.ndarray]
"""Arrays of one example, by name; each has one axis or none."""


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
            begin = end - array.size
            parts.append(array[start - begin : stop - begin])
            start = min(end, stop)
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, self.dtype), *parts])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)


def write_array(path: pathlib.Path, array: np.ndarray | JoinedArray) -> None:
    """Writes numbers to a `.npy` file, completely or not at all."""
    with replacing(path) as draft, draft.open("xb") as file:
        np.save(file, array, allow_pickle=False)


def map_array(path: pathlib.Path, *, remedy: str) -> np.ndarray:
    """Maps a file, or reads one in a bucket; `remedy` ends the message if it is damaged."""
    try:
        if in_bucket(path):
            with path.open("rb") as file:
                return np.lib.format.read_array(file, allow_pickle=False)
        # Unlike np.load, this closes a file that it cannot read.
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # NumPy raises half a dozen types, depending on the fault
        raise DataError(f"'{path}' cannot be read ({first_line(error)}); {remedy}") from error


@dataclasses.dataclass(frozen=True, eq=False)
class RaggedArray:
    """Arrays of unequal lengths, concatenated; may be memory-mapped, from several files."""

    values: np.ndarray | JoinedArray  # [values] of all items
    # Start of each item, int64 [items]; None if an item is a number without an axis.
    offsets: np.ndarray | None = None

    @classmethod
    def of(cls, items: Sequence[np.ndarray]) -> Self:
        """Copies arrays of one dtype, with one axis or none."""
        if not items[0].ndim:
            return cls(np.array(items))
        return cls(np.concatenate(items), item_starts(item.size for item in items))

    def __len__(self) -> int:
        return self.values.size if self.offsets is None else self.offsets.size

    def __getitem__(self, index: int) -> np.ndarray:
        if self.offsets is None:
            return np.asarray(self.values[index])
        end = self.offsets[index + 1] if index + 1 < len(self) else self.values.size
        return np.asarray(self.values[int(self.offsets[index]) : int(end)])

    @property
    def sizes(self) -> np.ndarray:
        """Number of values of each item: int64 [items]; 1 if they have no axis."""
        if self.offsets is None:
            return np.ones(self.values.size, np.int64)
        return np.diff(self.offsets, append=self.values.size)


def item_starts(sizes: Iterable[int]) -> np.ndarray:
    """Starts of concatenated items: int64 [items]."""
    return np.cumsum([0, *sizes], dtype=np.int64)[:-1]


def token_dtype(vocab_size: int) -> np.dtype:
    """Type of stored tokens; uint16, if possible, halves file and memory."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.int32)


@dataclasses.dataclass(frozen=True, eq=False)
class TokenStream(RaggedArray):
    """The tokens of all documents, concatenated.

    Args:
        values: the tokens: integers [tokens]; may be memory-mapped, from several files.
        offsets: int64 [documents], the start of each document, in tokens.
        num_bytes: bytes of their text, in UTF-8; None if it is unknown.
        fingerprint: SHA-256 of what the stream was made of; "" if it is unknown.

    Raises:
        DataError: there are fewer than 2 tokens, too few to predict one.

    Example:
        >>> stream = TokenStream(np.array([5, 3, 2], np.uint16), np.array([0, 2]))
        >>> stream.tokens.size, stream[1]
        (3, array([2], dtype=uint16))
    """

    offsets: np.ndarray
    num_bytes: int | None = None
    fingerprint: str = ""

    def __post_init__(self) -> None:
        if self.values.size < 2:
            raise DataError(
                f"a stream must have at least 2 tokens, got {self.values.size} from "
                f"{self.offsets.size} documents; add text"
            )

    @property
    def tokens(self) -> np.ndarray | JoinedArray:
        """The tokens of all documents: integers [tokens]."""
        return self.values


class ExampleArrays:
    """Examples, stored as one array per name: a pair of 25 tokens takes 300 bytes, not 1,600."""

    def __init__(self, arrays: Mapping[str, RaggedArray]) -> None:
        self.arrays = dict(arrays)

    @classmethod
    def of(cls, examples: "Sequence[Example] | ExampleArrays") -> "ExampleArrays":
        """Copies examples, unless they are arrays already, and checks that they can be batched."""
        if len(examples) == 0:
            raise DataError("batches must have at least one example, got none; add text")
        layout = _layout(examples[0])
        axes = [array.ndim for array in examples[0].values()]
        if "labels" not in layout or max(axes) != 1 or examples[0]["labels"].dtype.kind != "i":
            raise DataError(
                "an example must have labels of signed integers, an array with one axis, and no "
                f"array with more, got {layout}; make labels int32, with {IGNORE} where there is "
                "none"
            )
        if isinstance(examples, ExampleArrays):
            arrays = examples
        else:
            for i, example in enumerate(examples):
                if _layout(example) != layout:
                    raise DataError(
                        f"every example must have the arrays of the first, {layout}, got "
                        f"{_layout(example)} in example {i}; use the same names, axes and dtypes"
                    )
            arrays = cls({name: RaggedArray.of([row[name] for row in examples]) for name in layout})
        if not arrays.lengths.all():
            raise DataError(
                "every example must have at least one token, got none in example "
                f"{int(np.argmin(arrays.lengths))}; leave it out"
            )
        return arrays

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def __getitem__(self, index: int) -> Example:
        index = range(len(self))[index]
        return {name: array[index] for name, array in self.arrays.items()}

    def __iter__(self) -> Iterator[Example]:
        return (self[i] for i in range(len(self)))

    def padded(self, indices: np.ndarray, rows: int, length: int) -> Example:
        """A batch of examples by index: arrays [rows, length], or [rows] of those without axis.

        Labels are padded with `IGNORE`, other arrays with 0.
        """
        batch = {}
        for name, array in self.arrays.items():
            shape = (rows,) if array.offsets is None else (rows, length)
            batch[name] = np.full(shape, IGNORE if name == "labels" else 0, array.values.dtype)
            if array.offsets is None:
                batch[name][: indices.size] = np.asarray(array.values)[indices]
            else:
                for row, index in enumerate(indices.tolist()):
                    values = array[index]
                    batch[name][row, : values.size] = values
        return batch

    def sizes(self, name: str) -> np.ndarray:
        """Number of values of an array in each example: int64 [examples]."""
        return self.arrays[name].sizes

    @property
    def lengths(self) -> np.ndarray:
        """Size of the longest array of each example: int64 [examples]."""
        ragged = (array.sizes for array in self.arrays.values() if array.offsets is not None)
        return functools.reduce(np.maximum, ragged)


def example_length(example: Mapping[str, np.ndarray]) -> int:
    """Size of the longest array with one axis; 0 if there is none."""
    return max((array.size for array in example.values() if array.ndim == 1), default=0)


def _layout(example: Example) -> dict[str, tuple[np.dtype, int]]:
    """Dtype and number of axes of each array."""
    return {name: (array.dtype, array.ndim) for name, array in example.items()}
