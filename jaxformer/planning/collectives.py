"""Collectives of a compiled step: how often each runs, and with how many bytes."""

import collections
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from jaxformer.planning.hlo import Instruction, Program

_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_CHANNEL = re.compile(r"channel_id=(\d+)")


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
        others = (self.group - 1) / self.group
        factor = {
            "all-reduce": 2 * others,
            "reduce-scatter": self.group - 1,  # of which the result is one part
            "collective-permute": 1,
        }
        return self.num_bytes * factor.get(self.kind, others)


def read_collectives(program: Program, num_devices: int) -> list[Collective]:
    """Collectives of an optimized program, by kind and group size; in a loop once per iteration."""
    found = _collectives_of(program, program.entry, num_devices, times=1, seen=set())
    return total_by_kind(found)


def total_by_kind(collectives: Iterable[Collective]) -> list[Collective]:
    """Collectives summed by kind and group size, most bytes first."""
    totals: dict[tuple[str, int, int | None], list[int]] = collections.defaultdict(lambda: [0, 0])
    for one in collectives:
        total = totals[one.kind, one.group, one.on_a_host]
        total[0] += one.times
        total[1] += one.num_bytes
    summed = [
        Collective(kind, group, times, num_bytes, on_a_host)
        for (kind, group, on_a_host), (times, num_bytes) in totals.items()
    ]
    return sorted(summed, key=lambda one: -one.num_bytes)


def _collectives_of(
    program: Program, name: str, num_devices: int, *, times: int, seen: set[str],
    fused: bool = False,
) -> Iterator[Collective]:  # fmt: skip
    """Collectives of a computation and of those that it calls."""
    for one in program.computations[name].instructions.values():
        kind = one.opcode.removesuffix("-start")
        if kind in _KINDS:
            # A collective that is fused in several pieces has the same channel in each. Outside
            # fusions, channels are no identity: shard_map gives all collectives channel 1.
            channel = _CHANNEL.search(one.attributes) if fused else None
            if channel is None or channel[1] not in seen:
                seen.update([channel[1]] if channel else [])
                group = _group_size(one.attributes, num_devices)
                num_bytes = _num_bytes(one)
                if kind == "all-reduce" and name.startswith("all-reduce-scatter"):
                    kind, num_bytes = "reduce-scatter", num_bytes // group
                if group > 1:
                    yield Collective(kind, group, times, times * num_bytes)
            continue
        trips = program.trip_count(one) if one.opcode == "while" else 1
        for other in one.called("calls", "to_apply", "body", "branch_computations"):
            if other in program.computations:
                yield from _collectives_of(
                    program, other, num_devices, times=times * trips, seen=seen,
                    fused=fused or one.opcode == "fusion",
                )  # fmt: skip


def _num_bytes(one: Instruction) -> int:
    """Bytes of a result; a start returns a tuple of its operand and its result."""
    sizes = [array.size * array.width for array in one.arrays]
    return max(sizes, default=0) if one.opcode.endswith("-start") else sum(sizes)


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
    first = next(iter(targets.keys() - targets.values()), next(iter(targets)))
    size, device = 1, targets[first]
    while device != first:
        size += 1
        if device not in targets:
            break
        device = targets[device]
    return size
