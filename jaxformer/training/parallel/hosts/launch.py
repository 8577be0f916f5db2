"""Start of the processes of a job."""

import contextlib
import dataclasses
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import jax
from jax._src.clusters import ClusterEnv  # detects what `initialize` would, without starting it

from jaxformer.errors import ConfigError
from jaxformer.stopping import ending
from jaxformer.storage import first_line
from jaxformer.training.parallel.hosts.watch import on_abort

# Kubernetes sets this in an indexed job. JAX's own check needs a package and queries the cluster.
_INDEXED_JOB = "JOB_COMPLETION_INDEX"
_SLACK = 10  # seconds by which JAX's own heartbeat timeout is longer than ours


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """How the processes of a job find each other if no cluster manager tells them; seconds."""

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    start_timeout: int = 300
    host_timeout: int = 60

    def __post_init__(self) -> None:
        three = {
            "--coordinator": self.coordinator, "--num-processes": self.num_processes,
            "--process-id": self.process_id,
        }  # fmt: skip
        missing = [flag for flag, value in three.items() if value is None]
        if missing and len(missing) < len(three):
            raise ConfigError(
                f"{', '.join(three)} must be given together, got no {' and no '.join(missing)}"
            )
        for flag, seconds in (
            ("--start-timeout", self.start_timeout), ("--host-timeout", self.host_timeout),
        ):  # fmt: skip
            if seconds < 5:
                raise ConfigError(f"{flag} must be at least 5 seconds, got {seconds}")
        if self.coordinator is None or self.num_processes is None or self.process_id is None:
            return
        host, _, port = self.coordinator.rpartition(":")
        try:
            host.encode("idna")  # as a name lookup does
        except UnicodeError:
            host = ""
        if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(
                "--coordinator must be HOST:PORT of the first process, the port from 1 to 65535, "
                f"got {self.coordinator!r}"
            )
        if self.num_processes < 1:
            raise ConfigError(f"--num-processes must be at least 1, got {self.num_processes}")
        if not 0 <= self.process_id < self.num_processes:
            raise ConfigError(
                f"--process-id must be from 0 to num_processes - 1 = {self.num_processes - 1}, "
                f"different in each process, got {self.process_id}"
            )


def start_hosts(launch: Launch) -> bool:
    """Connects this process with the others of its job, if any; call it before JAX starts.

    Without a coordinator, the job is a SLURM step, an indexed Kubernetes job (with the package
    `kubernetes`), a TPU pod, or another cluster that `jax.distributed.initialize` detects.
    """
    if launch.coordinator is not None:
        if launch.num_processes == 1:
            return False
        _require_reachable(launch)
        options: dict[str, Any] = {
            "coordinator_address": launch.coordinator, "num_processes": launch.num_processes,
            "process_id": launch.process_id, "cluster_detection_method": "deactivate",
        }  # fmt: skip
    else:
        if _cluster_size() < 2:
            return False
        options = {}
    # It would take over SIGTERM, and ignores SIGINT; `StopAgreement` replaces it.
    jax.config.update("jax_enable_preemption_service", False)
    _initialize(launch, options)
    return True


def _cluster_size() -> int:
    """Number of processes that the cluster started together; 1 without a cluster."""
    for cluster in ClusterEnv._cluster_types:  # in JAX's order
        if cluster.opt_in_only_method:
            continue
        if cluster.__name__ == "K8sCluster" and _INDEXED_JOB not in os.environ:
            continue
        try:
            if cluster.is_env_present():
                return int(cluster.get_process_count())
        except Exception as error:  # of variables, metadata servers or Kubernetes
            raise ConfigError(
                f"this seems to be a job of several hosts ({cluster.__name__}), but their number "
                f"cannot be found: {first_line(error)[:300]}; pass --coordinator, --num-processes "
                "and --process-id: for a single host, localhost:1234, 1 and 0"
            ) from None
    return 1


def _require_reachable(launch: Launch) -> None:
    """Checks the coordinator's address: JAX would end the process with a C++ stack trace."""
    assert launch.coordinator is not None
    host, _, port = launch.coordinator.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")  # around an IPv6 address
    if launch.process_id == 0:
        try:
            socket.create_server(("", int(port))).close()
        except OSError as error:
            raise ConfigError(
                f"--coordinator {launch.coordinator}: port {port} cannot be opened on this host: "
                f"{error.strerror}; choose another port, the same for all processes"
            ) from None
        return
    deadline = time.monotonic() + launch.start_timeout
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"--coordinator {launch.coordinator} does not answer within "
                    f"{launch.start_timeout} s ({error.strerror or error}); check that process 0 "
                    "runs there and that no firewall blocks it, or raise --start-timeout"
                ) from None
        time.sleep(0.2)


def _initialize(launch: Launch, options: dict[str, Any]) -> None:
    """Calls `jax.distributed.initialize`; prints one line and exits instead of an abort."""
    began = time.monotonic()

    def say_late() -> NoReturn:
        at = launch.coordinator
        shown = "this cluster" if at is None else f"--coordinator {at}"
        ending.write_line(
            f"jaxformer: error: the processes of {shown} have not all connected within "
            f"{time.monotonic() - began:.0f} s; check that each is started exactly once, with its "
            "own index, or raise --start-timeout"
        )
        ending.exit_now(2)

    with _quiet_standard_error(), on_abort(say_late):
        try:
            jax.distributed.initialize(
                **options,
                initialization_timeout=launch.start_timeout,
                heartbeat_timeout_seconds=launch.host_timeout + _SLACK,
                shutdown_timeout_seconds=launch.host_timeout,
            )
        except Exception as error:  # of JAX, or of the cluster manager
            raise ConfigError(
                f"the processes of this job cannot be connected: {first_line(error)[:300]}; check "
                "how they are launched, or pass --coordinator, --num-processes and --process-id"
            ) from None


@contextlib.contextmanager
def _quiet_standard_error() -> Iterator[None]:
    """Holds back C++ output to standard error until the end; an abort never prints it."""
    sys.stderr.flush()
    kept = ending.standard_error = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
            file.seek(0)
            os.write(kept, file.read())
        finally:
            os.dup2(kept, 2)
            ending.standard_error = 2
            os.close(kept)
