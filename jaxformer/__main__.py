"""The process of the command line: signals are caught before anything else is imported."""

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line in a process of its own.

    Raises:
        SystemExit: as `jaxformer.cli.main` does; with 128 + its number for a signal, in any phase.
    """
    # Until they are caught, SIGINT ends the process as SIGTERM does: without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from jaxformer import stopping

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
        if signals.received is None:
            raise
        status = 128 + signals.received
        if not isinstance(error, SystemExit):
            # Whatever it is: a library that was cut short may have made another error of it.
            signals.say(signals.received)
        elif error.code != status:
            raise
        signals.exit_status = status
        sys.exit(status)


def _run_command() -> None:
    from jaxformer.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
