"""Collectives of a step: those of a compiled program, or as a config needs them."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxformer.accelerators import Accelerator
from jaxformer.config import ExperimentConfig
from jaxformer.hlo import Computation, Instruction
from jaxformer.planning.memory import MemoryNeeds, num_layers
from jaxformer.training.parallel import num_row_parts, runner_kind

_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


class Collective(NamedTuple):
    """Collectives of one kind in a step, over groups of one size.

    Args:
        kind: kind of collective, such as "all-reduce".
        group: number of devices in a group.
        times: number of runs in a step.
        num_bytes: bytes of all results on a device.
        on_a_host: number of devices of a group that share a host; all when not given.
    """

    kind: str
    group: int
    times: int
    num_bytes: int
    on_a_host: int | None = None

    @property
    def traffic(self) -> float:
        """Least number of bytes that a device sends, with ring algorithms."""
        ratio = (self.group - 1) / self.group
        factor = {
            "all-reduce": 2 * ratio,
            "reduce-scatter": self.group - 1,  # of which the result is one part
            "collective-permute": 1,
        }
        return self.num_bytes * factor.get(self.kind, ratio)


def read_collectives(program: Computation, num_devices: int) -> list[Collective]:
    """Collectives of an optimized program, by kind and group size; in a loop once per iteration."""
    collectives: list[Collective] = []
    channels: set[str] = set()
    for op, times, is_fused in _operations(program, 1):
        kind = op.opcode.removesuffix("-start")
        if kind not in _KINDS:
            continue
        # A collective that is fused in several pieces has the same channel in each. Outside
        # fusions, channels are no identity: shard_map gives all collectives channel 1.
        channel = re.search(r"channel_id=\d+", op.attributes) if is_fused else None
        if channel and channel[0] in channels:
            continue
        channels |= {channel[0]} if channel else set()
        num_bytes, group = _num_bytes(op), _group_size(op.attributes, num_devices)
        if kind == "all-reduce" and op.computation.name.startswith("all-reduce-scatter"):
            kind, num_bytes = "reduce-scatter", num_bytes // group
        if group > 1:
            collectives.append(Collective(kind, group, times, times * num_bytes))
    return total_by_kind(collectives)


def total_by_kind(collectives: Iterable[Collective]) -> list[Collective]:
    """Collectives summed by kind and group size, most bytes first."""
    times, sizes = Counter[Collective](), Counter[Collective]()
    for collective in collectives:
        kind = collective._replace(times=0, num_bytes=0)
        times[kind] += collective.times
        sizes[kind] += collective.num_bytes
    return [
        kind._replace(times=times[kind], num_bytes=num_bytes)
        for kind, num_bytes in sizes.most_common()
    ]


def _operations(
    computation: Computation, times: int, is_fused: bool = False
) -> Iterator[tuple[Instruction, int, bool]]:
    """Instructions of a computation and of those that it calls: with their runs, and if fused."""
    for op in computation.instructions.values():
        yield op, times, is_fused
        trips = op.trip_count if op.opcode == "while" else 1
        for called in op.called("calls", "to_apply", "body", "branch_computations"):
            yield from _operations(called, times * trips, is_fused or op.opcode == "fusion")


def _num_bytes(op: Instruction) -> int:
    """Bytes of a result; a start returns a tuple of its operand and its result."""
    sizes = op.array_bytes
    return max(sizes, default=0) if op.opcode.endswith("-start") else sum(sizes)


def _group_size(attributes: str, num_devices: int) -> int:
    """Number of devices in a group, in any notation of HLO."""
    if pairs := re.search(r"source_target_pairs=\{(\{[\d,{}]*\})\}", attributes):
        return _ring_size(dict(re.findall(r"\{(\d+),(\d+)\}", pairs[1])))
    if mesh := re.search(r"replica_groups=mesh\[(.*?)\] ?\{(.*?)\}", attributes):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", mesh[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'([^']+)'", mesh[2]))
    if listed := re.search(r"replica_groups=\{\{([\d,]*)\}", attributes):
        return len(listed[1].split(","))
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]<=", attributes):
        return int(iota[2])
    return num_devices


def _ring_size(targets: Mapping[str, str]) -> int:
    """Number of devices in a ring or chain of senders and receivers."""
    ring = [next(iter(targets.keys() - targets.values()), next(iter(targets)))]
    while (device := targets.get(ring[-1], ring[0])) != ring[0]:
        ring.append(device)
    return len(ring)


def expected_collectives(
    config: ExperimentConfig, params: Any, needs: MemoryNeeds, sizes: Mapping[str, int], rows: int,
    *, devices_per_host: int,
) -> list[Collective]:  # fmt: skip
    """Collectives that a step of a config needs: what a GPU program should have."""
    # In every micro-batch, in the dtype of the computation; with pmap, once per step, in that of
    # the parameters. Over "tensor", the outputs of attention and feed-forward layers are summed,
    # those of shared experts by themselves, and their gradients. Over "sequence", keys and values
    # circulate as in ring attention, in both passes, and their float32 gradients in the backward
    # pass; those of cross-attention are gathered.
    model, steps = config.model, config.training.accumulate_steps
    hosts = -(-math.prod(sizes.values()) // devices_per_host)
    splits = runner_kind(config.training.runner, config.mesh, hosts) == "mesh"
    width = jnp.dtype(model.dtype).itemsize
    whole = jnp.dtype(model.param_dtype).itemsize
    narrow = needs.parameters * width // whole
    gradients, times = (needs.trained * width // whole, steps) if splits else (needs.trained, 1)
    tokens = rows * model.max_len // (num_row_parts(sizes) * steps)  # of whole sequences
    depth, crosses = num_layers(params), num_layers(params, "cross_attention")
    parts = sizes["sequence"]
    hidden = tokens // parts * model.d_model * width
    keys = tokens * (model.kv_heads // sizes["tensor"] or 1) * width
    keys *= model.key_dim + model.value_dim

    def over(axes: tuple[str, ...], kind: str, times: int, num_bytes: int) -> Collective:
        group = math.prod(sizes[axis] for axis in axes)
        on_a_host = _on_a_host(sizes, axes, devices_per_host)
        return Collective(kind, group, times, times * num_bytes, on_a_host)

    mixtures = num_layers(params, "feed_forward", "router_kernel")
    has_shared = model.experts is not None and model.experts.num_shared_experts > 0
    sums = (4 * depth + 2 * mixtures * has_shared + 2 * crosses) * steps
    collectives = [
        over(("data", "expert", "sequence"), "all-reduce", times, gradients),
        over(("fsdp",), "all-gather", 2 * steps, narrow * sizes["fsdp"]),
        over(("fsdp",), "reduce-scatter", steps, gradients),
        over(("tensor",), "all-reduce", sums, hidden),
        # Each part is sent once per part.
        over(("sequence",), "collective-permute", depth * steps, keys * (2 + 4 // width)),
        over(("sequence",), "all-gather", crosses * steps, keys),
        over(("sequence",), "reduce-scatter", crosses * steps, keys // parts),
    ]
    if (experts := model.experts) is not None:
        exchanges = 2 * mixtures * steps
        if experts.capacity_factor is None:  # tokens are gathered, and float32 outputs summed
            gathered, summed = hidden * sizes["expert"], hidden * 4 // width
            collectives += [
                over(("expert",), "all-gather", exchanges, gathered),
                over(("expert",), "reduce-scatter", exchanges, summed),
            ]
        else:
            room = int(hidden * experts.capacity_factor * experts.num_experts_per_token)
            collectives.append(over(("expert",), "all-to-all", 2 * exchanges, room))
    return total_by_kind(
        collective for collective in collectives if collective.group > 1 and collective.times
    )


def _on_a_host(sizes: Mapping[str, int], axes: tuple[str, ...], devices_per_host: int) -> int:
    """Number of devices on one host, of a group over some axes of a mesh."""
    devices = np.arange(math.prod(sizes.values())).reshape(tuple(sizes.values()))
    group = devices[tuple(slice(None) if axis in axes else 0 for axis in sizes)]
    hosts = group.ravel() // devices_per_host
    return int((hosts == hosts[0]).sum())


def seconds_of(collectives: Iterable[Collective], accelerator: Accelerator) -> float:
    """Seconds of collectives on all links, if they do not overlap with computation."""
    seconds = []
    for collective in collectives:
        speed, mates = accelerator.interconnect, collective.on_a_host or collective.group
        # A group on several hosts uses the network adapters of its devices on one host together,
        # and is never faster than the links within a host.
        if mates < collective.group:
            speed = min(speed, accelerator.network * mates)
        seconds.append(collective.traffic / speed)
    return math.fsum(seconds)
