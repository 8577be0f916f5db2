"""Plan of a training run on accelerators that need not be present: memory, time, what fits."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from jaxformer.accelerators import Accelerator
from jaxformer.config import ExperimentConfig, MeshConfig
from jaxformer.errors import ConfigError
from jaxformer.planning.compiler import CompiledStep, compile_step, topology_devices
from jaxformer.planning.memory import MemoryNeeds, memory_needs, memory_traffic, state_needs
from jaxformer.planning.settings import batch_rows, planned_model, trace_step
from jaxformer.runs import TextModel
from jaxformer.runs.weights.shapes import param_shapes
from jaxformer.training.parallel import axis_sizes, num_row_parts

_REMATS = ("none", "dots", "full")
_MOST_COMPILED = 4  # settings; compiling each takes about a minute


class Place(NamedTuple):
    """Devices that a step is planned for."""

    accelerator: Accelerator
    num_devices: int
    devices: Sequence[jax.Device] | None  # those of the TPU compiler; None for GPUs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Memory that a training run needs, and the least time that a step takes.

    Args:
        config: the experiment, with the vocabulary filled in.
        model: its model, changed so that it can be traced without the accelerator.
        place: accelerator, and number of devices.
        sizes: number of devices along each axis of the mesh.
        rows: number of rows in a batch.
        num_params: number of parameters.
        needs: bytes on each device; activations are estimated.
        flops: FLOPs of the matrix products of a step, on all devices.
        compiled: the compiled step; None without a compiler.
        traffic: least number of bytes that a step reads from and writes to the memory of a device.
        seconds: least seconds per step for "compute", "memory" and, if compiled, "interconnect", at
            peak rates.
    """

    config: ExperimentConfig
    model: TextModel
    place: Place
    sizes: Mapping[str, int]
    rows: int
    num_params: int
    needs: MemoryNeeds
    flops: float
    compiled: CompiledStep | None
    traffic: int
    seconds: Mapping[str, float]

    @property
    def available(self) -> int:
        """Bytes that JAX can allocate on a device."""
        return self.place.accelerator.usable_memory

    @property
    def fits(self) -> bool:
        """Whether the step fits into the memory of each device."""
        if self.compiled is not None:
            return self.compiled.failure is None
        return self.needs.total <= self.available

    @property
    def tokens(self) -> int:
        """Positions of a batch, including padding; in an encoder-decoder, of the targets."""
        return self.rows * self.config.model.max_len

    def step_seconds(self, utilization: float) -> float:
        """Seconds per step, if matrix products run at a fraction of the peak: its largest bound."""
        return max(self._bounds(utilization).values())

    def bound(self, utilization: float) -> str:
        """Name of the bound that `step_seconds` is, such as "compute"."""
        bounds = self._bounds(utilization)
        return max(bounds, key=bounds.__getitem__)

    def _bounds(self, utilization: float) -> dict[str, float]:
        return {**self.seconds, "compute": self.seconds["compute"] / utilization}


def make_plan(
    config: ExperimentConfig,
    accelerator: Accelerator,
    *,
    num_devices: int | None = None,
    topology: str | None = None,
) -> Plan:
    """Plans a training run; nothing of the model is allocated, and no data is read.

    For TPUs, their compiler compiles the step, so that memory and collectives are exact. A plan
    needs no accelerator; if JAX has not started, let it start on the CPU (`jax_platforms`).

    Args:
        config: the experiment.
        accelerator: one of `ACCELERATORS`.
        num_devices: number of GPUs; as many as the mesh needs when not given.
        topology: number of TPU chips in each direction, such as "4x4".

    Raises:
        ConfigError: the config does not fit the number of devices or the batch, the model depends
            on the data, or the compiler is missing.
    """
    mesh = config.mesh
    if accelerator.platform == "tpu":
        if topology is None or num_devices is not None:
            raise ConfigError(
                f"a plan for TPUs needs their topology, got accelerator {accelerator.name} and "
                + ("no topology" if num_devices is None else "devices")
                + "; give --topology 2x2, or 2x2x1 for v4 and v5p"
            )
        devices = topology_devices(accelerator, topology)
        return _plan(config, Place(accelerator, len(devices), devices))
    if topology is not None:
        raise ConfigError(
            f"topology is for TPUs, got {topology!r} for {accelerator.name}; give --devices 8"
        )
    count = num_devices or (mesh.data or 1) * mesh.fsdp * mesh.expert * mesh.sequence * mesh.tensor
    return _plan(config, Place(accelerator, count, None))


