"""Errors of the command line: one line and an exit status."""

import contextlib
import errno
import os
import sys
import traceback
from typing import NoReturn

from jaxformer import errors
from jaxformer.cli.terminal import drop_output, flush, show

__all__ = ["exit_for_mistake", "message_and_status"]

_MISTAKE, _MACHINE = 2, 1  # exit statuses
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE)
_LONGEST = 2000  # characters of a message; its values can have any length


def exit_for_mistake(error: Exception) -> NoReturn:
    """Prints an error as one line on standard error, and exits.

    Raises:
        SystemExit: with status 2 for a user's mistake, 1 for a failure of the machine.
        Exception: the error itself, if it is neither.
    """
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
