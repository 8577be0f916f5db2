"""Sources of rows (random-access data for batches), and their shuffled order."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import grain
import numpy as np


class Source(Protocol):
    """Random-access data to make batches from: dicts of arrays, with the same shapes in each.

    If many items can be read faster than one by one, add a method `gather`, as in
    `GatheringSource`. Batches then call it.

    Example:
        >>> from jaxformer.text import Windows, build_stream, byte_tokenizer
        >>> source: Source = Windows(build_stream(["abc"], byte_tokenizer()), length=2)
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, np.ndarray]: ...


class GatheringSource(Source, Protocol):
    """A source that can read many items in one call."""

    def gather(self, indices: Sequence[int]) -> dict[str, np.ndarray]:
        """Stacks items.

        Args:
            indices: indices of the items, each at least 0 and less than the length; they may
                repeat.

        Returns:
            The arrays of the items by name, `[items, ...]`.
        """


def gather_rows(source: Source, indices: Sequence[int]) -> dict[str, np.ndarray]:
    """Stacks items of a source, with its `gather` if it has one: arrays `[items, ...]` by name.

    Example:
        >>> gather_rows([{"x": np.array(5)}, {"x": np.array(7)}], [1, 0, 1])["x"]
        array([7, 5, 7])
    """
    for kind in type(source).__mro__:
        if "gather" in vars(kind):
            return source.gather(indices)  # type: ignore[attr-defined]
        # The subclass overrides the items, and the inherited `gather` does not know it.
        if "__getitem__" in vars(kind):
            break
    items = [source[index] for index in indices]
    return {name: np.stack([item[name] for item in items]) for name in items[0]}


def shuffled_rows(source: Source, seed: int) -> Callable[[Iterable[int]], dict[str, np.ndarray]]:
    """Makes a function that stacks rows by number: arrays `[rows, ...]` by name.

    The rows are those of all epochs; each epoch has every item once, in a new order.

    Example:
        >>> gather = shuffled_rows([{"x": np.array(5)}, {"x": np.array(7)}], seed=0)
        >>> gather(range(6))["x"]
        array([7, 5, 5, 7, 7, 5])
    """
    # Shuffles indices, so that one call reads all items of a batch.
    order = grain.MapDataset.range(len(source)).seed(seed).shuffle().repeat()
    return lambda rows: gather_rows(source, [order[row] for row in rows])
