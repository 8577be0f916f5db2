"""Printing to a terminal, pipe or file; errors as one line."""

import contextlib
import logging
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

from jaxformer.errors import JaxformerError

_INDENT = 13  # columns for the name of a line


def show(text: str = "", *, end: str = "\n", error: bool = False, at_once: bool = False) -> None:
    """Prints a text, to standard error as part of a message."""
    print(text, end=end, file=sys.stderr if error else sys.stdout, flush=error or at_once)


def show_named(name: str, *texts: str) -> None:
    """Prints a name, then paragraphs wrapped to the terminal width."""
    for index, text in enumerate(texts):
        show(wrapped(f"{'' if index else name:<{_INDENT}}{text}", indent=" " * _INDENT))


def readable_seconds(seconds: float) -> str:
    """A time in the largest unit of which it has two, or in seconds or milliseconds."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def wrapped(line: str, *, first: str = "", indent: str = "") -> str:
    """A line wrapped to the terminal width, only at spaces, with indents of its lines."""
    return textwrap.fill(
        line, shutil.get_terminal_size().columns, initial_indent=first, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Prints warnings as lines on standard error; no filter hides those of this package."""

    def line(message: Warning | str, *_: Any, **__: Any) -> None:
        show(f"jaxformer: {' '.join(str(message).split())}", error=True)

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module=r"jaxformer\b")
        warnings.showwarning = line
        yield


@contextlib.contextmanager
def log_as_lines() -> Iterator[None]:
    """Prints what the package logs on standard output, each line once."""
    lines: set[str] = set()

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            is_warning = record.levelno >= logging.WARNING
            line = f"warning: {record.getMessage()}" if is_warning else record.getMessage()
            if line not in lines:  # runs of a sweep have most lines in common
                lines.add(line)
                show(line)

    logger, handler = logging.getLogger("jaxformer"), Lines()
    level, propagates = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates


def exit_for(error: Exception) -> NoReturn:
    """Prints an error as one line on standard error, and exits: 2 for a user's mistake, else 1."""
    message, is_mistake = " ".join(str(error).split()), isinstance(error, JaxformerError)
    if not is_mistake:
        message = f"{type(error).__name__}: {message}; --traceback shows where"
    show(f"jaxformer: error: {message}", error=True)
    sys.exit(2 if is_mistake else 1)
