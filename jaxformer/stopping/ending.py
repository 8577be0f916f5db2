"""The last line of a process that a signal ends, and its end, whatever other threads hold."""

import contextlib
import os
import sys
import threading
from typing import NoReturn

__all__ = ["end_process", "exit_now", "flush", "write_line"]


standard_error = 2
"""Descriptor that lines go to; another one while what libraries write to 2 is held back."""


def write_line(line: str) -> None:
    """Writes to standard error, past Python's buffers, which another thread may hold."""
    start = "\n" if os.isatty(standard_error) else ""  # the line of a progress bar, or ^C
    with contextlib.suppress(OSError):
        os.write(standard_error, f"{start}{line}\n".encode(errors="backslashreplace"))


def end_process(number: int) -> None:
    """Ends the process at once, as after a signal of this number; see `exit_now`."""
    exit_now(128 + number)


def exit_now(status: int) -> NoReturn:
    """Ends the process at once; no `finally` runs, and no lock of another thread is waited for."""
    with contextlib.suppress(RuntimeError):  # no thread can be started at the very end
        # Another thread may hold the buffer, or nobody read the pipe: so it has half a second.
        flushing = threading.Thread(target=flush, daemon=True)
        flushing.start()
        flushing.join(0.5)
    _show_cursor()
    os._exit(status)


def flush() -> None:
    """Writes what Python still holds of the output; waits for a reader, without an error."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, RuntimeError, ValueError, AttributeError):
            stream.flush()


def _show_cursor() -> None:
    """Shows the cursor again, which a progress bar has hidden."""
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return
    for descriptor in (1, 2):
        if os.isatty(descriptor):
            with contextlib.suppress(OSError):
                os.write(descriptor, b"\x1b[?25h")
            return
