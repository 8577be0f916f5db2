"""Warnings of damaged checkpoints as lines of a command."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import TextIO

from jaxformer.errors import CheckpointWarning

__all__ = ["checkpoint_warnings_as_lines"]


@contextlib.contextmanager
def checkpoint_warnings_as_lines() -> Iterator[None]:
    """Prints every `CheckpointWarning` on standard error at once, as a line of the command."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", CheckpointWarning)
        show = warnings.showwarning

        def show_as_line(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, CheckpointWarning):
                print(f"jaxformer: {' '.join(str(message).split())}", file=sys.stderr)
            else:
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = show_as_line
        yield
