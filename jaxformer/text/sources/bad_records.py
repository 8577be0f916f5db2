"""Unreadable records of files: an error, or skipped and counted."""

from collections.abc import Callable
from typing import Literal

from jaxformer.errors import DataError

__all__ = ["BadRecords", "Errors"]

Errors = Literal["strict", "skip"]

_SHOWN = 5  # unreadable records that are named


class BadRecords:
    """Unreadable records of files: an error, or skipped and counted.

    Args:
        errors: "strict" raises DataError for the first; "skip" skips and counts them.
    """

    def __init__(self, errors: Errors = "strict") -> None:
        self._errors = errors
        self.count = 0
        self.shown: list[str] = []

    def add(self, where: Callable[[], str], what: str = "", remedy: str = "fix it") -> None:
        """Raises DataError or counts, depending on `errors`.

        Args:
            where: returns file and line; called only if shown, since lines must be counted.
            what: what is wrong there.
            remedy: what to do.
        """
        if self._errors == "strict":
            raise DataError(
                f"{where()}{what}; {remedy}, or skip unreadable records with data.errors 'skip'"
            )
        self.count += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(f"{where()}{what}")
