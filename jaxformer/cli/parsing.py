"""Reading the words of a command line: a user's mistake becomes one line."""

import contextlib
import io
import re
from typing import Any

import tyro

from jaxformer import errors

__all__ = ["parse"]


def parse(kind: Any, **arguments: Any) -> Any:
    """Parses words with tyro; a mistake becomes one line instead of its box of several."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, **arguments)
    except SystemExit as stopped:
        if stopped.code:
            raise errors.ConfigError(_unboxed(said.getvalue())) from None
        raise


def _unboxed(box: str) -> str:
    """Takes the words of a message out of the frame that tyro draws around it."""
    lines = [re.sub(r"[\u2500-\u257f]+|-{3,}", " ", line) for line in box.splitlines()]
    return " ".join(" ".join(lines[1:] or lines).split())  # the first is the frame's title
