"""Sequences to batches: a pure function of (seed, step), on any number of hosts."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np

from jaxformer.errors import ConfigError, DataError
from jaxformer.text.batches.mixture import Mixture, Rows
from jaxformer.text.store.arrays import IGNORE


@dataclasses.dataclass(frozen=True)
class Host:
    """This host's index among the hosts that share each global batch; default: a single host.

    Hosts that load the same rows (because they split the inside of a row) count as one.

    Args:
        index: index of this host, from 0: `jax.process_index()` if rows are split over all hosts.
        count: number of hosts: `jax.process_count()` in that case.

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
    """Batches of rows: `batches[step]` to train on, for any step in any order, and `once()`.

    A batch depends only on the seed and the step. Each epoch has every row of the source once,
    in a new random order. Epochs follow each other without a gap: a batch may contain the end of
    one and the start of the next, and may be larger than the source. Each host gets a contiguous
    part of the rows of the same global batch; host 0 gets the first.

    Attributes:
        batches_per_epoch: number of batches in an epoch, not always whole. None for a mixture,
            whose sources have separate epochs: `Mixture.epochs`.

    Args:
        source: rows to make batches of, such as `Windows` or `PackedDocuments`; or a mixture of
            such sources, each of which has separate epochs.
        batch_size: rows in the global batch.
        seed: seed of the order, at least 0.
        host: this host among those that share the batch.

    Raises:
        ConfigError: batch_size is not a positive multiple of host.count.
        DataError: the seed is negative, or the source is empty.

    Example:
        >>> from jaxformer.text import Windows, build_stream, byte_tokenizer
        >>> windows = Windows(build_stream(["to be or not to be"], byte_tokenizer()), length=4)
        >>> Batches(windows, batch_size=2, seed=0)[1_000_000]["tokens"].shape
        (2, 4)
    """

    batches_per_epoch: float | None

    def __init__(
        self, source: Rows | Mixture, batch_size: int, *, seed: int = 0, host: Host = Host()
    ) -> None:
        require_rows("batch_size", batch_size, host)
        require_seed(seed)
        if isinstance(source, Mixture):
            self._mixture, self.batches_per_epoch = source, None
        else:
            self._mixture = Mixture({"": source}, {"": 1})
            self.batches_per_epoch = len(source) / batch_size
        self._batch_size, self._seed, self._host = batch_size, seed, host
        # A batch may have the end of an epoch and the start of the next.
        size = 2 * len(self._mixture.sources)
        self._order = functools.lru_cache(maxsize=size)(self._draw_order)

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        rows = []
        for name, number in self._mixture.places(self._rows_of(step)):
            source = self._mixture.sources[name]
            epoch, index = divmod(number, len(source))
            rows.append(source[int(self._order(name, epoch)[index])])
        return _stacked(rows)

    def _draw_order(self, name: str, epoch: int) -> np.ndarray:
        """The order of a source in an epoch, by seed, epoch and name: int64 [rows]."""
        rng = np.random.default_rng([self._seed, epoch, *name.encode(errors="surrogatepass")])
        return rng.permutation(len(self._mixture.sources[name]))

    def once(self) -> Iterator[dict[str, np.ndarray]]:
        """Yields all rows once, in order, in batches of constant shape, for validation.

        The last batch is padded with rows of zeros whose labels are all `IGNORE`. Every host gets
        the same number of batches.

        Raises:
            DataError: the batches are of a mixture, whose sources are never all read.

        Example:
            >>> from jaxformer.text import Windows, build_stream, byte_tokenizer
            >>> windows = Windows(build_stream(["abcd"], byte_tokenizer()), length=1)
            >>> [batch["labels"][:, 0].tolist() for batch in Batches(windows, 2).once()]
            [[98, 99], [100, -1]]
        """
        if self.batches_per_epoch is None:
            raise DataError(
                f"a mixture has no end, got the sources {', '.join(self._mixture.sources)}; make "
                "batches of each source"
            )
        source = self._mixture.sources[""]
        # Ignored labels have no weight in a loss, so padding rows do not change it.
        filler = {
            name: np.full_like(array, IGNORE if name == "labels" else 0)
            for name, array in source[0].items()
        }
        for step in range(-(-len(source) // self._batch_size)):
            rows = self._rows_of(step)
            present = rows[: max(0, len(source) - rows.start)]
            fillers = [filler] * (len(rows) - len(present))
            yield _stacked([*(source[row] for row in present), *fillers])

    def source_names(self, step: int) -> list[str] | None:
        """For a mixture: name of the source of each row of a batch.

        Args:
            step: step of the batch.

        Returns:
            The names; None if there is no mixture.
        """
        if self.batches_per_epoch is not None:
            return None
        return [name for name, _ in self._mixture.places(self._rows_of(step))]

    def _rows_of(self, step: int) -> range:
        if step < 0:
            raise IndexError(f"step must be at least 0, got {step}")
        per_host = self._batch_size // self._host.count
        # Contiguous rows, not every count-th: the hosts' parts, concatenated, are the global batch.
        start = step * self._batch_size + self._host.index * per_host
        return range(start, start + per_host)


def require_seed(seed: int) -> None:
    """Raises DataError if a seed is negative."""
    if seed < 0:
        raise DataError(f"seed must be at least 0, got {seed}; try {-seed}")


def require_rows(name: str, rows: int, host: Host) -> None:
    """Raises ConfigError if the hosts cannot share batches of so many rows."""
    if rows < 1 or rows % host.count:
        raise ConfigError(
            f"{name} must be a positive multiple of host.count, got {name}={rows} and "
            f"host.count={host.count}; try {max(1, rows // host.count) * host.count}"
        )


def _stacked(rows: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Stacks rows: arrays `[rows, ...]` by name."""
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
