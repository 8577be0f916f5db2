"""Parsing of command lines by tyro, with one-line messages for mistakes."""

import contextlib
import io
import re
from typing import Any

import tyro

from jaxformer import errors

__all__ = ["parse"]


def parse(kind: Any, **arguments: Any) -> Any:
    """Parses words with tyro; raises ConfigError of one line where tyro prints a box."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return tyro.cli(kind, **arguments)
    except SystemExit as stopped:
        if stopped.code:
            raise errors.ConfigError(_without_box(printed.getvalue())) from None
        raise


def _without_box(box: str) -> str:
    """Message of an error box of tyro, as one line."""
    lines = [re.sub(r"[\u2500-\u257f]+|-{3,}", " ", line) for line in box.splitlines()]
    return " ".join(" ".join(lines[1:] or lines).split())  # the first is the frame's title
