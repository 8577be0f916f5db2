"""Flags for a launch on several hosts."""

from typing import Any

# Not keys of the config, because the config is the same in all processes. Names and types are
# those of `jaxformer.training.parallel.Launch`.
LAUNCH_FLAGS: dict[str, type] = {
    "--coordinator": str, "--num-processes": int, "--process-id": int, "--start-timeout": int,
    "--host-timeout": int,
}  # fmt: skip

LAUNCH_HELP = (
    "On several hosts: with SLURM, Kubernetes or a TPU pod, --coordinator auto. Elsewhere, give "
    "each process --coordinator HOST:PORT (of the first process), --num-processes N and "
    "--process-id I. --start-timeout and --host-timeout are in seconds (docs/devices.md)."
)


def join_hosts(launch: dict[str, Any]) -> bool:
    """Connects this process with the others of its job; returns whether it is the first one."""
    from jaxformer.training.parallel import Launch, is_first_process, start_hosts

    start_hosts(Launch(**launch))
    return launch.get("coordinator") is None or is_first_process()
