"""Short texts between the processes of a job: without devices, and with a time limit."""

import collections
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax._src import distributed  # JAX has no public API for the job's key-value store

from jaxformer import errors
from jaxformer.errors import ConfigError, TrainingError

_PATIENCE = 1800.0  # seconds to wait for slower processes, which may be reading data
_SLICE = 500  # milliseconds per wait; Python handles signals in between
_MOST_NAMED = 3  # differences, or processes, that a message names

_calls: collections.Counter[str] = collections.Counter()


def is_first_process() -> bool:
    """Whether this is the first process, which writes the files for all."""
    return jax.process_index() == 0


def this_process() -> int:
    """Index of this process in its job, from 0."""
    return jax.process_index()


def num_processes() -> int:
    """Number of processes in the job; 1 without a job."""
    return jax.process_count()


def store() -> Any:
    """The job's key-value store, which the first process serves."""
    return distributed.global_state.client


def try_get(key: str) -> str | None:
    """First value under a key of the store, if any."""
    found: list[tuple[str, str]] = store().key_value_dir_get(key + "/")
    return min(found)[1] if found else None


def _next_key(name: str) -> str:
    """Key of this call, the same in every process, because all make the same calls."""
    _calls[name] += 1
    return f"jaxformer/{name}/{_calls[name]}"


def gather_texts(name: str, text: str) -> list[str]:
    """Gathers a text from each process, in order; every process must call this with this name."""
    count = jax.process_count()
    if count == 1:
        return [text]
    key = _next_key(name)
    store().key_value_set(f"{key}/{jax.process_index()}", text)
    deadline = time.monotonic() + _PATIENCE
    return [_wait_for(f"{key}/{process}", process, name, deadline) for process in range(count)]


def _wait_for(key: str, process: int, name: str, deadline: float) -> str:
    while True:
        try:
            return str(store().blocking_key_value_get(key, _SLICE))
        except jax.errors.JaxRuntimeError as error:
            if not str(error).startswith("DEADLINE_EXCEEDED"):
                raise
        if time.monotonic() > deadline:
            raise TrainingError(
                f"process {process} has not reached {name!r} within {_PATIENCE:.0f} s after this "
                "one; read its output, then start all processes again"
            )


def in_first_process(name: str, function: Callable[[], object]) -> None:
    """Calls a function in the first process, while the others wait.

    If it raises a class of `jaxformer.errors`, the others raise it, too; StorageError for an
    OSError. `name` is its purpose.
    """
    if jax.process_count() == 1:
        function()
        return
    key = _next_key(name)
    if jax.process_index():
        kind, _, message = _wait_for(key, 0, name, time.monotonic() + _PATIENCE).partition(" ")
        if kind:
            raise getattr(errors, kind)(f"process 0 cannot {name}: {message}")
        return
    try:
        function()
    except ValueError as error:
        if type(error).__name__ in errors.__all__:
            store().key_value_set(key, f"{type(error).__name__} {error}")
        raise
    except OSError as error:  # such as a bucket that does not answer
        store().key_value_set(key, f"StorageError {error.filename}: {error.strerror}")
        raise
    store().key_value_set(key, "")


def require_same(name: str, values: Mapping[str, object]) -> None:
    """Raises ConfigError in all processes if their values differ; every process must call this."""
    own = {key: str(value) for key, value in values.items()}
    texts = gather_texts(name, json.dumps({"host": socket.gethostname(), "values": own}))
    told = [json.loads(text) for text in texts]
    keys = list(dict.fromkeys(key for one in told for key in one["values"]))
    hosts = [one["host"] for one in told]
    differences = [
        f"{key} is {_who_has_what([one['values'].get(key) for one in told], hosts)}"
        for key in keys
        if len({one["values"].get(key) for one in told}) > 1
    ]
    if differences:
        more = f"; and {len(differences) - _MOST_NAMED} more" * (len(differences) > _MOST_NAMED)
        raise ConfigError(
            f"all hosts must have the same {name}: {'; '.join(differences[:_MOST_NAMED])}{more}; "
            "make them equal, then start all processes again"
        )


def _who_has_what(values: Sequence[str | None], hosts: Sequence[str]) -> str:
    """Text such as "3.12 on process 0 (a), 1 (b), 3.13 on process 2 (c)"."""
    groups: dict[str | None, list[str]] = {}
    for process, (value, host) in enumerate(zip(values, hosts, strict=True)):
        groups.setdefault(value, []).append(f"{process} ({host})")
    texts = []
    for value, members in groups.items():
        named = ", ".join(members[:_MOST_NAMED])
        more = f" and {len(members) - _MOST_NAMED} more" * (len(members) > _MOST_NAMED)
        texts.append(f"{'not set' if value is None else value} on process {named}{more}")
    return ", ".join(texts)
