"""Printing to a terminal, pipe or file, even if it is closed meanwhile; errors as one line."""

import contextlib
import errno
import io
import os
import re
import shutil
import sys
import textwrap
import traceback
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn, TextIO

from jaxformer import errors

# Characters that could move the cursor, change colors or the window title, or reverse text: C0
# except newline and tab, DEL, C1, and the bidi marks, embeddings, overrides and isolates.
_CONTROLS = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LEAST_WIDTH = 20  # columns
_INDENT = 13  # columns for the name of a line
_MISTAKE, _MACHINE = 2, 1  # exit statuses
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE)
_LONGEST = 2000  # characters of a message; its values can have any length


def for_terminal(text: str) -> str:
    r"""Replaces control characters with their codes, such as \x1b, so that they have no effect."""
    return _CONTROLS.sub(lambda character: ascii(character[0])[1:-1], text)


def show(
    text: str = "", *, end: str = "\n", error: bool = False, at_once: bool = False,
    styled: bool = False,
) -> None:  # fmt: skip
    """Prints untrusted text; a terminal gets its control characters as codes, a file as is.

    An `error` goes to standard error, and is lost if that is closed; `at_once` flushes.
    """
    stream = sys.stderr if error else sys.stdout
    if stream is None:
        return
    # Errors have codes in files, too, because logs are shown on terminals. The control characters
    # of styled text are this program's own, such as colors.
    shown = for_terminal(text) if (error or stream.isatty()) and not styled else text
    if not error:
        with _as_storage_error():
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
    """Flushes what `show` has printed; raises the same errors."""
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
    """Columns of the terminal, or COLUMNS; at least enough for a word."""
    return max(_LEAST_WIDTH, shutil.get_terminal_size().columns)


def open_missing_streams() -> None:
    """Opens /dev/null in place of closed standard streams."""
    # Otherwise the next file to be opened gets their number, and libraries write into it.
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
    """Sends the buffered and future output of a standard stream to /dev/null."""
    # Otherwise Python would fail to write it at exit, with an exit status of its own.
    with contextlib.suppress(OSError, AttributeError, io.UnsupportedOperation):
        opened = os.open(os.devnull, os.O_WRONLY)
        os.dup2(opened, stream.fileno())
        os.close(opened)


class _Lasting:
    """A standard stream that keeps working without its reader or its disk."""

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
        """Flushes, or drops the rest."""
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if error.errno not in (errno.EPIPE, errno.EIO):  # EIO: a closed terminal
            self.failure = error.strerror or str(error)
        drop_output(sys.stdout)


@contextlib.contextmanager
def lasting_output() -> Iterator[None]:
    """Lets a long command continue if its standard output is closed; StorageError at the end."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # for characters that its encoding lacks
    lasting = _Lasting(stream)
    sys.stdout = lasting
    try:
        yield
    finally:
        lasting.flush()
        sys.stdout = stream
    if lasting.failure is not None:
        raise errors.StorageError(
            f"the command finished, but standard output could not be written: {lasting.failure}"
        )


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Prints warnings as lines on standard error; no filter hides those of this package."""

    def line(message: Warning | str, *_: Any, **__: Any) -> None:
        show(f"jaxformer: {' '.join(str(message).split())}", error=True)

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module=r"jaxformer\b")
        warnings.showwarning = line
        yield


def exit_for_mistake(error: Exception) -> NoReturn:
    """Prints an error as one line on standard error, and exits; raises it again if unexpected."""
    message, status = message_and_status(error)
    message = " ".join(message.split())
    if len(message) > _LONGEST:
        message = f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 2 :]}"
    try:
        flush()
    except (errors.StorageError, OSError):
        drop_output(sys.stdout)
    show(f"jaxformer: error: {message}", error=True)
    sys.exit(status)


def message_and_status(error: Exception) -> tuple[str, int]:
    """Message and exit status of an expected error; re-raises others."""
    if isinstance(error, UnicodeEncodeError):
        return (
            f"standard output cannot show {error.object[error.start]!a} in its encoding, "
            f"{error.encoding}; set PYTHONIOENCODING=utf-8"
        ), _MISTAKE
    if isinstance(error, errors.StorageError):
        return str(error), _MACHINE
    if isinstance(error, tuple(getattr(errors, name) for name in errors.__all__)):
        return str(error), _MISTAKE
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return "a path has a NUL character; remove it from the config", _MISTAKE
    if isinstance(error, OSError):
        return _of_system(error), _MACHINE if error.errno in _NO_ROOM else _MISTAKE
    if isinstance(error, MemoryError) or str(error).startswith("RESOURCE_EXHAUSTED"):
        said = (str(error).splitlines() or [""])[0]
        return (
            f"out of memory{f' ({said})' if said else ''}; use a smaller model, batch, text or "
            "search"
        ), _MACHINE
    frames = traceback.extract_tb(error.__traceback__)
    if any(frame.filename.endswith("xla_bridge.py") for frame in frames):  # while JAX starts
        said = (str(error).splitlines() or ["no such platform"])[0]
        return (
            f"JAX cannot start with JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}: {said}; "
            "install the platform, such as jaxformer[tpu] or jaxformer[cuda13], or unset "
            "JAX_PLATFORMS"
        ), _MISTAKE
    raise error


def _of_system(error: OSError) -> str:
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    with contextlib.suppress(FileNotFoundError):
        os.getcwd()
        return error.strerror or str(error)
    return "the working directory was deleted; change to one that exists"
