"""The command line. Commands import JAX only when they run, so that --help is fast."""

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from jaxformer import __version__, errors
from jaxformer.cli.commands import (
    Command,
    Configs,
    Generate,
    Plot,
    Predict,
    Train,
    Translate,
    Verify,
)
from jaxformer.cli.configs import configs
from jaxformer.cli.inference import generate, predict, translate
from jaxformer.cli.parsing import parse
from jaxformer.cli.plot import plot
from jaxformer.cli.train import evaluate, train
from jaxformer.cli.verify import verify
from jaxformer.cli.warning_lines import checkpoint_warnings_as_lines

__all__ = ["main"]


@checkpoint_warnings_as_lines()
def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; returns only after a success.

    Args:
        arguments: words after the program's name; those of the process when not given.

    Raises:
        SystemExit: with status 2 for a user's mistake, which gets one line on standard error;
            with 128 + its number for a signal.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words == ["--version"]:
            print(f"jaxformer {__version__}")
            return
        # `train CONFIG` takes flags for that config's values, which `Command` does not know.
        if len(words) >= 2 and words[0] == "train" and not words[1].startswith("-"):
            train(words[1], words[2:])
            return
        command = parse(
            Command,
            args=words,
            prog="jaxformer",
            description="The Transformer as a JAX library: train it, use it, look at it. "
            "jaxformer --version prints the version.",
        )
        if isinstance(command, Configs):
            configs(command)
        elif isinstance(command, Train):
            train(command.config, [])
        elif isinstance(command, Generate):
            generate(command)
        elif isinstance(command, Translate):
            translate(command)
        elif isinstance(command, Predict):
            predict(command)
        elif isinstance(command, Plot):
            plot(command)
        elif isinstance(command, Verify):
            verify(command)
        else:
            evaluate(command)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed it; Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except (ValueError, OSError) as error:
        _exit_for_mistake(error)


def _exit_for_mistake(error: Exception) -> NoReturn:
    """Exits with one line for a user's mistake; raises any other error again."""
    message = str(error)
    if isinstance(error, UnicodeEncodeError):
        print(
            f"jaxformer: error: standard output cannot show {error.object[error.start]!a} in its "
            f"encoding, {error.encoding}; set PYTHONIOENCODING=utf-8",
            file=sys.stderr,
        )
        sys.exit(2)
    if isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: {error.strerror}"
    elif not isinstance(error, tuple(getattr(errors, name) for name in errors.__all__)):
        raise error
    print(f"jaxformer: error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
