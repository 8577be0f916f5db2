"""Optimized HLO text as XLA writes it: computations, instructions, arrays and trip counts."""

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Mapping
from typing import NamedTuple

_HEAD = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = (?P<rest>.*)")
_ARRAY = re.compile(
    r"\b(?P<dtype>pred|[sufc]\d+\w*|bf16)\[(?P<sizes>[\d,]*)\](?:\{(?P<layout>[^}]*)\})?"
)
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(
    r"\b(?P<key>calls|to_apply|body|condition|branch_computations|\w+_computation)="
    r"\{?(?P<names>%?[\w.\-]+(?:, %[\w.\-]+)*)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_OP_NAME = re.compile(r'op_name="([^"]*)"')


class Array(NamedTuple):
    """An array of a type.

    Args:
        size: number of elements.
        width: bytes of an element.
        num_bytes: bytes of all, with the padding of their tiles.
        space: memory space; 0 is the device memory, and TPUs have others, such as 1, the VMEM.
    """

    size: int
    width: int
    num_bytes: int
    space: int


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line: `name = result opcode(operands), attributes`, each as text."""

    name: str
    result: str
    opcode: str
    operands: str
    attributes: str

    @functools.cached_property
    def operand_names(self) -> list[str]:
        """Names of the instructions that this one uses."""
        return _NAME.findall(self.operands)

    @functools.cached_property
    def arrays(self) -> tuple[Array, ...]:
        """Arrays of the result: several for a tuple."""
        return read_arrays(self.result)

    @property
    def op_name(self) -> str:
        """Path of JAX's names, such as "jit(step)/jvp(Decoder)/layers/attention/mul"; or ""."""
        found = _OP_NAME.search(self.attributes)
        return found[1] if found else ""

    def called(self, *keys: str) -> list[str]:
        """Names of the computations under some attributes, such as "body"; of all by default."""
        found = _CALLED.finditer(self.attributes)
        texts = [one["names"] for one in found if not keys or one["key"] in keys]
        return [name.lstrip("%") for text in texts for name in text.split(", ")]


@dataclasses.dataclass(frozen=True)
class Computation:
    """Instructions by name, in their order, of which the root is the result."""

    instructions: Mapping[str, Instruction]
    root: str

    @functools.cached_property
    def users(self) -> Mapping[str, list[Instruction]]:
        """Instructions that use each one; twice if it is two of their operands."""
        users = collections.defaultdict(list)
        for one in self.instructions.values():
            for name in one.operand_names:
                users[name].append(one)
        return users


class Program(NamedTuple):
    """Computations by name, and the name of the one that runs."""

    computations: Mapping[str, Computation]
    entry: str

    def trip_count(self, loop: Instruction) -> int:
        """Iterations of a while loop: its known count, or the largest constant of its condition."""
        if known := _TRIPS.search(loop.attributes):
            return int(known[1])
        constants = [
            int(one.operands)
            for name in loop.called("condition") if name in self.computations
            for one in self.computations[name].instructions.values()
            if one.opcode == "constant" and one.result.startswith("s32[]")
        ]  # fmt: skip
        return max(constants, default=1)


def parse_hlo(text: str) -> Program:
    """Reads the text of an optimized program."""
    computations: dict[str, Computation] = {}
    instructions: dict[str, Instruction] = {}
    entry = name = ""
    for line in text.splitlines():
        if not line.startswith(" "):
            if head := _HEAD.match(line):
                name, instructions = head["name"], {}
                computations[name] = Computation(instructions, "")
                entry = name if head["entry"] else entry
        elif found := _INSTRUCTION.match(line):
            instructions[found["name"]] = _instruction(found["name"], found["rest"])
            if found["root"]:
                computations[name] = Computation(instructions, found["name"])
    return Program(computations, entry)


def _instruction(name: str, text: str) -> Instruction:
    end = _closing(text, 0) if text.startswith("(") else text.index(" ")
    opening = text.index("(", end)
    closing = _closing(text, opening)
    operands, attributes = text[opening + 1 : closing - 1], text[closing:]
    return Instruction(name, text[:end], text[end:opening].strip(), operands, attributes)


def _closing(text: str, opening: int) -> int:
    """Index after the parenthesis that closes the one at `opening`."""
    depth = 0
    for found in re.compile(r"[()]").finditer(text, opening):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.end()
    return len(text)


@functools.lru_cache(maxsize=4096)
def read_arrays(result: str) -> tuple[Array, ...]:
    """Arrays of a type, such as `(f32[8,128]{1,0:T(8,128)S(1)}, s32[])`."""
    return tuple(
        _array(one["dtype"], one["sizes"], one["layout"] or "") for one in _ARRAY.finditer(result)
    )


def _array(dtype: str, sizes: str, layout: str) -> Array:
    bits = 8 if dtype == "pred" else int(re.findall(r"\d+", dtype)[0])
    shape = [int(size) for size in sizes.split(",") if size]
    order, tile, space = (
        found[1] if (found := re.search(pattern, layout)) else ""
        for pattern in (r"^([\d,]+)", r"T\(([\d,]+)\)", r"S\((\d+)\)")
    )
    # The layout lists axes from the one that varies fastest; tiles cover the last of them.
    padded = [shape[int(axis)] for axis in order.split(",") if axis] or list(reversed(shape))
    for axis, width in enumerate(reversed([int(width) for width in tile.split(",") if width])):
        if axis == len(padded):
            padded.append(1)
        padded[axis] = -(-padded[axis] // width) * width
    width = max(1, bits // 8)
    return Array(math.prod(shape), width, width * math.prod(padded), int(space or 0))
