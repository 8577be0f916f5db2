"""Mixtures: the rows of several sources, interleaved in proportion to weights."""

import fractions
import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.sources import ShuffledRows, Source, gather_rows

__all__ = ["MixedRows", "Mixture"]


class Mixture:
    """Several sources, whose rows are interleaved in proportion to weights.

    Which source a row of the training run is from depends on its number alone: of any n rows from
    the first on, each source has its share, to within as many rows as there are sources. Each
    source goes through epochs of its own, and no source ends the epoch of another.

    Attributes:
        sources: the sources by name.
        shares: share of each in the rows, by name; together they are 1.

    Args:
        sources: the sources by name, at least one; their items are arrays of the same names,
            types and shapes.
        weights: weight of each source, by its name, more than 0 and finite. A weight of 0.1 is
            exactly a tenth.

    Raises:
        DataError: there is no source, one is empty, the items of two are unlike, or the weights
            are not those of the sources or are impossible.

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

    def __init__(self, sources: Mapping[str, Source], weights: Mapping[str, float]) -> None:
        _require_sources(sources)
        _require_weights(sources, weights)
        self.sources = dict(sources)
        # By their decimals, as a user writes them: 0.1 + 0.2 is not the binary 0.3.
        exact = [fractions.Fraction(repr(float(weights[name]))) for name in self.sources]
        divisor = math.lcm(*(weight.denominator for weight in exact))
        self._parts = [int(weight * divisor) for weight in exact]
        total = sum(self._parts)
        self.shares = {
            name: part / total for name, part in zip(self.sources, self._parts, strict=True)
        }

    def counts(self, rows: int) -> dict[str, int]:
        """How many of the first rows of a run are of each source, by name.

        Args:
            rows: number of rows, over all steps and hosts.
        """
        return dict(zip(self.sources, self._counts(rows), strict=True))

    def epochs(self, rows: int) -> dict[str, float]:
        """How many epochs each source goes through in the first rows of a run, by name.

        Args:
            rows: number of rows, over all steps and hosts: steps * batch_size.
        """
        return {name: n / len(self.sources[name]) for name, n in self.counts(rows).items()}

    def places(self, rows: range) -> Iterator[tuple[str, int]]:
        """Source of each row, and its index among the rows of that source, over all epochs.

        Args:
            rows: consecutive rows of a run.
        """
        names, before = list(self.sources), self._counts(rows.start)
        for row in rows:
            after = self._counts(row + 1)
            grown = next(i for i, count in enumerate(after) if count > before[i])
            yield names[grown], before[grown]
            before = after

    def _counts(self, rows: int) -> list[int]:
        """Number of the first rows that each source has.

        The first source takes its share of all, rounded up, the next one its share of what that
        leaves, and so on. No count ever falls as the rows grow, and they sum to the rows, so that
        from one row to the next exactly one of them grows by 1. (Grain's `MapDataset.mix` does the
        same with shares that it rounds to three digits.)
        """
        counts, left, parts = [], rows, sum(self._parts)
        for part in self._parts:
            others = left * (parts - part) // parts
            counts.append(left - others)
            left, parts = others, parts - part
        return counts


class MixedRows:
    """The rows of a mixture over all steps, each source in a shuffled order of its own.

    The order of a source depends on the seed and its name, so that the others keep theirs when one
    is added.

    Args:
        mixture: the sources and their shares.
        seed: seed of the orders, at least 0.

    Example:
        >>> sources = {name: [{"x": np.array(ord(name))}] for name in "ab"}
        >>> rows = MixedRows(Mixture(sources, {"a": 2, "b": 1}), seed=0)
        >>> rows.gather(range(3, 8))["x"]
        array([97, 97, 98, 97, 97])
    """

    def __init__(self, mixture: Mixture, seed: int) -> None:
        self.mixture = mixture
        self._rows = {
            name: ShuffledRows(source, _source_seed(seed, name))
            for name, source in mixture.sources.items()
        }

    def gather(self, rows: range) -> dict[str, np.ndarray]:
        """Stacks consecutive rows: arrays by name, `[rows, ...]`."""
        places: dict[str, list[int]] = {}
        indices: dict[str, list[int]] = {}
        for place, (name, index) in enumerate(self.mixture.places(rows)):
            places.setdefault(name, []).append(place)
            indices.setdefault(name, []).append(index)
        found = [(places[name], self._rows[name].gather(indices[name])) for name in places]
        stacked = {
            name: np.empty((len(rows), *array.shape[1:]), array.dtype)
            for name, array in found[0][1].items()
        }
        for where, arrays in found:
            for name, array in arrays.items():
                stacked[name][where] = array
        return stacked


def _source_seed(seed: int, name: str) -> int:
    """Seed of the order of a source, which no other name and no near seed has."""
    return int(
        np.random.SeedSequence([seed, *name.encode(errors="surrogatepass")]).generate_state(1)[0]
    )


def _require_sources(sources: Mapping[str, Source]) -> None:
    """Raises DataError where sources cannot be mixed."""
    if not sources:
        raise DataError("a mixture must have at least one source, got none; name one")
    kinds = {}
    for name, source in sources.items():
        if len(source) == 0:
            raise DataError(
                f"every source of a mixture must have at least one item, got none in {name!r}; "
                "add text, or leave it out"
            )
        kinds[name] = _kind(gather_rows(source, [0]))
    first, *others = kinds
    for name in others:
        if kinds[name] != kinds[first]:
            raise DataError(
                "the sources of a mixture must have items of the same arrays, got "
                f"{kinds[first]} in {first!r} and {kinds[name]} in {name!r}; cut them alike"
            )


def _kind(items: Mapping[str, np.ndarray]) -> str:
    """Names, types and shapes of the arrays of an item, for messages."""
    arrays = ((name, items[name]) for name in sorted(items))
    return ", ".join(f"{name} {array.dtype}{list(array.shape[1:])}" for name, array in arrays)


def _require_weights(names: Mapping[str, Source], weights: Mapping[str, float]) -> None:
    """Raises DataError where the weights are not those of the sources, or are impossible."""
    if set(weights) != set(names):
        raise DataError(
            "a mixture must have a weight for each source, by its name, got weights of "
            f"{_listed(weights)} for the sources {_listed(names)}; name the same"
        )
    for name, weight in weights.items():
        if not 0 < weight < math.inf:
            raise DataError(
                f"the weight of a source must be more than 0 and finite, got {weight} for "
                f"{name!r}; leave out a source that is not wanted"
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
