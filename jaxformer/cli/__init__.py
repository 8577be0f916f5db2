"""The command line. Commands import JAX only when they run, so that --help is fast."""

import signal
import sys
from collections.abc import Sequence
from typing import Any

from jaxformer import __version__, stopping
from jaxformer.cli.commands import (
    Configs,
    Convert,
    Evaluate,
    Generate,
    Predict,
    Translate,
    Verify,
    all_commands,
)
from jaxformer.cli.configs import configs
from jaxformer.cli.convert import convert
from jaxformer.cli.inference import generate, predict, translate
from jaxformer.cli.inspection import inspect
from jaxformer.cli.mistakes import exit_for_mistake
from jaxformer.cli.parsing import parse
from jaxformer.cli.plan import plan
from jaxformer.cli.plot import plot
from jaxformer.cli.plot_commands import Plot
from jaxformer.cli.prepare import prepare
from jaxformer.cli.sweep import sweep
from jaxformer.cli.terminal import drop_output, flush, open_missing_streams, show, warnings_as_lines
from jaxformer.cli.train import evaluate, train
from jaxformer.cli.verify import verify

__all__ = ["main"]

_COMMANDS: dict[type, Any] = {
    Configs: configs, Generate: generate, Translate: translate, Predict: predict,
    Evaluate: evaluate, Convert: convert, Verify: verify, Plot: plot,
}  # fmt: skip
# Commands that also take the keys of a config as flags, which `all_commands` does not know.
_WITH_OVERRIDES = {
    "train": train,
    "sweep": sweep,
    "prepare": prepare,
    "plan": plan,
    "inspect": inspect,
}


@warnings_as_lines()
def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; returns only after a success.

    Args:
        arguments: words after the program's name; default: those of this process.

    Raises:
        SystemExit: with status 2 for a user's mistake, or 1 for a failure of the machine, such as a
            full disk; both print one line on standard error. With 128 + its number for a signal.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    open_missing_streams()
    try:
        if words == ["--version"]:
            show(f"jaxformer {__version__}")
            flush()
            return
        if words[1:] not in ([], ["-h"], ["--help"]) and words[0] in _WITH_OVERRIDES:
            _WITH_OVERRIDES[words[0]](words[1:])
            flush()
            return
        command = parse(
            all_commands(brief=words in ([], ["-h"], ["--help"])),
            args=words,
            prog="jaxformer",
            description="Train, use and inspect Transformers in JAX. For the options of a command: "
            "jaxformer COMMAND --help. For the version: jaxformer --version",
        )
        _COMMANDS[type(command)](command)
        flush()  # here, so that a failure to write is reported
    except KeyboardInterrupt:
        print(file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        drop_output(sys.stdout)  # its reader, such as `head`, has closed it
        sys.exit(128 + signal.SIGPIPE)
    except (ValueError, OSError, MemoryError, RuntimeError, AssertionError) as error:
        if stopping.is_cut_short():
            raise  # the process reports the signal
        exit_for_mistake(error)
