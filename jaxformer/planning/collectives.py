"""Collectives of a compiled step: how often each runs, and with how many bytes."""

import collections
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_COLLECTIVE = re.compile(
    rf"= (?P<result>.*?) (?P<kind>{'|'.join(_KINDS)})(?P<start>-start)?\((?P<rest>.*)"
)
_SHAPE = re.compile(r"\b(pred|[sufc]\d+\w*|bf16)\[([\d,]*)\]")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?(?P<name>[\w.\-]+) .*\{$")
_WHILE = re.compile(r" while\(.*condition=%?(?P<condition>[\w.\-]+), body=%?(?P<body>[\w.\-]+)")
_CALLED = re.compile(r"(?:calls|to_apply|body|branch_computations)=\{?((?:%?[\w.\-]+(?:, )?)+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CONSTANT = re.compile(r" = s32\[\]\S* constant\((\d+)\)")
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


def read_collectives(hlo: str, num_devices: int) -> list[Collective]:
    """Collectives of an optimized program, by kind and group size; in a loop once per iteration."""
    bodies = _computations(hlo)
    entry = next(name for name, lines in bodies.items() if lines[0].startswith("ENTRY"))
    seen: set[str] = set()
    found = _collectives_of(entry, bodies, num_devices, times=1, seen=seen)
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


def _computations(hlo: str) -> dict[str, list[str]]:
    """Lines of each computation, including its header."""
    bodies: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in hlo.splitlines():
        head = None if line.startswith(" ") else _COMPUTATION.match(line)
        if head:
            lines = bodies[head["name"]] = [line]
        elif line.startswith("}"):
            lines = []
        else:
            lines.append(line)
    return bodies


def _collectives_of(
    name: str, bodies: Mapping[str, list[str]], num_devices: int, *, times: int, seen: set[str],
    fused: bool = False,
) -> Iterator[Collective]:  # fmt: skip
    """Collectives of a computation and of those that it calls."""
    for line in bodies.get(name, ())[1:]:
        if loop := _WHILE.search(line):
            trips = _trip_count(line, bodies.get(loop["condition"], ()))
            yield from _collectives_of(
                loop["body"], bodies, num_devices, times=times * trips, seen=seen
            )
        elif found := _COLLECTIVE.search(line):
            # A collective that is fused in several pieces has the same channel in each. Outside
            # fusions, channels are no identity: shard_map gives all collectives channel 1.
            channel = _CHANNEL.search(line) if fused else None
            if channel is None or channel[1] not in seen:
                seen.update([channel[1]] if channel else [])
                group = _group_size(found["rest"], num_devices)
                num_bytes = _num_bytes(found["result"], of_start=bool(found["start"]))
                kind = found["kind"]
                if kind == "all-reduce" and name.startswith("all-reduce-scatter"):
                    kind, num_bytes = "reduce-scatter", num_bytes // group
                if group > 1:
                    yield Collective(kind, group, times, times * num_bytes)
        elif called := _CALLED.search(line):
            for other in called[1].split(", "):
                yield from _collectives_of(
                    other.lstrip("%"), bodies, num_devices, times=times, seen=seen,
                    fused=fused or " fusion(" in line,
                )  # fmt: skip


def _trip_count(line: str, condition: Iterable[str]) -> int:
    """Number of iterations of a loop: its known trip count, or the constant of its condition."""
    if known := _TRIPS.search(line):
        return int(known[1])
    constants = [int(one[1]) for text in condition if (one := _CONSTANT.search(text))]
    return max(constants, default=1)


def _num_bytes(result: str, *, of_start: bool) -> int:
    """Bytes of a result; a start returns a tuple of its operand and its result."""
    sizes = [_size(kind, dimensions) for kind, dimensions in _SHAPE.findall(result)]
    return max(sizes, default=0) if of_start else sum(sizes)


def _size(kind: str, dimensions: str) -> int:
    bits = 8 if kind == "pred" else int(re.findall(r"\d+", kind)[0])
    count = math.prod(int(size) for size in dimensions.split(",") if size)
    return max(1, bits // 8) * count


def _group_size(rest: str, num_devices: int) -> int:
    """Number of devices in a group, in any notation of HLO."""
    if pairs := re.search(r"source_target_pairs=\{(\{[\d,{}]*\})\}", rest):
        return _ring_size(dict(re.findall(r"\{(\d+),(\d+)\}", pairs[1])))
    if mesh := re.search(r"replica_groups=mesh\[(.*?)\] ?\{(.*?)\}", rest):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", mesh[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'([^']+)'", mesh[2]))
    if listed := re.search(r"replica_groups=\{\{([\d,]*)\}", rest):
        return len(listed[1].split(","))
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]<=", rest):
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
