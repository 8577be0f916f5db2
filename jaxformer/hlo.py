"""The text of optimized programs, as XLA writes it: computations, instructions and arrays."""

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

_HEAD = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(
    r"\s+(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = (?P<result>.+?) (?P<opcode>[\w\-]+)"
    r"\((?P<operands>.*?)\)(?:, (?P<attributes>[\w\-]+=.*))?$"
)
_ARRAY = re.compile(r"\b(pred|[a-z]+\d\w*)\[([\d,]*)\](?:\{([\d,]*)(?::([^}]*))?\})?")
_CALLED = re.compile(r"\b(\w+)=\{?(%[\w.\-]+(?:, %[\w.\-]+)*)")


class Array(NamedTuple):
    """An array of a type."""

    size: int  # elements
    width: int  # bytes of an element
    num_bytes: int  # with the padding of their tiles
    space: int  # memory space: 0 is the device memory, others are a TPU's, such as 1, the VMEM


@dataclasses.dataclass(frozen=True, eq=False)
class Instruction:
    """One line of a computation: `name = result opcode(operands), attributes`, each as text."""

    computation: "Computation"
    name: str
    result: str
    opcode: str
    operand_text: str
    attributes: str

    @functools.cached_property
    def operands(self) -> "list[Instruction | None]":
        """Instructions that this one uses; None for those that the text lacks."""
        names = re.findall(r"%([\w.\-]+)", self.operand_text)
        return [self.computation.instructions.get(name) for name in names]

    @property
    def users(self) -> "list[Instruction]":
        """Instructions that use this one."""
        return self.computation.users[self.name]

    @functools.cached_property
    def arrays(self) -> tuple[Array, ...]:
        """Arrays of the result: several for a tuple."""
        return read_arrays(self.result)

    @functools.cached_property
    def op_name(self) -> str:
        """Path of JAX's names, such as "jit(step)/jvp(Decoder)/layers/attention/mul"; or ""."""
        match = re.search(r'op_name="([^"]*)"', self.attributes)
        return match[1] if match else ""

    def called(self, *keys: str) -> "Iterator[Computation]":
        """Computations under some attributes, such as "body"."""
        for key, names in _CALLED.findall(self.attributes):
            for name in names.split(", ") if key in keys else ():
                if computation := self.computation.program.get(name.removeprefix("%")):
                    yield computation

    @property
    def trip_count(self) -> int:
        """Iterations of a while loop: its known count, or the largest constant of its condition."""
        if known := re.search(r'"known_trip_count":\{"n":"(\d+)"\}', self.attributes):
            return int(known[1])
        constants = [
            int(op.operand_text)
            for condition in self.called("condition")
            for op in condition.instructions.values()
            if op.opcode == "constant" and op.result.startswith("s32[]")
        ]
        return max(constants, default=1)


@dataclasses.dataclass(eq=False)
class Computation:
    """Instructions by name, in their order, of which the root is the result."""

    name: str
    program: "dict[str, Computation]"  # all computations of the program by name
    instructions: dict[str, Instruction] = dataclasses.field(default_factory=dict)
    root: Instruction | None = None

    @functools.cached_property
    def users(self) -> collections.defaultdict[str, list[Instruction]]:
        """Instructions that use each one, by its name."""
        users = collections.defaultdict(list)
        for user in self.instructions.values():
            for operand in dict.fromkeys(user.operands):
                if operand is not None:
                    users[operand.name].append(user)
        return users


def parse_hlo(text: str) -> Computation:
    """Entry computation of an optimized program, such as `compiled.as_text()` of `jax.jit`."""
    program: dict[str, Computation] = {}
    computation = entry = Computation("", program)
    for line in text.splitlines():
        if not line.startswith(" "):
            if head := _HEAD.match(line):
                computation = Computation(head["name"], program)
                program[computation.name] = computation
                entry = computation if head["entry"] else entry
        elif match := _INSTRUCTION.match(line):
            name, result, opcode, operands, attributes = match.groups(default="")[1:]
            instruction = Instruction(computation, name, result, opcode, operands, attributes)
            computation.instructions[name] = instruction
            if match["root"]:
                computation.root = instruction
    return entry


@functools.lru_cache(maxsize=4096)
def read_arrays(result: str) -> tuple[Array, ...]:
    """Arrays of a type, such as `(f32[8,128]{1,0:T(8,128)S(1)}, s32[])`."""
    return tuple(_array(*match.groups(default="")) for match in _ARRAY.finditer(result))


def _array(dtype: str, sizes: str, order: str, layout: str) -> Array:
    width = 1 if dtype == "pred" else max(1, int(re.findall(r"\d+", dtype)[0]) // 8)
    shape = _numbers(sizes)
    # The layout lists axes from the one that varies fastest; tiles cover the last of them.
    padded = [shape[axis] for axis in _numbers(order)] or shape[::-1]
    tile, space = (re.search(pattern, layout) for pattern in (r"T\(([\d,]+)\)", r"S\((\d+)\)"))
    for axis, size in enumerate(reversed(_numbers(tile[1] if tile else ""))):
        if axis == len(padded):
            padded.append(1)
        padded[axis] = -(-padded[axis] // size) * size
    return Array(math.prod(shape), width, width * math.prod(padded), int(space[1]) if space else 0)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]
