"""Sources of rows (random-access data for batches), and their shuffled order."""

import functools
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np


class Source(Protocol):
    """Random-access data to make batches from: dicts of arrays, with the same shapes in each.

    A source that can read many items faster than one by one also has a method `gather`: from a list
    of indices, which may repeat, to the stacked arrays of these items, `[items, ...]` by name.
    Batches then call only that.

    Example:
        >>> from jaxformer.text import Windows, build_stream, byte_tokenizer
        >>> source: Source = Windows(build_stream(["abc"], byte_tokenizer()), length=2)
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, np.ndarray]: ...


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


def shuffled_rows(source: Source, seed: int) -> Callable[[Sequence[int]], dict[str, np.ndarray]]:
    """Makes a function that stacks rows by number: arrays `[rows, ...]` by name.

    The rows are those of all epochs; each epoch has every item once, in an order that depends on
    seed and epoch alone. The orders of two epochs are kept, 8 bytes per item each.

    Example:
        >>> gather = shuffled_rows([{"x": np.array(5)}, {"x": np.array(7)}], seed=0)
        >>> gather(range(6))["x"].reshape(3, 2).sum(axis=1)
        array([12, 12, 12])
    """

    @functools.lru_cache(maxsize=2)  # a batch may have the end of one and the start of the next
    def order(epoch: int) -> np.ndarray:
        return np.random.default_rng([seed, epoch]).permutation(len(source))

    def gather(rows: Sequence[int]) -> dict[str, np.ndarray]:
        places = (divmod(row, len(source)) for row in rows)
        return gather_rows(source, [int(order(epoch)[index]) for epoch, index in places])

    return gather
