"""What is said of, and done with, all local devices of a runner."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxformer.memory import device_memory

__all__ = ["least_memory", "num_hosts", "one_at_a_time"]


def num_hosts(devices: Sequence[jax.Device]) -> int:
    """Number of hosts that some devices are on."""
    return len({device.process_index for device in devices})


def least_memory(devices: Sequence[jax.Device]) -> int:
    """Bytes that there are for each of a host's devices; virtual ones share the host's memory."""
    shared = len(devices) if devices[0].platform == "cpu" else 1
    return min(map(device_memory, devices)) // shared


def one_at_a_time(devices: Sequence[jax.Device]) -> Callable[[Any], Any]:
    """What is done with the result of a program, so that no two wait for each other.

    Virtual CPU devices share one pool of threads, in which a device at a collective waits for the
    others. Two programs in flight, such as two evaluation batches, can fill the pool with waiting
    devices: a deadlock. So on several of them every program is waited for.

    Args:
        devices: the local devices that it runs on.
    """
    if len(devices) > 1 and devices[0].platform == "cpu":
        return jax.block_until_ready
    return lambda result: result
