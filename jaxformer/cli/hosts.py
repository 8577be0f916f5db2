"""Flags for a launch on several hosts; their processes end together."""

import atexit
import contextlib
import pathlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jaxformer import stopping
from jaxformer.cli.terminal import message_and_status

if TYPE_CHECKING:
    from jaxformer.training.parallel import HostWatch

# Not keys of the config, because the config is the same in all processes. Names and types are
# those of `jaxformer.training.parallel.Launch`.
LAUNCH_FLAGS: dict[str, type] = {
    "--coordinator": str, "--num-processes": int, "--process-id": int, "--start-timeout": int,
    "--host-timeout": int,
}  # fmt: skip

LAUNCH_HELP = (
    "On several hosts: SLURM, Kubernetes and TPU pods are detected. Elsewhere, give each process "
    "--coordinator HOST:PORT (of the first process), --num-processes N and --process-id I. "
    "--start-timeout and --host-timeout (seconds) work everywhere (docs/devices.md)."
)


@contextlib.contextmanager
def several_hosts(launch: dict[str, Any], folder: pathlib.Path) -> Iterator[bool]:
    """Context for work that all processes of a job end together; yields whether this one prints."""
    from jaxformer.training.parallel import HostWatch, Launch, is_first_process, start_hosts

    launched = Launch(**launch)
    if not start_hosts(launched):
        yield True
        return
    watch = HostWatch(launched.host_timeout, lambda: _saved(folder))
    # Runs before JAX's exit handler, which would wait for failed processes, or for this one.
    atexit.register(watch.leave)
    try:
        yield is_first_process()
        watch.finish()
    except SystemExit:  # after a signal, which has stopped all processes
        with stopping.finishing():  # waiting for the other processes is not being stuck
            watch.finish()
        raise
    except BaseException as error:
        _fail(watch, error)
        raise


def _fail(watch: "HostWatch", error: BaseException) -> None:
    """Tells the other processes of an error, unless the end of one of them caused it."""
    if isinstance(error, stopping.Stopped):
        watch.fail(128 + error.signal, f"stopped by {error.signal.name}")
        return
    known = None
    if isinstance(error, Exception):
        with contextlib.suppress(Exception):  # `message_and_status` re-raises unexpected errors
            known = message_and_status(error)
    # A broken connection to another process also makes a save fail.
    broken = re.search("[Cc]onnection|peer", known[0]) if known else isinstance(error, RuntimeError)
    if broken and not stopping.is_cut_short():
        watch.wait_for_verdict()
    message, status = known or (f"{type(error).__name__}: {error}", 1)
    watch.fail(status, " ".join(message.split()))


def _saved(folder: pathlib.Path) -> str:
    from jaxformer.training.checkpoints import checkpoint_steps

    steps: list[int] = []
    with contextlib.suppress(OSError):
        steps = checkpoint_steps(folder / "checkpoints")
    if not steps:
        return "no step of the run is saved"
    return (
        f"the run is saved up to step {steps[-1]} in {folder}; to resume it, repeat the command "
        "on all hosts"
    )
