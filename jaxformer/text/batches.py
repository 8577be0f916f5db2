"""From sequences to batches: a pure function of (seed, step), on any number of hosts."""

from collections.abc import Iterator
from typing import Protocol

import grain
import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.packing import IGNORE

__all__ = ["Batches", "Source", "evaluation_batches", "require_host", "require_seed"]


class Source(Protocol):
    """What batches are made of: random access to dicts of arrays, each time of the same shapes.

    Example:
        >>> from jaxformer.text import Windows, build_stream, byte_tokenizer
        >>> source: Source = Windows(build_stream(["abc"], byte_tokenizer()), length=2)
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, np.ndarray]: ...


class Batches:
    """The batches of a training run: `batches[step]` for any step, in any order.

    A batch depends on the seed and the step only. Each epoch has every item of the source once,
    in another random order; epochs follow each other without a gap, so that a batch may hold the
    end of one and the start of the next, and may be larger than the source. On several hosts each
    has its rows of the same global batch, one after the other: host 0 the first.

    Args:
        source: such as `Windows` or `PackedDocuments`.
        batch_size: rows of the global batch.
        seed: of the order, at least 0.
        num_hosts: how many hosts share the batch.
        host: which of them this is, from 0.

    Raises:
        DataError: batch_size is not a positive multiple of num_hosts, host is not one of them, the
            seed is negative, or the source is empty.

    Example:
        >>> from jaxformer.text import Windows, build_stream, byte_tokenizer
        >>> windows = Windows(build_stream(["to be or not to be"], byte_tokenizer()), length=4)
        >>> Batches(windows, batch_size=2, seed=0)[1_000_000]["tokens"].shape
        (2, 4)
    """

    def __init__(
        self, source: Source, batch_size: int, *, seed: int, num_hosts: int = 1, host: int = 0
    ) -> None:
        _require_batches(source, batch_size, num_hosts, host)
        require_seed(seed)
        self._rows = grain.MapDataset.source(source).seed(seed).shuffle().repeat()
        self._batch_size = batch_size
        self._num_hosts = num_hosts
        self._host = host

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        if step < 0:
            raise IndexError(f"step must be at least 0, got {step}")
        rows = _host_rows(step, self._batch_size, self._num_hosts, self._host)
        return _stack([self._rows[row] for row in rows])


def evaluation_batches(
    source: Source, batch_size: int, *, num_hosts: int = 1, host: int = 0
) -> Iterator[dict[str, np.ndarray]]:
    """Yields all items of a source once, in order, in batches of constant shape.

    The last batch is filled up with rows of zeros whose labels are all `IGNORE`; every host gets
    the same number of batches.

    Args:
        source: such as `Windows` or `PackedDocuments`; its items have "labels".
        batch_size: rows of the global batch.
        num_hosts: how many hosts share the batch.
        host: which of them this is, from 0.

    Returns:
        An iterator over dicts of arrays [batch_size / num_hosts, ...].

    Raises:
        DataError: batch_size is not a positive multiple of num_hosts, host is not one of them, or
            the source is empty.

    Example:
        >>> from jaxformer.text import Windows, build_stream, byte_tokenizer
        >>> windows = Windows(build_stream(["abcd"], byte_tokenizer()), length=1)
        >>> [batch["labels"][:, 0].tolist() for batch in evaluation_batches(windows, 2)]
        [[98, 99], [100, -1]]
    """
    _require_batches(source, batch_size, num_hosts, host)
    filler = {
        name: np.full_like(array, IGNORE if name == "labels" else 0)
        for name, array in source[0].items()
    }
    steps = range(-(-len(source) // batch_size))
    rows = (_host_rows(step, batch_size, num_hosts, host) for step in steps)
    return (_stack([source[i] if i < len(source) else filler for i in batch]) for batch in rows)


def require_host(num_hosts: int, host: int) -> None:
    """Raises DataError where a host is not one of so many."""
    if num_hosts < 1 or not 0 <= host < num_hosts:
        raise DataError(
            f"host must be at least 0 and less than num_hosts, got host={host} and "
            f"num_hosts={num_hosts}; use jax.process_index() and jax.process_count()"
        )


def require_seed(seed: int) -> None:
    """Raises DataError where a seed is negative."""
    if seed < 0:
        raise DataError(f"seed must be at least 0, got {seed}; try {-seed}")


def _host_rows(step: int, batch_size: int, num_hosts: int, host: int) -> range:
    """Numbers of the rows that a host has of a global batch."""
    per_host = batch_size // num_hosts
    start = step * batch_size + host * per_host
    return range(start, start + per_host)


def _stack(items: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([item[name] for item in items]) for name in items[0]}


def _require_batches(source: Source, batch_size: int, num_hosts: int, host: int) -> None:
    """Raises DataError where no batch can be made."""
    if len(source) == 0:
        raise DataError("a source of batches must have at least one item, got none; add text")
    require_host(num_hosts, host)
    if batch_size < 1 or batch_size % num_hosts:
        raise DataError(
            f"batch_size must be a positive multiple of num_hosts, got batch_size={batch_size} and "
            f"num_hosts={num_hosts}; try {max(1, batch_size // num_hosts) * num_hosts}"
        )
