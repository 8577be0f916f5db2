"""Synthetic sequence tasks with one correct answer, to check a translation model in minutes."""

from collections.abc import Callable

import numpy as np

from jaxformer.errors import ConfigError
from jaxformer.text.batches.batches import require_seed

_Symbols = tuple[int, ...]
_Pairs = tuple[tuple[str, ...], tuple[str, ...]]

_TASKS: dict[str, Callable[[_Symbols], _Symbols]] = {
    "copy": lambda symbols: symbols,
    "reverse": lambda symbols: symbols[::-1],
    "sort": lambda symbols: tuple(sorted(symbols)),
}


def synthetic_pairs(
    task: str,
    *,
    num_pairs: int,
    num_validation: int,
    num_symbols: int,
    min_len: int,
    max_len: int,
    seed: int,
) -> tuple[_Pairs, _Pairs]:
    """Different random sequences and their targets, for training and validation.

    Each length gets the same number of sequences, as far as it has so many; texts are words such as
    "s07 s03".
    """
    require_seed(seed)
    counts = _counts(num_pairs, num_validation, num_symbols, min_len, max_len)
    rng = np.random.default_rng(seed)
    by_length: list[_Symbols] = []
    for length, count in counts.items():
        by_length += _distinct(rng, num_symbols, length, count)
    sequences = [by_length[i] for i in rng.permutation(len(by_length))]
    solve = _TASKS[task]
    width = max(2, len(str(num_symbols - 1)))

    def pairs(part: list[_Symbols]) -> _Pairs:
        sources = tuple(_text(symbols, width) for symbols in part)
        return sources, tuple(_text(solve(symbols), width) for symbols in part)

    return pairs(sequences[num_validation:]), pairs(sequences[:num_validation])


def _counts(
    num_pairs: int, num_validation: int, num_symbols: int, min_len: int, max_len: int
) -> dict[int, int]:
    """Number of sequences of each length; raises ConfigError if they cannot be made."""
    lengths = range(min_len, max_len + 1)
    missing = num_pairs + num_validation
    exist = {length: num_symbols**length for length in lengths}
    if missing > sum(exist.values()):
        raise ConfigError(
            f"there must be as many different sequences as pairs, got {sum(exist.values())} of "
            f"{num_symbols} symbols and lengths {min_len} to {max_len} for num_pairs + "
            f"num_validation = {missing}; ask for fewer pairs, or raise num_symbols or max_len"
        )
    counts = {}
    for length in lengths:  # Longer lengths have more sequences.
        counts[length] = min(exist[length], missing // (max_len + 1 - length))
        missing -= counts[length]
    return counts


def _distinct(
    rng: np.random.Generator, num_symbols: int, length: int, count: int
) -> list[_Symbols]:
    """Draws different sequences of one length."""
    sequences: dict[_Symbols, None] = {}  # A set that keeps the order.
    while len(sequences) < count:
        drawn = rng.integers(num_symbols, size=(count, length)).tolist()
        sequences |= dict.fromkeys(map(tuple, drawn))
    return list(sequences)[:count]


def _text(symbols: _Symbols, width: int) -> str:
    return " ".join(f"s{symbol:0{width}}" for symbol in symbols)