def _plan(config: ExperimentConfig, place: Place) -> Plan:
    accelerator, count, devices = place
    model, compiled = planned_model(config), planned_model(config, as_configured=True)
    config = compiled.config
    if config.training.runner == "single" and count > 1:
        raise ConfigError(
            f"training.runner 'single' uses one device, got {count}; remove it, or plan for one"
        )
    sizes = axis_sizes(config.mesh, count)
    rows, params = batch_rows(config, num_row_parts(sizes)), param_shapes(model)
    needs = memory_needs(config, sizes)
    step = None if devices is None else compile_step(compiled, devices, accelerator.platform)
    traffic = memory_traffic(needs, config.training.accumulate_steps)
    parts = num_row_parts(sizes) * config.training.accumulate_steps
    local_config = dataclasses.replace(model.config, mesh=MeshConfig())
    flops = trace_step(local_config, rows // parts).flops * parts
    peak = accelerator.bfloat16 if config.model.dtype == "bfloat16" else accelerator.float32
    seconds = {
        "compute": flops / (count * peak),
        "memory": traffic / accelerator.memory_bandwidth,
    }
    if step is not None and step.failure is None:
        sent = math.fsum(collective.traffic for collective in step.collectives)
        seconds["interconnect"] = sent / accelerator.interconnect
    return Plan(
        config=config, model=model, place=place, sizes=sizes, rows=rows,
        num_params=sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params)),
        needs=needs, flops=flops, compiled=step, traffic=traffic, seconds=seconds,
    )  # fmt: skip


def setting_that_fits(plan: Plan) -> tuple[Plan, dict[str, Any]] | None:
    """The nearest setting that fits: more remat, then more micro-batches, then a larger fsdp.

    Only settings that are estimated to fit are planned, and at most four, since each is compiled
    for a TPU.

    Args:
        plan: a plan that does not fit.

    Returns:
        The plan that fits, and its changed settings by key; None if none was found.
    """
    config, shards = plan.config, num_row_parts(plan.sizes)
    is_split = config.training.runner in ("auto", "mesh")
    settings = itertools.product(
        _doubled(plan.sizes["fsdp"], shards // plan.sizes["expert"] if is_split else 1),
        _doubled(config.training.accumulate_steps, plan.rows // shards),
        _REMATS[_REMATS.index(config.model.remat) :],
    )
    tried = (_changes(plan, *setting) for setting in settings)
    fitting = (changes for changes in tried if changes and _is_estimated_to_fit(plan, changes))
    for changes in itertools.islice(fitting, _MOST_COMPILED):
        candidate = _plan(_with(config, changes), plan.place)
        if candidate.fits:
            return candidate, changes
    return None


def _doubled(number: int, total: int) -> Iterator[int]:
    """A number, and twice, four times, ... of it while they divide the total."""
    yield number
    while total % (number := 2 * number) == 0:
        yield number


def _changes(plan: Plan, fsdp: int, accumulate_steps: int, remat: str) -> dict[str, Any]:
    """Settings that differ from those of a plan, by key."""
    config = plan.config
    settings = {
        "model.remat": (config.model.remat, remat),
        "training.accumulate_steps": (config.training.accumulate_steps, accumulate_steps),
        "mesh.fsdp": (plan.sizes["fsdp"], fsdp),
    }
    if config.mesh.data is not None:  # else it takes the devices that the other axes leave
        data = plan.sizes["data"] * plan.sizes["fsdp"] // fsdp
        settings["mesh.data"] = (config.mesh.data, data)
    return {key: new for key, (old, new) in settings.items() if new != old}


def _is_estimated_to_fit(plan: Plan, changes: Mapping[str, Any]) -> bool:
    changed = _with(plan.config, changes)
    try:
        sizes = axis_sizes(changed.mesh, plan.place.num_devices)
        if state_needs(changed, sizes).total > plan.available:  # before anything is traced
            return False
        return memory_needs(changed, sizes).total <= plan.available
    except ConfigError:  # sizes that do not divide
        return False


def _with(config: ExperimentConfig, changes: Mapping[str, Any]) -> ExperimentConfig:
    """A config with other values of some keys."""
    for key, value in changes.items():
        table, _, name = key.partition(".")
        changed = dataclasses.replace(getattr(config, table), **{name: value})
        config = dataclasses.replace(config, **{table: changed})
    return config
