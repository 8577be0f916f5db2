"""Helpers for the devices of a runner."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxformer.memory import device_memory

__all__ = ["least_memory", "num_hosts", "one_at_a_time"]


def num_hosts(devices: Sequence[jax.Device]) -> int:
    """Number of hosts that the devices are on."""
    return len({device.process_index for device in devices})


def least_memory(devices: Sequence[jax.Device]) -> int:
    """Bytes of memory per device of a host; virtual CPU devices share the host's memory."""
    shared = len(devices) if devices[0].platform == "cpu" else 1
    return min(map(device_memory, devices)) // shared


def one_at_a_time(devices: Sequence[jax.Device]) -> Callable[[Any], Any]:
    """Function to call on each program's result; it blocks if programs could deadlock.

    Virtual CPU devices share one thread pool, where a device at a collective waits for the others.
    Two programs in flight, such as two evaluation batches, can fill the pool with waiting devices:
    a deadlock. So with several such devices, each program must finish before the next.
    """
    if len(devices) > 1 and devices[0].platform == "cpu":
        return jax.block_until_ready
    return lambda result: result
