"""Rows of one length by index, and their shuffled order."""

import functools
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np


class Rows(Protocol):
    """Random-access rows to make batches from: dicts of arrays, with the same shapes in each.

    Rows that can be read many at a time have a method `gather`, too: from a list of indices, which
    may repeat, to the stacked arrays of these rows, `[rows, ...]` by name. It is called instead.

    Example:
        >>> from jaxformer.text import Windows, build_stream, byte_tokenizer
        >>> rows: Rows = Windows(build_stream(["abc"], byte_tokenizer()), length=2)
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, np.ndarray]: ...


def gather_rows(rows: Rows, indices: Sequence[int]) -> dict[str, np.ndarray]:
    """Stacks rows, with their `gather` if they have one: arrays `[rows, ...]` by name."""
    if hasattr(rows, "gather"):
        gathered: dict[str, np.ndarray] = rows.gather(indices)
        return gathered
    items = [rows[index] for index in indices]
    return {name: np.stack([item[name] for item in items]) for name in items[0]}


def shuffled_rows(rows: Rows, seed: int) -> Callable[[Sequence[int]], dict[str, np.ndarray]]:
    """Function that stacks rows by number, over all epochs, each in an order by seed and epoch."""

    @functools.lru_cache(maxsize=2)  # a batch may have the end of one and the start of the next
    def order(epoch: int) -> np.ndarray:
        return np.random.default_rng([seed, epoch]).permutation(len(rows))

    def gather(numbers: Sequence[int]) -> dict[str, np.ndarray]:
        places = (divmod(number, len(rows)) for number in numbers)
        return gather_rows(rows, [int(order(epoch)[index]) for epoch, index in places])

    return gather
