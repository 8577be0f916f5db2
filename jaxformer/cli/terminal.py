"""Printing to a terminal, pipe or file; errors as one line."""

import contextlib
import io
import logging
import os
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn, TextIO

from jaxformer.errors import JaxformerError, StorageError

# Characters that could move the cursor, change colors or the window title, or reverse text: C0
# except newline and tab, DEL, C1, and the bidi marks, embeddings, overrides and isolates.
_CONTROLS = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LEAST_WIDTH = 20  # columns
_INDENT = 13  # columns for the name of a line
_LONGEST = 2000  # characters of a message; its values can have any length


def for_terminal(text: str) -> str:
    r"""Replaces control characters with their codes, such as \x1b, so that they have no effect."""
    return _CONTROLS.sub(lambda character: ascii(character[0])[1:-1], text)


def show(text: str = "", *, end: str = "\n", error: bool = False, at_once: bool = False) -> None:
    """Prints untrusted text; a terminal gets its control characters as codes, a file as is."""
    stream = sys.stderr if error else sys.stdout
    if stream is None:
        return
    # Errors have codes in files, too, because logs are shown on terminals.
    shown = for_terminal(text) if error or stream.isatty() else text
    if not error:
        print(shown, end=end, file=stream, flush=at_once)
        return
    try:
        print(shown, end=end, file=stream, flush=True)
    except OSError:
        drop_output(stream)


def show_named(name: str, *texts: str) -> None:
    """Prints a name, then paragraphs wrapped to the terminal width."""
    indent = " " * min(_INDENT, width() // 2)
    for index, text in enumerate(texts):
        line = f"{'' if index else name:<{_INDENT}}{text}"
        show(wrapped(line, rest=indent))


def readable_seconds(seconds: float) -> str:
    """A time in the largest unit in which it is at least 1."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "s")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1000:.3g} ms"


def wrapped(line: str, *, first: str = "", rest: str = "") -> str:
    """A line wrapped to the terminal width, only at spaces, with indents of its lines."""
    return textwrap.fill(
        line, width(), initial_indent=first, subsequent_indent=rest, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def flush() -> None:
    """Flushes what `show` has printed."""
    if sys.stdout is not None:
        sys.stdout.flush()


def width() -> int:
    """Columns of the terminal, or COLUMNS; at least enough for a word."""
    return max(_LEAST_WIDTH, shutil.get_terminal_size().columns)


def drop_output(stream: TextIO) -> None:
    """Sends the buffered and future output of a standard stream to /dev/null."""
    # Otherwise Python would fail to write it at exit, with an exit status of its own.
    with contextlib.suppress(OSError, AttributeError, io.UnsupportedOperation):
        opened = os.open(os.devnull, os.O_WRONLY)
        os.dup2(opened, stream.fileno())
        os.close(opened)


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
    if len(message) > _LONGEST:
        message = f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 2 :]}"
    try:
        flush()
    except OSError:
        drop_output(sys.stdout)
    show(f"jaxformer: error: {message}", error=True)
    sys.exit(2 if is_mistake and not isinstance(error, StorageError) else 1)
