"""Printing to a terminal, pipe or file, whichever is there, and as long as it is there."""

import contextlib
import errno
import io
import os
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

from jaxformer import errors

__all__ = [
    "drop_output",
    "flush",
    "for_terminal",
    "lasting_output",
    "open_missing_streams",
    "show",
    "show_named",
    "warnings_as_lines",
    "width",
]

# What could move the cursor, change colours or a window's title, or turn the direction of text:
# C0 but for newline and tab, DEL, C1, and the marks, embeddings, overrides and isolates of bidi.
_CONTROLS = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LEAST_WIDTH = 20  # columns
_INDENT = 13  # columns of the names of lines


def for_terminal(text: str) -> str:
    r"""Writes control characters as their codes, such as \x1b, which a terminal does not obey.

    Example:
        >>> print(for_terminal("red: \x1b[31m"))
        red: \x1b[31m
    """
    return _CONTROLS.sub(lambda character: ascii(character[0])[1:-1], text)


def show(
    text: str = "", *, end: str = "\n", error: bool = False, at_once: bool = False,
    styled: bool = False,
) -> None:  # fmt: skip
    """Prints text of any origin: without control characters, which only a file may be given.

    Errors are without them in files, too: logs are shown on terminals.

    Args:
        text: what to print.
        end: printed after it.
        error: whether it is for standard error, not standard output. It is lost where that is
            gone, since there is nowhere left to say so.
        at_once: whether to flush, so that a piece of a line is shown.
        styled: whether the control characters are this program's own, such as colours.

    Raises:
        BrokenPipeError: the reader of standard output is gone.
        StorageError: standard output cannot be written for another reason, such as a full disk.
    """
    stream = sys.stderr if error else sys.stdout
    if stream is None:
        return
    shown = for_terminal(text) if (error or stream.isatty()) and not styled else text
    if not error:
        with _as_storage_error():
            print(shown, end=end, file=stream, flush=at_once)
        return
    try:
        print(shown, end=end, file=stream, flush=True)
    except OSError:
        drop_output(stream)


def show_named(name: str, text: str) -> None:
    """Prints a paragraph as wide as the terminal, behind its name."""
    show(
        textwrap.fill(
            f"{name:<{_INDENT}}{text}", width(), subsequent_indent=" " * min(_INDENT, width() // 2),
            break_long_words=False, break_on_hyphens=False,
        )
    )  # fmt: skip


def flush() -> None:
    """Writes out what `show` has printed; raises what `show` does."""
    if sys.stdout is not None:
        with _as_storage_error():
            sys.stdout.flush()


@contextlib.contextmanager
def _as_storage_error() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise errors.StorageError(
            f"standard output cannot be written: {error.strerror}; free space, or write elsewhere"
        ) from None


def width() -> int:
    """Columns of the terminal, or of COLUMNS; at least as many as a word has."""
    return max(_LEAST_WIDTH, shutil.get_terminal_size().columns)


def open_missing_streams() -> None:
    """Puts /dev/null in place of standard streams that are closed.

    Otherwise the next file that is opened has their number, and what libraries write there goes
    into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


def drop_output(stream: TextIO) -> None:
    """Sends what a standard stream still holds, and is yet to get, to /dev/null.

    Python would fail at exit, with a status of its own, where it cannot write that.
    """
    with contextlib.suppress(OSError, AttributeError, io.UnsupportedOperation):
        opened = os.open(os.devnull, os.O_WRONLY)
        os.dup2(opened, stream.fileno())
        os.close(opened)


class _Lasting:
    """A standard stream that goes on without its reader or its disk.

    Attributes:
        failure: why it could not be written, in words; None where all went well, or the reader of
            a pipe or the terminal has gone, as readers may.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.failure: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes, or drops the text."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Flushes, or drops what was not written."""
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if error.errno not in (errno.EPIPE, errno.EIO):  # EIO: of a terminal that was closed
            self.failure = error.strerror or str(error)
        drop_output(sys.stdout)


@contextlib.contextmanager
def lasting_output() -> Iterator[None]:
    """Lets a long command go on when its standard output is gone, which it then need not say.

    Characters that the encoding of standard output lacks are printed as their codes.

    Raises:
        StorageError: at the end, where the output could not be written, as on a full disk.
    """
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    lasting = _Lasting(stream)
    sys.stdout = lasting
    try:
        yield
    finally:
        lasting.flush()
        sys.stdout = stream
    if lasting.failure is not None:
        raise errors.StorageError(
            f"the command is done, but standard output could not be written: {lasting.failure}"
        )


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Prints each warning as a line on standard error, without the place in the code.

    Those of this package are printed every time; Python's filters hold for the others.
    """

    def line(message: Warning | str, *_: Any, **__: Any) -> None:
        show(f"jaxformer: {' '.join(str(message).split())}", error=True)

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module=r"jaxformer\b")
        warnings.showwarning = line
        yield
