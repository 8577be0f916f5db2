"""Rows of two columns of text: those kept and those dropped, and the part that is held out."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from jaxformer.errors import DataError

__all__ = [
    "Columns",
    "RowCounts",
    "count_shared",
    "fitting_rows",
    "held_out_rows",
    "line_numbers",
    "require_fraction",
    "require_same_length",
    "sorted_out",
    "take",
]

Columns = tuple[tuple[str, ...], ...]
"""The first column, the second one, and the line that each row was read from."""

# Why a row is dropped, by the field of `RowCounts` that counts it.
_REASONS = {
    "empty": "empty",
    "misaligned": "misaligned",
    "too_long": "too long",
    "repeated": "repeating held-out text",
}
_SHOWN = 3


@dataclasses.dataclass(frozen=True)
class RowCounts:
    """How many rows were read, and how many were dropped for which reason.

    Args:
        unit: what a row is, such as "pairs".
        read: rows in the files.
        empty: rows dropped because a column has no text, or no token.
        misaligned: rows dropped because they do not have exactly one tab.
        too_long: rows dropped because a column has too many tokens.
        repeated: rows dropped from the training part because the held-out part has a text of them.
        first_dropped: by the name of the field, up to 3 of the lines dropped, from 1 on, each
            "17", or "file.tsv:17" where several files were read.

    Example:
        >>> counts = RowCounts("pairs", read=29_000).drop("empty", ["17"])
        >>> print(counts.drop("too_long", ["4", "90"]))
        29,000 pairs read, 28,997 kept; 1 empty (line 17), 2 too long (lines 4, 90)
    """

    unit: str
    read: int
    empty: int = 0
    misaligned: int = 0
    too_long: int = 0
    repeated: int = 0
    first_dropped: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def kept(self) -> int:
        """Number of rows that were not dropped."""
        return self.read - self.empty - self.misaligned - self.too_long - self.repeated

    def drop(self, reason: str, lines: Sequence[str]) -> "RowCounts":
        """Counts rows that are dropped.

        Args:
            reason: "empty", "misaligned", "too_long" or "repeated".
            lines: of the rows, any number.

        Returns:
            The counts with these.

        Example:
            >>> RowCounts("pairs", read=7).drop("empty", ["2", "5"]).kept
            5
        """
        if not lines:
            return self
        shown = (*self.first_dropped.get(reason, ()), *lines)[:_SHOWN]
        count = getattr(self, reason) + len(lines)
        dropped = {**self.first_dropped, reason: shown}
        return dataclasses.replace(self, first_dropped=dropped, **{reason: count})

    def __str__(self) -> str:
        dropped = ", ".join(
            f"{getattr(self, field):,} {reason}{self._lines(field)}"
            for field, reason in _REASONS.items()
            if getattr(self, field)
        )
        kept = f"{self.read:,} {self.unit} read, {self.kept:,} kept"
        return f"{kept}; {dropped}" if dropped else kept

    def _lines(self, field: str) -> str:
        lines = list(self.first_dropped.get(field, ()))
        if not lines:
            return ""
        more = [] if len(lines) == getattr(self, field) else ["..."]
        return f" (line{'s' if lines[1:] else ''} {', '.join(lines + more)})"


def sorted_out(
    rows: Iterable[tuple[str, Sequence[str]]], unit: str, *, files: Sequence[str], remedy: str
) -> tuple[Columns, RowCounts]:
    """Keeps the rows that have text in both of two columns, without the spaces around it.

    Args:
        rows: the line and the columns of each.
        unit: what a row is.
        files: where they are from, for the error message.
        remedy: how a row should look, for the error message.

    Raises:
        DataError: no row is left.
    """
    kept: list[tuple[str, str, str]] = []
    dropped: dict[str, list[str]] = {"empty": [], "misaligned": []}
    read = 0
    for line, columns in rows:
        read += 1
        if len(columns) != 2:
            dropped["misaligned"].append(line)
        elif (first := columns[0].strip()) and (second := columns[1].strip()):
            kept.append((first, second, line))
        else:
            dropped["empty"].append(line)
    counts = RowCounts(unit, read)
    for reason, lines in dropped.items():
        counts = counts.drop(reason, lines)
    if not kept:
        names = " and ".join(f"'{file}'" for file in files)
        raise DataError(
            f"at least one of the {unit} must be usable, got {names}: {counts}; {remedy}"
        )
    return tuple(zip(*kept, strict=True)), counts


def line_numbers(count: int) -> tuple[str, ...]:
    """Numbers lines from 1 on."""
    return tuple(map(str, range(1, count + 1)))


def require_same_length(**columns: Sequence[str]) -> None:
    """Raises DataError where one column has more rows than another."""
    if len({len(column) for column in columns.values()}) > 1:
        got = ", ".join(f"{len(column)} {name}" for name, column in columns.items())
        raise DataError(f"columns must have as many rows as each other, got {got}; align them")


def take(columns: Columns, indices: Iterable[int]) -> Columns:
    """Takes some rows, in the order of the indices."""
    chosen = list(indices)
    return tuple(tuple(column[i] for i in chosen) for column in columns)


def fitting_rows(
    lines: Sequence[str],
    sizes: Sequence[Sequence[int]],
    max_len: int,
    counts: RowCounts,
    *,
    ends: int,
) -> tuple[list[int], RowCounts]:
    """Finds the rows that are neither empty nor too long once they are tokens.

    Args:
        lines: of the rows.
        sizes: tokens in the columns of each row.
        max_len: the most tokens that a column may have.
        counts: of the rows so far.
        ends: how many of the tokens in a column are added to those of its text.

    Returns:
        The indices of the rows to keep, and the counts with those dropped.

    Raises:
        DataError: no row is left.
    """
    empty = [i for i, size in enumerate(sizes) if min(size) == ends]
    too_long = [i for i, size in enumerate(sizes) if min(size) > ends and max(size) > max_len]
    counts = counts.drop("empty", [lines[i] for i in empty])
    counts = counts.drop("too_long", [lines[i] for i in too_long])
    dropped = {*empty, *too_long}
    kept = [i for i in range(len(sizes)) if i not in dropped]
    if not kept:
        shortest = min((max(sizes[i]) for i in too_long), default=None)
        raise DataError(
            f"at least one of the {counts.unit} must have tokens, and at most max_len={max_len}, "
            f"got none of {len(sizes):,}: {counts}; "
            + (f"raise max_len to at least {shortest}" if shortest else "use another tokenizer")
        )
    return kept, counts


def require_fraction(validation_fraction: float) -> None:
    """Raises DataError for a share to hold out that leaves nothing on one side."""
    if not 0 < validation_fraction < 1:
        raise DataError(
            "validation_fraction must be more than 0 and less than 1, got "
            f"{validation_fraction}; 0.1 holds out a tenth"
        )


def held_out_rows(
    columns: Columns,
    lines: Sequence[str],
    validation_fraction: float,
    counts: RowCounts,
    *,
    seed: int,
) -> tuple[list[int], list[int], RowCounts]:
    """Holds out the last rows of a random order, and all that repeats a text of them.

    Args:
        columns: those whose texts must not stand in both parts.
        lines: of the rows.
        validation_fraction: share of the rows to hold out.
        counts: of the rows so far.
        seed: of the order.

    Returns:
        The indices of the rows to train on and of those held out, in the random order, and the
        counts with the rows that are in neither.

    Raises:
        DataError: the fraction is out of range, or one of the parts would be empty.
    """
    require_fraction(validation_fraction)
    total = len(lines)
    order = np.random.default_rng(seed).permutation(total).tolist()
    cut = total - round(validation_fraction * total)
    training, held_out = order[:cut], order[cut:]
    repeated: set[int] = set()
    for column in columns:
        texts = {column[i] for i in held_out}
        repeated |= {i for i in training if column[i] in texts}
    counts = counts.drop("repeated", [lines[i] for i in training if i in repeated])
    training = [i for i in training if i not in repeated]
    if not training or not held_out:
        side = "held-out" if training else "training"
        raise DataError(
            f"both sides of a split must have {counts.unit}, got an empty {side} side from "
            f"{total} with validation_fraction={validation_fraction}, {len(repeated)} of them "
            "repeating a held-out text; add data, or change the fraction"
        )
    return training, held_out, counts


def count_shared(training: Sequence[str], held_out: Sequence[str]) -> int:
    """Counts the held-out texts that stand in training too, so that a caller can report them.

    Args:
        training: such as the sources of pairs, or the texts that have labels.
        held_out: the same of other files.

    Returns:
        How many of `held_out` are in `training`, each as often as it occurs.

    Example:
        >>> count_shared(["A dog.", "A cat."], ["A cat.", "A cow.", "A cat."])
        2
    """
    known = set(training)
    return sum(text in known for text in held_out)
