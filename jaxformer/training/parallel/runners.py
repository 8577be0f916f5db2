"""Chooses the runner of a config, for training and for inference; virtual CPU devices."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax

from jaxformer.config import MESH_AXES, MeshConfig
from jaxformer.errors import ConfigError
from jaxformer.training.parallel.mesh import MeshRunner
from jaxformer.training.parallel.pmap import PmapRunner
from jaxformer.training.parallel.runner import Runner, SingleRunner, num_bytes, num_hosts


def make_runner(
    kind: str = "auto",
    *,
    mesh: MeshConfig | None = None,
    devices: int | None = None,
    batch_size: int | None = None,
    accumulate_steps: int = 1,
) -> Runner:
    """Creates the runner of a config.

    Args:
        kind: "pmap", "mesh", "single", or "auto": mesh if one is given or there are several hosts,
            else pmap.
        mesh: axes of the mesh; the defaults count as not given.
        devices: number of local devices to use; all when None.
        batch_size: global rows per step, to check that they divide over devices and micro-batches;
            None if the number varies: then each batch is checked.
        accumulate_steps: micro-batches per step.

    Raises:
        ConfigError: there are not enough devices, the batch does not divide, or the runner is for
            one host and there are several.

    Example:
        >>> make_runner("single", batch_size=4, accumulate_steps=2).num_devices
        1
    """
    available, hosts = jax.local_device_count(), jax.process_count()
    if devices is not None and devices > available:
        raise ConfigError(f"training.devices={devices}, but this machine has {available}")
    if devices is not None and hosts > 1:
        raise ConfigError(f"training.devices={devices} is for one host, got {hosts}; remove it")
    if hosts > 1 and kind in ("pmap", "single"):
        raise ConfigError(
            f"training.runner={kind!r} is for one host, got {hosts} processes; choose 'mesh', "
            "or remove the key"
        )
    used = jax.devices() if devices is None else jax.local_devices()[:devices]
    runner = runner_on(used, kind, mesh)
    if batch_size is not None:
        check_batch_size(batch_size, runner.num_shards, accumulate_steps)
    return runner


def check_batch_size(batch_size: int, num_shards: int, accumulate_steps: int) -> None:
    """Raises ConfigError unless the rows of a batch divide over devices and micro-batches."""
    if batch_size % (num_shards * accumulate_steps):
        raise ConfigError(
            f"training.batch_size must be a multiple of devices * accumulate_steps = {num_shards} "
            f"* {accumulate_steps}, got {batch_size}, where devices are those that split the rows "
            "(mesh.data * mesh.fsdp * mesh.expert); change one of them, or set training.devices"
        )


def runner_on(devices: Sequence[jax.Device], kind: str, mesh: MeshConfig | None) -> Runner:
    """Runner of a kind, as in `make_runner`, on devices that need not be present."""
    return _runner_on(tuple(devices), runner_kind(kind, mesh, num_hosts(devices)), mesh)


@functools.lru_cache(maxsize=8)  # so that trainings on the same devices can share programs
def _runner_on(devices: tuple[jax.Device, ...], kind: str, mesh: MeshConfig | None) -> Runner:
    if kind == "single":
        return SingleRunner(devices[0])
    return MeshRunner(mesh, devices) if kind == "mesh" else PmapRunner(devices)


def make_inference_runner(
    shapes: Any, trained_on: MeshConfig, mesh: MeshConfig | None = None
) -> Runner:
    """Runner for inference on this host; by default one device, if it has twice the room."""
    devices = jax.local_devices()
    if mesh is None:
        single = runner_on(devices[:1], "single", None)
        if len(devices) == 1 or 2 * num_bytes(shapes) <= single.memory:
            return single
        return MeshRunner.for_inference(trained_on, devices)
    sizes = dataclasses.replace(mesh, data=mesh.data or 1)
    count = math.prod(getattr(sizes, axis) for axis in MESH_AXES)
    if count > len(devices):
        raise ConfigError(
            f"the mesh to open a run on needs {count} devices of one host, got {len(devices)}; "
            "lower mesh.fsdp or mesh.tensor"
        )
    return runner_on(devices[:count], "single" if count == 1 else "mesh", sizes)


def runner_kind(kind: str, mesh: MeshConfig | None, hosts: int) -> str:
    """Resolves "auto" of `make_runner`: "mesh" if one is set or there are several hosts."""
    if kind != "auto":
        return kind
    return "mesh" if mesh not in (None, MeshConfig()) or hosts > 1 else "pmap"


def split_cpu(count: int) -> None:
    """Splits this machine's CPU into `count` virtual devices; call it before JAX starts."""
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:  # JAX has started, which is fine with the same number
        if len(jax.local_devices(backend="cpu")) != count:
            raise ConfigError(
                f"training.cpu_devices={count} must be set before JAX starts, but it has already "
                f"started with {len(jax.local_devices(backend='cpu'))} CPU devices"
            ) from error
