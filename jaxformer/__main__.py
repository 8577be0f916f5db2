"""Entry point of the command line; installs signal handlers before any other import."""

import importlib.util
import signal
import sys


def main() -> None:
    """Runs the command line as its own process.

    Raises:
        SystemExit: as `jaxformer.cli.main` does; with 128 + the signal number for a signal.
    """
    if importlib.util.find_spec("fcntl") is None:  # on Windows
        sys.exit(
            "jaxformer: error: the commands need Linux or macOS; on Windows, use WSL, or import "
            "jaxformer.functional, jaxformer.models and jaxformer.testing, which work there"
        )
    # Until the handlers are installed, SIGINT ends the process like SIGTERM: without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from jaxformer import stopping
    from jaxformer.memory import keep_freed_memory

    if sys.argv[1:2] in (["train"], ["sweep"]):
        keep_freed_memory()  # before threads start, which would get memory of their own
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
            # Any error: an interrupted library may have turned the signal into another one.
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
