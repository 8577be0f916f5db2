"""Last line and exit of a process that a signal ends, whatever locks other threads hold."""

import contextlib
import os
import sys
import threading
from typing import NoReturn

standard_error = 2
"""Descriptor for lines; a different one while the libraries' output to 2 is held back."""


def write_line(line: str) -> None:
    """Writes to standard error without Python's buffers, which another thread may have locked."""
    start = "\n" if os.isatty(standard_error) else ""  # ends the line of a progress bar or ^C
    with contextlib.suppress(OSError):
        os.write(standard_error, f"{start}{line}\n".encode(errors="backslashreplace"))


def exit_now(status: int) -> NoReturn:
    """Ends the process at once: runs no `finally`, and waits for no lock of another thread."""
    with contextlib.suppress(RuntimeError):  # at the very end, no thread can be started
        # Half a second at most: another thread may lock the buffer, or nobody may read the pipe.
        flushing = threading.Thread(target=flush, daemon=True)
        flushing.start()
        flushing.join(0.5)
    _show_cursor()
    os._exit(status)


def flush() -> None:
    """Flushes Python's output; may wait for a reader, and ignores errors."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, RuntimeError, ValueError, AttributeError):
            stream.flush()


def _show_cursor() -> None:
    """Shows the cursor that a progress bar has hidden."""
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return
    for descriptor in (1, 2):
        if os.isatty(descriptor):
            with contextlib.suppress(OSError):
                os.write(descriptor, b"\x1b[?25h")
            return
