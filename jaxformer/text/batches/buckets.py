"""Length-bucketed batches by token budget, a pure function of (seed, step)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jaxformer.errors import ConfigError
from jaxformer.text.batches.batches import Host, require_rows, require_seed
from jaxformer.text.store.arrays import Example, ExampleArrays


class BucketedBatches:
    """Batches of examples of about the same length: `batches[step]` to train on, and `once()`.

    An example is a dict of arrays that includes "labels". Its length is that of its longest array.
    Arrays with one axis become [rows, length], padded on the right with `IGNORE` in "labels" and 0
    in all others. Arrays without an axis become [rows].

    Examples are assigned to buckets by length, once, so that an epoch has as little padding as
    num_buckets shapes allow. Each epoch has every example once: it permutes the examples of each
    bucket, cuts them into batches, and permutes all batches. The last batch of a bucket is padded
    with rows of zeros whose labels are all `IGNORE`, so every epoch has the same number of batches.

    A batch depends only on the seed and the step. Each host gets a contiguous part of the rows of
    the same global batch; host 0 gets the first.

    Attributes:
        batches_per_epoch: number of batches in an epoch.
        shapes: (rows, length) of the global batches of each bucket, from short to long.

    Args:
        examples: dicts of the same arrays and dtypes, each array with one axis or none.
        batch_tokens: largest number of positions in a global batch, rows times length.
        seed: seed of the order, at least 0.
        multiple_of: divisor of the rows of every global batch: number of devices of all hosts,
            times the number of gradient accumulation steps.
        num_buckets: largest number of batch shapes; a training step is compiled for each.
        host: this host among those that share the batch.

    Raises:
        ConfigError: batch_tokens is too small for multiple_of rows of the longest example,
            or multiple_of is not a positive multiple of host.count.
        DataError: there are no examples, an example has no tokens, no labels or different arrays
            than the first, the labels cannot hold `IGNORE`, or the seed is negative.

    Example:
        >>> lengths = [3, 2, 8, 3, 2]
        >>> examples = [{"labels": np.arange(length)} for length in lengths]
        >>> batches = BucketedBatches(examples, batch_tokens=9, seed=0, num_buckets=2)
        >>> batches.shapes, batches.batches_per_epoch
        (((3, 3), (1, 8)), 3)
        >>> batches[1_000_000]["labels"].shape in batches.shapes
        True
    """

    batches_per_epoch: int
    shapes: tuple[tuple[int, int], ...]

    def __init__(
        self,
        examples: Sequence[Example] | ExampleArrays,
        *,
        batch_tokens: int,
        seed: int = 0,
        multiple_of: int = 1,
        num_buckets: int = 8,
        host: Host = Host(),
    ) -> None:
        require_seed(seed)
        self._examples = ExampleArrays.of(examples)
        lengths = self._examples.lengths
        self._buckets = _buckets(lengths, batch_tokens, multiple_of, num_buckets, host)
        self.batches_per_epoch = sum(len(_batches_of(bucket)) for bucket in self._buckets)
        self.shapes = tuple((bucket.rows, bucket.length) for bucket in self._buckets)
        self._seed, self._host = seed, host
        # The latest epoch and its order: steps mostly follow each other.
        self._latest = (0, self._order(0))

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        if step < 0:
            raise IndexError(f"step must be at least 0, got {step}")
        epoch, index = divmod(step, self.batches_per_epoch)
        if self._latest[0] != epoch:
            self._latest = (epoch, self._order(epoch))
        return _pad(self._examples, self._latest[1][index], self._host)

    def once(self) -> Iterator[dict[str, np.ndarray]]:
        """Yields all examples once, from the shortest bucket to the longest, for validation.

        Each bucket keeps the order of its examples. Every host gets the same number of batches.

        Example:
            >>> examples = [{"labels": np.array(labels)} for labels in ([7, 8, 9], [5], [6])]
            >>> batches = BucketedBatches(examples, batch_tokens=3)
            >>> [batch["labels"].tolist() for batch in batches.once()]
            [[[5], [6], [-1]], [[7, 8, 9]]]
        """
        for bucket in self._buckets:
            for batch in _batches_of(bucket):
                yield _pad(self._examples, batch, self._host)

    def _order(self, epoch: int) -> list["_Bucket"]:
        """Lists the batches of an epoch, each as a part of a bucket."""
        # Seeded by the epoch too, so that no epoch depends on earlier ones.
        rng = np.random.default_rng([self._seed, epoch])
        batches: list[_Bucket] = []
        for bucket in self._buckets:
            batches += _batches_of(bucket._replace(members=rng.permutation(bucket.members)))
        return [batches[i] for i in rng.permutation(len(batches))]


class _Bucket(NamedTuple):
    """Examples that are padded to one length, or one batch of them."""

    length: int
    rows: int  # In a global batch.
    members: np.ndarray


def _batches_of(bucket: _Bucket) -> list[_Bucket]:
    """Lists the batches of a bucket; the last may have fewer members than rows."""
    starts = range(0, len(bucket.members), bucket.rows)
    return [bucket._replace(members=bucket.members[i : i + bucket.rows]) for i in starts]


def _pad(examples: ExampleArrays, batch: _Bucket, host: Host) -> dict[str, np.ndarray]:
    """Pads a host's rows of a batch to the batch's length."""
    rows = batch.rows // host.count
    members = batch.members[host.index * rows : (host.index + 1) * rows]
    return examples.padded(members, rows, batch.length)


def _buckets(
    lengths: np.ndarray, batch_tokens: int, multiple_of: int, num_buckets: int, host: Host
) -> list[_Bucket]:
    """Assigns examples to buckets, from short to long; raises ConfigError if impossible."""
    require_rows("multiple_of", multiple_of, host)
    longest = int(lengths.max())
    if batch_tokens < longest * multiple_of:
        raise ConfigError(
            "batch_tokens must hold at least multiple_of rows of the longest example, got "
            f"batch_tokens={batch_tokens}, multiple_of={multiple_of} and a length of {longest}; "
            f"try {longest * multiple_of}, or leave out long examples"
        )
    edges = _edges(lengths, batch_tokens, multiple_of, num_buckets)
    bucket_of = np.searchsorted(edges, lengths)
    return [
        _Bucket(edge, _rows(edge, batch_tokens, multiple_of), np.flatnonzero(bucket_of == i))
        for i, edge in enumerate(edges)
    ]


def _rows(length: int, batch_tokens: int, multiple_of: int) -> int:
    return batch_tokens // length // multiple_of * multiple_of


def _edges(lengths: np.ndarray, batch_tokens: int, multiple_of: int, num_buckets: int) -> list[int]:
    """Chooses the bucket lengths that minimize the positions of an epoch.

    Exact, by dynamic programming: best[k, j] is the smallest number of positions of the j shortest
    distinct lengths in k buckets, the last of which starts at distinct length start[k, j]. Padding
    rows count too. Lengths are not rounded up, so none exceeds a model's max_len.
    """
    distinct, counts = np.unique(lengths, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)])  # Number of shorter examples.
    best = np.full((num_buckets + 1, len(distinct) + 1), np.inf)
    start = np.zeros(best.shape, np.int64)
    best[0, 0] = 0
    for j, length in enumerate(distinct.tolist(), start=1):
        rows = _rows(length, batch_tokens, multiple_of)
        positions = -(-(before[j] - before[:j]) // rows) * rows * length
        totals = best[:-1, :j] + positions
        start[1:, j] = totals.argmin(axis=1)
        best[1:, j] = totals.min(axis=1)
    edges, j = [], len(distinct)
    for k in range(int(np.argmin(best[:, j])), 0, -1):
        edges.append(int(distinct[j - 1]))
        j = int(start[k, j])
    return edges[::-1]
