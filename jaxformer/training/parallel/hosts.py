"""The processes of a job: how they start together, and the virtual devices of a CPU."""

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
from jax._src.clusters import ClusterEnv  # which says what `initialize` would find, without it

from jaxformer.errors import ConfigError
from jaxformer.stopping import ending
from jaxformer.training.parallel.aborts import on_abort

__all__ = [
    "Launch",
    "is_first_process",
    "num_processes",
    "split_cpu",
    "start_hosts",
    "this_process",
]

# In these, JAX's question whether it is in Kubernetes needs a package and asks the cluster.
_INDEXED_JOB = "JOB_COMPLETION_INDEX"
_SLACK = 10  # seconds that JAX's own watch over the processes is slower than ours


def is_first_process() -> bool:
    """Tells whether this is the process that writes files for all."""
    return jax.process_index() == 0


def this_process() -> int:
    """Number of this process in its job, from 0."""
    return jax.process_index()


def num_processes() -> int:
    """Number of processes in the job; 1 where there is none."""
    return jax.process_count()


def split_cpu(count: int) -> None:
    """Splits this machine's CPU into `count` virtual devices; call it before JAX starts.

    Args:
        count: number of virtual devices.

    Raises:
        ConfigError: JAX has already started with another number.
    """
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # JAX has started; that is no error with the same number
        if len(jax.local_devices(backend="cpu")) != count:
            raise ConfigError(
                f"training.cpu_devices={count} must be set before JAX starts, which has "
                f"{len(jax.local_devices(backend='cpu'))} CPU devices already"
            ) from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """How the processes of a job find each other, where no cluster says so.

    Args:
        coordinator: "HOST:PORT" of the first process, which listens there.
        num_processes: number of processes in all.
        process_id: number of this one, from 0.
        start_timeout: seconds that all have to come.
        host_timeout: seconds without a sign of life after which a process is taken for dead.

    Raises:
        ConfigError: only some of the first three are given, or one is impossible.

    Example:
        >>> Launch(coordinator="10.0.0.1:1234", num_processes=2, process_id=0).is_explicit
        True
    """

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
            host.encode("idna")  # as looking it up does
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
                f"each in one process, got {self.process_id}"
            )

    @property
    def is_explicit(self) -> bool:
        """Whether it says where the processes are; else the cluster does, if there is one."""
        return self.coordinator is not None


def start_hosts(launch: Launch) -> bool:
    """Connects this process with the others of its job, if it has any; before JAX starts.

    The others are those of the launch; without one those of a SLURM step, an indexed job in
    Kubernetes (with the package `kubernetes`), a TPU pod, or another cluster that
    `jax.distributed.initialize` knows, where that has more than one process.

    Args:
        launch: how they find each other.

    Returns:
        Whether there are several.

    Raises:
        ConfigError: the others cannot be found, or do not come in time.
    """
    if launch.is_explicit:
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
    # It would take SIGTERM away, and knows no SIGINT; `StopAgreement` is in its place.
    jax.config.update("jax_enable_preemption_service", False)
    _initialize(launch, options)
    return True


def _cluster_size() -> int:
    """Number of processes that the cluster has started together; 1 where there is none."""
    for cluster in ClusterEnv._cluster_types:  # in the order in which JAX asks
        if cluster.opt_in_only_method:
            continue
        if cluster.__name__ == "K8sCluster" and _INDEXED_JOB not in os.environ:
            continue
        try:
            if cluster.is_env_present():
                return int(cluster.get_process_count())
        except Exception as error:  # of what it asks: variables, metadata servers, Kubernetes
            raise ConfigError(
                f"this seems to be a job of several hosts ({cluster.__name__}), whose number "
                f"cannot be found: {_first_line(error)}; give --coordinator, --num-processes and "
                "--process-id, which for one host alone are localhost:1234, 1 and 0"
            ) from None
    return 1


def _require_reachable(launch: Launch) -> None:
    """Checks the address of a launch, since JAX would end the process with a trace of C++."""
    assert launch.coordinator is not None
    host, _, port = launch.coordinator.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")  # of IPv6
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
                    "is started there, and that no firewall is between, or raise --start-timeout"
                ) from None
        time.sleep(0.2)


def _initialize(launch: Launch, options: dict[str, Any]) -> None:
    """Calls `jax.distributed.initialize`; ends the process with one line where that would abort."""
    began = time.monotonic()

    def say_late() -> NoReturn:
        shown = f"--coordinator {launch.coordinator}" if launch.is_explicit else "this cluster"
        ending.write_line(
            f"jaxformer: error: the processes of {shown} have not all come within "
            f"{time.monotonic() - began:.0f} s; check that each is started, once, with its own "
            "number, or raise --start-timeout"
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
        except Exception as error:  # of JAX, or of the cluster that it asks
            raise ConfigError(
                f"the processes of this job cannot be connected: {_first_line(error)}; check how "
                "they are launched, or give --coordinator, --num-processes and --process-id"
            ) from None


@contextlib.contextmanager
def _quiet_standard_error() -> Iterator[None]:
    """Holds back what C++ writes to standard error until the end, which an abort is not."""
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


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
