"""Rows of one length by index; mixtures of several such sources in proportion to weights."""

import fractions
import math
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from jaxformer.errors import DataError


class Rows(Protocol):
    """Random-access rows to make batches from: dicts of arrays, with the same shapes in each.

    Example:
        >>> from jaxformer.text import Windows, build_stream, byte_tokenizer
        >>> rows: Rows = Windows(build_stream(["abc"], byte_tokenizer()), length=2)
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, np.ndarray]: ...


class Mixture:
    """Interleaves the rows of several sources in proportion to weights.

    The source of a row depends only on the row number. In the first n rows of a run, for any n,
    the count of each source is off its share by at most as many rows as there are sources. Each
    source has separate epochs; none ends the epoch of another.

    Attributes:
        sources: the sources by name.
        shares: share of each in the rows, by name; together they are 1.

    Args:
        sources: the sources by name, at least one; the arrays of their items have the same names,
            types and shapes.
        weights: weight of each source, by name, more than 0 and finite. A weight of 0.1 is
            exactly a tenth.

    Raises:
        DataError: there is no source, a source is empty, or the weights do not match the sources
            or are out of range.

    Example:
        >>> from jaxformer.text import Batches, Windows, build_stream, byte_tokenizer
        >>> stream = build_stream(["to be or not to be"], byte_tokenizer())
        >>> code = build_stream(["for i in range(3): print(i)"], byte_tokenizer())
        >>> sources = {"play": Windows(stream, length=4), "code": Windows(code, length=4)}
        >>> mixture = Mixture(sources, {"play": 3, "code": 1})
        >>> batches = Batches(mixture, batch_size=8, seed=0)
        >>> batches.source_names(0)
        ['play', 'play', 'play', 'code', 'play', 'play', 'play', 'code']
        >>> mixture.epochs(10 * 8)  # after ten steps
        {'play': 12.0, 'code': 2.857142857142857}
    """

    def __init__(self, sources: Mapping[str, Rows], weights: Mapping[str, float]) -> None:
        _require_mixable(sources, weights)
        self.sources = dict(sources)
        # Exact decimals, as a user writes them: in binary, 0.1 + 0.2 is not 0.3.
        exact = [fractions.Fraction(repr(float(weights[name]))) for name in self.sources]
        divisor = math.lcm(*(weight.denominator for weight in exact))
        self._parts = [int(weight * divisor) for weight in exact]
        total = sum(self._parts)
        self.shares = {
            name: part / total for name, part in zip(self.sources, self._parts, strict=True)
        }

    def counts(self, rows: int) -> dict[str, int]:
        """Number of rows of each source in the first `rows` of a run, by name.

        The first source gets its share of all rows, rounded up; the next one its share of the rest,
        and so on. No count decreases as the rows grow, and the counts sum to the rows. So from one
        row to the next, exactly one count grows by 1.
        """
        counts, left, parts = {}, rows, sum(self._parts)
        for name, part in zip(self.sources, self._parts, strict=True):
            following = left * (parts - part) // parts
            counts[name] = left - following
            left, parts = following, parts - part
        return counts

    def epochs(self, rows: int) -> dict[str, float]:
        """Number of epochs of each source in the first rows of a run, by name.

        Args:
            rows: number of rows, over all steps and hosts: steps * batch_size.
        """
        return {name: n / len(self.sources[name]) for name, n in self.counts(rows).items()}

    def places(self, rows: range) -> Iterator[tuple[str, int]]:
        """Source of each row, and its index in that source, counted over all epochs.

        Args:
            rows: consecutive rows of a run.
        """
        before = self.counts(rows.start)
        for row in rows:
            after = self.counts(row + 1)
            grown = next(name for name, count in after.items() if count > before[name])
            yield grown, before[grown]
            before = after


def _require_mixable(sources: Mapping[str, Rows], weights: Mapping[str, float]) -> None:
    """Raises DataError if sources cannot be mixed, or the weights are not theirs."""
    if not sources or set(weights) != set(sources):
        raise DataError(
            "a mixture must have sources, and a weight for each by its name, got weights for "
            f"{sorted(weights)} and the sources {sorted(sources)}; use the same names"
        )
    for name, source in sources.items():
        if len(source) == 0:
            of = f" in {name!r}" if name else ""
            raise DataError(f"a source must have at least one row, got none{of}; add text")
        if not 0 < weights[name] < math.inf:
            raise DataError(
                "a weight of a mixture must be more than 0 and finite, got "
                f"{weights[name]} for {name!r}; leave the source out"
            )
