"""The processes of a job on several hosts: their start, what they agree on, and where they stop."""

import itertools
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxformer.config.training import Launch
from jaxformer.errors import ConfigError, TrainingError

_places = itertools.count(1)


def start_hosts(launch: Launch) -> None:
    """Connects this process with the others of its job, if any; call it before JAX starts."""
    if launch.coordinator is None:
        return
    addresses: dict[str, Any] = {}  # with "auto", JAX knows them, such as those of a SLURM step
    if launch.coordinator != "auto":
        addresses = {
            "coordinator_address": launch.coordinator, "num_processes": launch.num_processes,
            "process_id": launch.process_id, "cluster_detection_method": "deactivate",
        }  # fmt: skip
    jax.distributed.initialize(
        **addresses,
        initialization_timeout=launch.start_timeout,
        heartbeat_timeout_seconds=launch.host_timeout,
        shutdown_timeout_seconds=launch.host_timeout,
    )


def is_first_process() -> bool:
    """Whether this is the first process, which writes the files for all."""
    return jax.process_index() == 0


def this_process() -> int:
    """Index of this process in its job, from 0."""
    return jax.process_index()


def num_processes() -> int:
    """Number of processes in the job; 1 without a job."""
    return jax.process_count()


def is_stop_reached() -> bool:
    """Whether to stop here, after a SIGTERM to any process; all must ask at the same places."""
    return multihost_utils.reached_preemption_sync_point(next(_places))


def from_first_process(number: int) -> int:
    """The number that the first process passes; every process must call this."""
    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))


def gather_texts(text: str) -> list[str]:
    """Gathers a text from each process, in order; every process must call this."""
    if jax.process_count() == 1:
        return [text]
    content = np.frombuffer(text.encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.int32(content.size))
    padded = np.pad(content, (0, max(1, int(sizes.max())) - content.size))
    rows = multihost_utils.process_allgather(padded)
    return [row[:size].tobytes().decode() for row, size in zip(rows, sizes, strict=True)]


def in_first_process(purpose: str, function: Callable[[], object]) -> None:
    """Calls a function in the first process, while the others wait; if it fails, all do."""
    error: Exception | None = None
    if is_first_process():
        try:
            function()
        except Exception as failure:
            error = failure
    message = gather_texts("" if error is None else f"{error} ({type(error).__name__})")[0]
    if error is not None:
        raise error
    if message:
        raise TrainingError(f"process 0 cannot {purpose}: {message}")


def require_same(name: str, values: Mapping[str, object]) -> None:
    """Raises ConfigError in all processes if their values differ; every process must call this."""
    texts = {key: str(value) for key, value in values.items()}
    gathered = gather_texts(json.dumps({"host": socket.gethostname(), "values": texts}))
    processes = [json.loads(text) for text in gathered]
    differences = []
    for key in dict.fromkeys(key for process in processes for key in process["values"]):
        first_places: dict[str, str] = {}  # of each value
        for number, process in enumerate(processes):
            value = process["values"].get(key, "not set")
            first_places.setdefault(value, f"process {number} ({process['host']})")
        if len(first_places) > 1:
            places = (f"{value} on {place}" for value, place in first_places.items())
            differences.append(f"{key} is {', '.join(places)}")
    if differences:
        raise ConfigError(
            f"all hosts must have the same {name}: {'; '.join(differences)}; make them equal, then "
            "start all processes again"
        )
