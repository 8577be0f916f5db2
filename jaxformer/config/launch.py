"""Launch of a training on several hosts: flags of each process, not keys of a config."""

import dataclasses
from collections.abc import Iterator

from jaxformer.config.checks import Config


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch(Config):
    """On several hosts: how the processes of a job find each other, and how long they wait.

    Args:
        coordinator: with SLURM, Kubernetes or a TPU pod: auto. Elsewhere: HOST:PORT of the first
            process (see docs/devices.md).
        num_processes: number of processes.
        process_id: number of this process, from 0.
        start_timeout: seconds to wait for the other processes at the start.
        host_timeout: seconds after which a process that does not answer counts as lost.
    """

    coordinator: str | None = dataclasses.field(default=None, metadata={"metavar": "HOST:PORT"})
    num_processes: int | None = None
    process_id: int | None = None
    start_timeout: int = 300
    host_timeout: int = 60

    def _mistakes(self) -> Iterator[str]:
        for name, seconds in (("start", self.start_timeout), ("host", self.host_timeout)):
            if seconds < 5:
                yield f"--{name}-timeout must be at least 5 seconds, got {seconds}"
        values = {
            "--coordinator": self.coordinator, "--num-processes": self.num_processes,
            "--process-id": self.process_id,
        }  # fmt: skip
        named = [flag for flag, value in values.items() if value is not None]
        if not named or (self.coordinator == "auto" and len(named) == 1):
            return
        if len(named) < 3 or self.coordinator == "auto":
            yield (
                f"{', '.join(values)} must be given together, or --coordinator auto alone; got "
                + " and ".join(named)
            )
        host, _, port = str(self.coordinator).rpartition(":")
        if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
            yield (
                "--coordinator must be HOST:PORT of the first process, the port from 1 to 65535, "
                f"or auto, got {self.coordinator!r}"
            )
        if not 0 <= (self.process_id or 0) < (self.num_processes or 0):
            yield (
                "--process-id must be from 0 to --num-processes - 1, different in each process, "
                f"got {self.process_id} of {self.num_processes}"
            )
