"""From sequences to batches: a pure function of (seed, step), on any number of hosts."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.mixture import MixedRows, Mixture
from jaxformer.text.packing import IGNORE
from jaxformer.text.sources import ShuffledRows, Source, gather_rows

__all__ = ["Batches", "Host", "evaluation_batches", "require_seed"]


@dataclasses.dataclass(frozen=True)
class Host:
    """Which of the hosts that share every global batch this one is; a single one if not given.

    Hosts that have the same rows, because they split what is in them, count as one.

    Args:
        index: index of this host, from 0; with rows split over all hosts `jax.process_index()`.
        count: how many hosts there are, likewise `jax.process_count()`.

    Raises:
        DataError: the index is negative, or not less than the count.

    Example:
        >>> Host(index=1, count=4)
        Host(index=1, count=4)
    """

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise DataError(
                "a host's index must be at least 0 and less than count, got "
                f"index={self.index} and count={self.count}; use jax.process_index() and "
                "jax.process_count()"
            )


class Batches:
    """Batches of a training run: `batches[step]` for any step, in any order.

    A batch depends on the seed and the step only. Each epoch has every item of the source once,
    in another random order; epochs follow each other without a gap, so that a batch may hold the
    end of one and the start of the next, and may be larger than the source. On several hosts each
    has its rows of the same global batch, one after the other: host 0 the first.

    Attributes:
        batches_per_epoch: how many there are, which need not be whole; None for a mixture, each
            source of which has epochs of its own: `Mixture.epochs`.

    Args:
        source: items to make batches of, such as `Windows` or `PackedDocuments`; or a mixture of
            such sources, which each batch has its rows of, so that it holds for them what is said
            here of one source.
        batch_size: rows in the global batch.
        seed: seed of the order, at least 0.
        host: this host, of those that share the batch.

    Raises:
        DataError: batch_size is not a positive multiple of host.count, the seed is negative, or the
            source is empty.

    Example:
        >>> from jaxformer.text import Windows, build_stream, byte_tokenizer
        >>> windows = Windows(build_stream(["to be or not to be"], byte_tokenizer()), length=4)
        >>> Batches(windows, batch_size=2, seed=0)[1_000_000]["tokens"].shape
        (2, 4)
    """

    batches_per_epoch: float | None

    def __init__(
        self, source: Source | Mixture, batch_size: int, *, seed: int, host: Host = Host()
    ) -> None:
        _require_rows(batch_size, host)
        require_seed(seed)
        self._rows: MixedRows | ShuffledRows
        if isinstance(source, Mixture):
            self.batches_per_epoch = None
            self._rows = MixedRows(source, seed)
        else:
            _require_items(source)
            self.batches_per_epoch = len(source) / batch_size
            self._rows = ShuffledRows(source, seed)
        self._batch_size = batch_size
        self._host = host

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        return self._rows.gather(self._rows_of(step))

    def source_names(self, step: int) -> list[str] | None:
        """Names of the sources of a mixture that the rows of a batch are from, one for each row.

        Args:
            step: of the batch.

        Returns:
            The names; None where the batches are not of a mixture.
        """
        if not isinstance(self._rows, MixedRows):
            return None
        return [name for name, _ in self._rows.mixture.places(self._rows_of(step))]

    def _rows_of(self, step: int) -> range:
        if step < 0:
            raise IndexError(f"step must be at least 0, got {step}")
        return _host_rows(step, self._batch_size, self._host)


def evaluation_batches(
    source: Source, batch_size: int, *, host: Host = Host()
) -> Iterator[dict[str, np.ndarray]]:
    """Yields all items of a source once, in order, in batches of constant shape.

    The last batch is filled up with rows of zeros whose labels are all `IGNORE`; every host gets
    the same number of batches.

    Args:
        source: such as `Windows` or `PackedDocuments`; its items have "labels".
        batch_size: rows in the global batch.
        host: this host, of those that share the batch.

    Returns:
        An iterator over dicts of arrays [batch_size / host.count, ...].

    Raises:
        DataError: batch_size is not a positive multiple of host.count, or the source is empty.

    Example:
        >>> from jaxformer.text import Windows, build_stream, byte_tokenizer
        >>> windows = Windows(build_stream(["abcd"], byte_tokenizer()), length=1)
        >>> [batch["labels"][:, 0].tolist() for batch in evaluation_batches(windows, 2)]
        [[98, 99], [100, -1]]
    """
    _require_items(source)
    _require_rows(batch_size, host)
    # Labels to ignore weigh nothing in a loss, so the rows that fill up do not change it.
    filler = {
        name: np.full_like(array, IGNORE if name == "labels" else 0)
        for name, array in gather_rows(source, [0]).items()
    }

    def batch(rows: range) -> dict[str, np.ndarray]:
        present = rows[: max(0, len(source) - rows.start)]
        parts = [gather_rows(source, present)] if present else []
        parts += [filler] * (len(rows) - len(present))
        return {name: np.concatenate([part[name] for part in parts]) for name in filler}

    steps = range(-(-len(source) // batch_size))
    return (batch(_host_rows(step, batch_size, host)) for step in steps)


def require_seed(seed: int) -> None:
    """Raises DataError where a seed is negative."""
    if seed < 0:
        raise DataError(f"seed must be at least 0, got {seed}; try {-seed}")


def _host_rows(step: int, batch_size: int, host: Host) -> range:
    """Indices of the rows that a host has of a global batch, over all epochs."""
    per_host = batch_size // host.count
    # Contiguous rows, not every count-th: the hosts' parts in a row are the global batch.
    start = step * batch_size + host.index * per_host
    return range(start, start + per_host)


def _require_items(source: Source) -> None:
    """Raises DataError where a source is empty."""
    if len(source) == 0:
        raise DataError("a source of batches must have at least one item, got none; add text")


def _require_rows(batch_size: int, host: Host) -> None:
    """Raises DataError where hosts cannot share batches of so many rows."""
    if batch_size < 1 or batch_size % host.count:
        raise DataError(
            "batch_size must be a positive multiple of host.count, got "
            f"batch_size={batch_size} and host.count={host.count}; try "
            f"{max(1, batch_size // host.count) * host.count}"
        )
