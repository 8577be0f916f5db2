"""What of the files cannot be read: an error, or left out and counted."""

from collections.abc import Callable
from typing import Literal

from jaxformer.errors import DataError

__all__ = ["BadRecords", "Errors"]

Errors = Literal["strict", "skip"]

_SHOWN = 5  # records that could not be read and are named


class BadRecords:
    """What of the files could not be read: an error, or left out and counted.

    Args:
        errors: "strict" raises DataError for the first, "skip" leaves out and counts.
    """

    def __init__(self, errors: Errors = "strict") -> None:
        self._errors = errors
        self.count = 0
        self.shown: list[str] = []

    def add(self, where: Callable[[], str], what: str = "", remedy: str = "mend it") -> None:
        """Raises DataError, or counts.

        Args:
            where: says file and line; called only if it is shown, since lines must be counted.
            what: what is wrong there.
            remedy: what to do.
        """
        if self._errors == "strict":
            raise DataError(
                f"{where()}{what}; {remedy}, or leave out what cannot be read by data.errors 'skip'"
            )
        self.count += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(f"{where()}{what}")
