"""Whole examples packed into rows of one length."""

import heapq
from collections.abc import Sequence

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.store.arrays import IGNORE, Example, ExampleArrays, RaggedArray


class PackedExamples:
    """Packs examples into rows: a random-access source for `Batches`.

    Examples are never split. Each goes into the fullest row with enough room, longest examples
    first (best fit decreasing). The rows are the same in every epoch. Besides the arrays of the
    examples, `packed[i]` has

    - segment_ids: int32 [length], 1 for the first example of the row, then 2 and so on; 0 in
      padding;
    - positions: int32 [length], from 0 in each example of the row; 0 in padding.

    Args:
        examples: dicts of arrays [tokens], including "labels"; all arrays of an example have the
            same length.
        length: length of a row, in tokens.

    Raises:
        DataError: an example is longer than a row, or as for `BucketedBatches`.

    References:
        Krell et al., Efficient Sequence Packing without Cross-contamination, 2021.

    Example:
        >>> examples = [{"labels": np.full(size, size)} for size in (2, 3, 1)]
        >>> packed = PackedExamples(examples, length=4)
        >>> [packed[row]["labels"].tolist() for row in range(len(packed))]
        [[3, 3, 3, 1], [2, 2, -1, -1]]
        >>> packed[1]["segment_ids"]
        array([1, 1, 0, 0], dtype=int32)
    """

    def __init__(self, examples: Sequence[Example] | ExampleArrays, length: int) -> None:
        self._examples = ExampleArrays.of(examples)
        lengths = self._examples.lengths
        longest = int(np.argmax(lengths))
        if lengths[longest] > length:
            raise DataError(
                f"an example must have at most length={length} tokens, got {lengths[longest]} in "
                f"example {longest}; leave it out, or raise length"
            )
        self.length = length
        row_of = _best_fit(lengths, length)
        members = np.lexsort((np.arange(lengths.size), -lengths, row_of))  # longest first
        sizes = np.bincount(row_of)
        self._members = RaggedArray(members, np.cumsum(sizes) - sizes)

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, index: int) -> Example:
        examples = [self._examples[int(member)] for member in self._members[index]]
        for segment, example in enumerate(examples, 1):
            size = example["labels"].size
            for name, array in example.items():
                if array.shape != (size,):
                    raise DataError(
                        "to be packed, arrays of an example must be as long as its labels, "
                        f"{size}, got {name} of shape {array.shape}; give them that length"
                    )
            example["segment_ids"] = np.full(size, segment, np.int32)
            example["positions"] = np.arange(size, dtype=np.int32)
        row = {}
        for name in examples[0]:
            values = np.concatenate([example[name] for example in examples])
            fill = IGNORE if name == "labels" else 0
            row[name] = np.pad(values, (0, self.length - values.size), constant_values=fill)
        return row


def _best_fit(lengths: np.ndarray, length: int) -> np.ndarray:
    """Row of each example, by best fit decreasing: int64 [examples]."""
    row_of = np.empty(lengths.size, np.int64)
    # Rows by the room left in them, the first of them on top of a heap. `rooms` is a bit set of
    # these rooms, so that a shift finds the smallest sufficient one.
    rows_with: list[list[int]] = [[] for _ in range(length + 1)]
    rooms, num_rows = 0, 0
    for example in np.argsort(-lengths, kind="stable").tolist():
        size = int(lengths[example])
        enough = rooms >> size
        if enough:
            room = size + (enough & -enough).bit_length() - 1
            row = heapq.heappop(rows_with[room])
            if not rows_with[room]:
                rooms ^= 1 << room
        else:
            room, row, num_rows = length, num_rows, num_rows + 1
        row_of[example] = row
        heapq.heappush(rows_with[room - size], row)
        rooms |= 1 << (room - size)
    return row_of
