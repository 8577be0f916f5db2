"""Entry point of the command line."""

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
    from jaxformer.memory import keep_freed_memory

    if sys.argv[1:2] in (["train"], ["sweep"]):
        keep_freed_memory()  # before threads start, which would get memory of their own
    try:
        from jaxformer.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        print(file=sys.stderr)  # after the ^C that a terminal shows
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
