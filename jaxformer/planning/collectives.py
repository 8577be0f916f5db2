"""Collectives of a compiled step."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jaxformer.hlo import Computation, Instruction

_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


class Collective(NamedTuple):
    """Collectives of one kind in a step, over groups of one size.

    Args:
        kind: kind of collective, such as "all-reduce".
        group: number of devices in a group.
        times: number of runs in a step.
        num_bytes: bytes of all results on a device.
    """

    kind: str
    group: int
    times: int
    num_bytes: int

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
    return _total_by_kind(collectives)


def _total_by_kind(collectives: Iterable[Collective]) -> list[Collective]:
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
    """Number of devices in a group, in any notation of HLO; all, where it names no groups."""
    if mesh := re.search(r"replica_groups=mesh\[(.*?)\] ?\{(.*?)\}", attributes):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", mesh[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'([^']+)'", mesh[2]))
    if listed := re.search(r"replica_groups=\{\{([\d,]*)\}", attributes):
        return len(listed[1].split(","))
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]<=", attributes):
        return int(iota[2])
    return num_devices
