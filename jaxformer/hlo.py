"""The text of optimized programs, as XLA writes it: computations and instructions."""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator

_HEAD = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(
    r"\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<result>.+?) (?P<opcode>[\w\-]+)"
    r"\((?P<operands>.*?)\)(?:, (?P<attributes>[\w\-]+=.*))?$"
)
_ARRAY = re.compile(r"\b(pred|[a-z]+\d\w*)\[([\d,]*)\]")
_CALLED = re.compile(r"\b(\w+)=\{?(%[\w.\-]+(?:, %[\w.\-]+)*)")


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
    def array_bytes(self) -> list[int]:
        """Bytes of each array of the result, without padding: several for a tuple."""
        return [_num_bytes(*match.groups()) for match in _ARRAY.finditer(self.result)]

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
    """Instructions by name, in their order, of which the last is the result."""

    name: str
    program: "dict[str, Computation]"  # all computations of the program by name
    instructions: dict[str, Instruction] = dataclasses.field(default_factory=dict)


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
            instruction = Instruction(computation, *match.groups(default=""))
            computation.instructions[instruction.name] = instruction
    return entry


def _num_bytes(dtype: str, sizes: str) -> int:
    width = 1 if dtype == "pred" else max(1, int(re.findall(r"\d+", dtype)[0]) // 8)
    return width * math.prod(int(size) for size in sizes.split(",") if size)
