"""Counts of rows that were read and dropped, with reasons and lines."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

# Reasons for dropping a row, by the field of `RowCounts` that counts it.
_REASONS = {
    "empty": "empty",
    "misaligned": "misaligned",
    "too_long": "too long",
    "repeated": "repeating validation text",
}
_SHOWN = 3


@dataclasses.dataclass(frozen=True)
class RowCounts:
    """Number of rows that were read, and of rows that were dropped for each reason.

    Args:
        unit: plural name of the rows, such as "pairs".
        read: rows in the files.
        empty: rows dropped because a column has no text or no tokens.
        misaligned: rows dropped because of a wrong number of tabs.
        too_long: rows dropped because a column has too many tokens.
        repeated: training rows dropped because they share a text with the validation part.
        first_dropped: up to 3 of the dropped lines, by name of the field. Lines count from 1, such
            as "17", or "file.tsv:17" if there are several files.

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

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "RowCounts":
        """Restores counts from `dataclasses.asdict`, also after a round trip through JSON.

        Example:
            >>> RowCounts.from_dict(dataclasses.asdict(RowCounts("pairs", read=7))).read
            7
        """
        shown = {reason: tuple(lines) for reason, lines in values["first_dropped"].items()}
        return cls(**{**values, "first_dropped": shown})

    @property
    def kept(self) -> int:
        """Number of rows that were not dropped."""
        return self.read - self.empty - self.misaligned - self.too_long - self.repeated

    def drop(self, reason: str, lines: Sequence[str]) -> "RowCounts":
        """Adds dropped rows.

        Args:
            reason: "empty", "misaligned", "too_long" or "repeated".
            lines: lines of the dropped rows; may be empty.

        Returns:
            The updated counts.

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

    def with_drops_of(self, other: "RowCounts") -> "RowCounts":
        """Adds the rows that a later step dropped from those kept here.

        Example:
            >>> read = RowCounts("pairs", read=7).drop("empty", ["2"])
            >>> print(read.with_drops_of(RowCounts("pairs", read=6).drop("too_long", ["5"])))
            7 pairs read, 5 kept; 1 empty (line 2), 1 too long (line 5)
        """
        shown = {
            reason: (*self.first_dropped.get(reason, ()), *other.first_dropped.get(reason, ()))
            for reason in _REASONS
        }
        return dataclasses.replace(
            self,
            first_dropped={reason: lines[:_SHOWN] for reason, lines in shown.items() if lines},
            **{reason: getattr(self, reason) + getattr(other, reason) for reason in _REASONS},
        )

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
