"""The command line. Commands import JAX only when they run, so that --help is fast."""

import os
import signal
import sys
from collections.abc import Sequence

from jaxformer import __version__
from jaxformer.cli.commands import COMMANDS, GROUPS
from jaxformer.cli.parsing import Command, show_commands, summary
from jaxformer.cli.terminal import exit_for, log_as_lines, show, warnings_as_lines
from jaxformer.config.checks import suggestion
from jaxformer.errors import ConfigError

__all__ = ["main"]

_HELP = ("-h", "--help", "--help-all")
_TEXT = """Train, use and inspect Transformers in JAX. For the options of a command: jaxformer
COMMAND --help. For the version: jaxformer --version. To see where an error comes from, add
--traceback."""


@warnings_as_lines()
@log_as_lines()
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
        _run(words)
        sys.stdout.flush()  # here, so that a failure to write is reported
    except BrokenPipeError:  # its reader, such as `head`, has closed it; Python flushes it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:
        if shows_traceback:
            raise
        exit_for(error)


def _run(words: Sequence[str]) -> None:
    """Runs the command that the first word names, or the first two."""
    group = words[0] if words and words[0] in GROUPS else ""
    prog, typed = f"jaxformer {group}".strip(), words[1:] if group else words
    names = {name.split()[-1]: name for name in COMMANDS if name.rpartition(" ")[0] == group}
    lines = {word: summary(COMMANDS[name]).partition("\n")[0] for word, name in names.items()}
    if not group:
        lines |= {name: text.partition("\n")[0] for name, text in GROUPS.items()}
    if words == ["--version"]:
        show(f"jaxformer {__version__}")
    elif not words or (len(typed) == 1 and typed[0] in _HELP):
        show_commands(lines, prog=prog, text=GROUPS.get(group, _TEXT))
    elif typed and typed[0] in names:
        _run_command(names[typed[0]], typed[1:])
    else:
        got = f"{typed[0]!r}{suggestion(typed[0], lines)}" if typed else "none"
        raise ConfigError(
            f"the command of {prog} must be one of {', '.join(lines)}, got {got} (see {prog} "
            "--help)"
        )


def _run_command(name: str, words: Sequence[str]) -> None:
    command = Command.of(name, COMMANDS[name])
    end = words.index("--") if "--" in words else len(words)
    if {*words[:end]} & {*_HELP}:
        command.show_help(shows_all="--help-all" in words)
    else:
        command.function(**command.parse(words))
