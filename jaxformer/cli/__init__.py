"""The command line. Commands import JAX only when they run, so that --help is fast."""

import signal
import sys
from collections.abc import Sequence

from jaxformer import __version__
from jaxformer.cli.commands import COMMANDS, TAKE_WORDS, all_commands
from jaxformer.cli.parsing import parse, refuse_repeated_flags
from jaxformer.cli.terminal import (
    drop_output,
    exit_for,
    flush,
    show,
    warnings_as_lines,
)

__all__ = ["main"]

_NO_WORDS: tuple[list[str], ...] = ([], ["-h"], ["--help"])


@warnings_as_lines()
def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; returns only after a success.

    Args:
        arguments: words after the program's name; default: those of this process.

    Raises:
        SystemExit: with status 2 for a user's mistake, or 1 for a failure of the machine or of a
            library; both print one line on standard error. With 128 + its number for a signal.
            With the flag `--traceback`, the error itself is raised.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if shows_traceback := "--traceback" in words:
        words.remove("--traceback")
    try:
        refuse_repeated_flags(words)
        if words == ["--version"]:
            show(f"jaxformer {__version__}")
        elif words[1:] not in _NO_WORDS and words[0] in TAKE_WORDS:
            TAKE_WORDS[words[0]](words[1:])
        else:
            command = parse(
                all_commands(brief=words in _NO_WORDS),
                args=words,
                prog="jaxformer",
                description="Train, use and inspect Transformers in JAX. For the options of a "
                "command: jaxformer COMMAND --help. For the version: jaxformer --version. To see "
                "where an error comes from, add --traceback.",
            )
            COMMANDS[type(command)](command)
        flush()  # here, so that a failure to write is reported
    except BrokenPipeError:
        drop_output(sys.stdout)  # its reader, such as `head`, has closed it
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:
        if shows_traceback:
            raise
        exit_for(error)
