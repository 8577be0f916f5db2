"""Parsing of command lines by tyro, with one-line messages for mistakes."""

import contextlib
import io
import re
import shutil
import sys
import textwrap
from typing import Any

import tyro

from jaxformer import errors

__all__ = ["parse"]

_STYLE = re.compile(r"\x1b\[[\d;]*m")  # of a terminal
_BOX = re.compile("[\u2500-\u257f]+")


def parse(kind: Any, **arguments: Any) -> Any:
    """Parses words with tyro; raises ConfigError of one line where tyro prints a box."""
    printed, said = _Printed(), io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
            return tyro.cli(kind, **arguments)
    except SystemExit as stopped:
        if stopped.code:
            raise errors.ConfigError(_without_box(said.getvalue())) from None
        for line in printed.text().splitlines():
            print(_wrapped(line))
        raise


class _Printed(io.TextIOWrapper):
    """What tyro prints, with the colours and boxes that standard output can show."""

    def __init__(self) -> None:
        encoding = getattr(sys.stdout, "encoding", None)
        super().__init__(io.BytesIO(), encoding=encoding or "utf-8", write_through=True)
        self._is_terminal = sys.stdout.isatty()

    def isatty(self) -> bool:
        """Whether standard output is a terminal."""
        return self._is_terminal

    def text(self) -> str:
        """All of it."""
        self.seek(0)
        return self.read()


def _wrapped(line: str) -> str:
    """A line as wide as the terminal, which tyro makes of what it puts into boxes only."""
    plain, width = _STYLE.sub("", line), shutil.get_terminal_size().columns
    if len(plain) <= width or _BOX.search(line):
        return line
    return textwrap.fill(plain, width, break_long_words=False, break_on_hyphens=False)


def _without_box(box: str) -> str:
    """Message of an error box of tyro, as one line."""
    lines = [re.sub(r"-{3,}", " ", _BOX.sub(" ", line)) for line in box.splitlines()]
    return " ".join(" ".join(lines[1:] or lines).split())  # the first is the frame's title
