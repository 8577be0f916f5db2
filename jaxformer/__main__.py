"""The process of the command line: signals are caught before anything else is imported."""

import sys

from jaxformer import stopping

__all__ = ["main"]


def main() -> None:
    """Runs the command line in a process of its own.

    Raises:
        SystemExit: as `jaxformer.cli.main` does; with 128 + its number for a signal, in any phase.
    """
    signals = stopping.install()
    if sys.argv[1:2] == ["train"]:
        signals.note = stopping.saved_note()
    try:
        try:
            signals.cut_short(_run_command)
        finally:
            signals.leave()
    except BaseException as error:
        signals.leave()
        # Whatever it is: a library that was cut short may have made another error of it.
        if signals.received is None or isinstance(error, SystemExit):
            raise
        signals.say(signals.received)
        sys.exit(128 + signals.received)


def _run_command() -> None:
    from jaxformer.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
