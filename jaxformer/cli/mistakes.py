"""How the command line ends with an error: one line, and a status."""

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
_LONGEST = 2000  # characters of a message, whose values can be of any length


def exit_for_mistake(error: Exception) -> NoReturn:
    """Prints an error in one line on standard error, and exits.

    Raises:
        SystemExit: with status 2 for a user's mistake, 1 for what the machine could not do.
        Exception: the error itself, where it is neither.
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
    """What is said of an error, and the exit status; raises it again where it is a defect."""
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
            f"the memory does not suffice{f' ({said})' if said else ''}; make the model, the "
            "batch, the text or the search smaller"
        ), _MACHINE
    frames = traceback.extract_tb(error.__traceback__)
    if any(frame.filename.endswith("xla_bridge.py") for frame in frames):  # as JAX starts
        said = (str(error).splitlines() or ["it has no such platform"])[0]
        return (
            f"JAX cannot start with JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}: {said}; "
            "install what the platform needs, such as jaxformer[tpu] or jaxformer[cuda13], or "
            "unset JAX_PLATFORMS"
        ), _MISTAKE
    raise error


def _of_system(error: OSError) -> str:
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    with contextlib.suppress(FileNotFoundError):
        os.getcwd()
        return error.strerror or str(error)
    return "the working folder has been deleted; change into one that is there"
