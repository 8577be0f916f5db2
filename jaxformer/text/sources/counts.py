"""Counts of rows that were read and dropped, with reasons and lines."""

import dataclasses
from typing import Literal

from jaxformer.errors import DataError

Errors = Literal["strict", "skip"]
"""What happens to records that cannot be read."""

_SHOWN = 3


@dataclasses.dataclass
class Counts:
    """Number of rows that were read, and of rows that were dropped for each reason.

    Args:
        unit: plural name of the rows, such as "pairs".
        read: rows in the files.
        dropped: number of dropped rows by reason, such as "empty", "misaligned", "too long" or
            "unreadable".
        lines: up to 3 lines of dropped rows by reason, such as "17", or "file.tsv:17" if there are
            several files. Lines count from 1.
        errors: what happens to a record that cannot be read: "strict" raises an error, "skip"
            drops it.

    Example:
        >>> counts = Counts("pairs", read=29_000)
        >>> for line in ("4", "90"):
        ...     counts.drop("too long", line)
        >>> print(counts)
        29,000 pairs read, 28,998 kept; 2 too long (lines 4, 90)
    """

    unit: str
    read: int = 0
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)
    lines: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    errors: Errors = "strict"

    @property
    def kept(self) -> int:
        """Number of rows that were not dropped."""
        return self.read - sum(self.dropped.values())

    def drop(self, reason: str, line: str) -> None:
        """Counts a dropped row."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        lines = self.lines.setdefault(reason, [])
        if len(lines) < _SHOWN:
            lines.append(line)

    def unreadable(self, place: str, message: str) -> None:
        """Drops a record that cannot be read; if errors are "strict", raises DataError.

        Args:
            place: file and line, such as "file.jsonl:17".
            message: what the record must be, and is not.
        """
        if self.errors == "strict":
            raise DataError(
                f"{place}: {message}; fix it, or skip unreadable records with data.errors 'skip'"
            )
        self.read += 1
        self.drop("unreadable", place)

    def __str__(self) -> str:
        dropped = ", ".join(
            f"{n:,} {reason}{self._lines(reason)}" for reason, n in sorted(self.dropped.items())
        )
        totals = f"{self.read:,} {self.unit} read, {self.kept:,} kept"
        return f"{totals}; {dropped}" if dropped else totals

    def _lines(self, reason: str) -> str:
        lines = self.lines[reason]
        more = [] if len(lines) == self.dropped[reason] else ["..."]
        return f" (line{'s' if lines[1:] else ''} {', '.join(lines + more)})"
