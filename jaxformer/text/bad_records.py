"""What of the files cannot be read: an error, or left out and counted."""

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

    def add(self, what: str, remedy: str = "mend it") -> None:
        """Raises DataError, or counts.

        Args:
            what: file, line and what is wrong with it.
            remedy: what to do.
        """
        if self._errors == "strict":
            raise DataError(
                f"{what}; {remedy}, or leave out what cannot be read by data.errors 'skip'"
            )
        self.count += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(what)
