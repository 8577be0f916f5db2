"""Bytes that a compiled step moves through the device memory (HBM), by where they come from."""

import collections
import re
from collections.abc import Iterator

from jaxformer.op_names import part_of
from jaxformer.planning.hlo import Array, Computation, Instruction, Program

_FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "replica-id", "opt-barrier", "add-dependency", "call-update", "call-done",
}  # fmt: skip
_FREE_KERNELS = re.compile(r'custom_call_target="(AllocateBuffer|ConcatBitcast)"')
_SLICES = {"dynamic-slice", "slice", "gather", "slice-start", "dynamic-slice-start"}
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}  # the operand that holds the new values
_VIEWS = {"bitcast", "convert", "copy", "reshape", "transpose"}  # element by element in a fusion


def read_traffic(program: Program) -> dict[str, int]:
    """Bytes that a step reads from and writes to HBM on a device, by source, most first.

    Every instruction reads its operands and writes its results, in a loop once per iteration; of a
    conditional, the branch that moves the most counts. What stays within a fusion or in on-chip
    memory moves nothing, slices count as the slice, and updates in place as the update. Arrays have
    the bytes of their tiles, with padding. A kernel (custom call) counts its operands and results
    once: a lower bound, since kernels of attention read keys and values several times.
    """
    total = _traffic(program, program.entry)
    return {source: num_bytes for source, num_bytes in total.most_common() if num_bytes}


def _traffic(program: Program, name: str) -> collections.Counter[str]:
    """Bytes of one run of a computation, by source."""
    computation, total = program.computations[name], collections.Counter[str]()
    for one in computation.instructions.values():
        if one.opcode == "while":
            times = program.trip_count(one)
            for body in one.called("body"):
                for source, num_bytes in _traffic(program, body).items():
                    total[source] += times * num_bytes
        elif one.opcode == "conditional":
            keys = ("branch_computations", "true_computation", "false_computation")
            branches = [_traffic(program, branch) for branch in one.called(*keys)]
            total.update(max(branches, key=lambda branch: branch.total(), default={}))
        elif one.opcode in ("call", "call-start"):
            for inner in one.called("to_apply"):
                total += _traffic(program, inner)
        elif num_bytes := _bytes_moved(program, computation, one):
            total[_source(program, computation, one)] += num_bytes
    return total


def _bytes_moved(program: Program, computation: Computation, one: Instruction) -> int:
    """Bytes that an instruction reads and writes."""
    if one.opcode in _FREE or _FREE_KERNELS.search(one.attributes):
        return 0
    # Of an asynchronous pair, the start reads and the end writes.
    read = 0 if one.opcode.endswith("-done") else _bytes_read(program, computation, one)
    if one.opcode.endswith("-start"):
        return read
    sizes = _written(program, computation, one.name)
    return read + sum(
        size for size, array in zip(sizes, one.arrays, strict=True) if array.space == 0
    )


def _bytes_read(program: Program, computation: Computation, one: Instruction) -> int:
    total = 0
    for position, name in enumerate(one.operand_names):
        operand = computation.instructions.get(name)
        for array in operand.arrays if operand else ():
            if array.space == 0:
                part = _elements_read(program, computation, one, position)
                total += _part(array, part)
    return total


def _part(array: Array, elements: int | None) -> int:
    """Bytes of some elements of an array; of all if None."""
    if elements is None or elements >= array.size:
        return array.num_bytes
    return array.num_bytes * elements // array.size


def _elements_read(
    program: Program, computation: Computation, one: Instruction, position: int
) -> int | None:
    """Elements of an operand that an instruction reads; None if all."""
    if position == 0 and one.opcode in _SLICES:
        return one.arrays[-2 if one.opcode.endswith("-start") else 0].size
    if position == 0 and one.opcode == "dynamic-update-slice":
        return 0
    if position == 0 and one.opcode == "scatter" and len(one.arrays) == 1:
        return _updates(computation, one).size
    if one.opcode == "fusion":
        inner = program.computations[one.called("calls")[0]]
        for parameter in inner.instructions.values():
            if parameter.opcode == "parameter" and parameter.operands == str(position):
                return _elements_used(program, inner, parameter.name)
    return None


def _elements_used(program: Program, fused: Computation, name: str) -> int | None:
    """Elements of an array within a fusion that its users read; None if all.

    As in XLA's `HloCostAnalysis`, except that views are followed, too.
    """
    if name == fused.root:
        return None
    total = 0
    for user in dict.fromkeys(fused.users[name]):
        for position, operand in enumerate(user.operand_names):
            if operand == name:
                if user.opcode in _VIEWS:
                    part = _elements_used(program, fused, user.name)
                elif _updates_a_copy(fused, user):
                    part = None
                else:
                    part = _elements_read(program, fused, user, position)
                if part is None:
                    return None
                total += part
    return total


def _updates(computation: Computation, one: Instruction) -> Array:
    """The new values of an instruction that updates its first operand."""
    return computation.instructions[one.operand_names[_UPDATES[one.opcode]]].arrays[0]


def _written(program: Program, computation: Computation, name: str) -> list[int]:
    """Bytes that each array of a result writes."""
    one = computation.instructions[name]
    is_update = one.opcode in _UPDATES and len(one.arrays) == 1
    if is_update and one.operand_names[0] in computation.instructions:
        return [_updates(computation, one).num_bytes]
    if one.opcode == "fusion":
        inner = program.computations[one.called("calls")[0]]
        sizes = list(_written_by_fusion(program, inner, inner.root))
        if len(sizes) == len(one.arrays):
            return sizes
    return [array.num_bytes for array in one.arrays]


def _written_by_fusion(program: Program, fused: Computation, name: str) -> Iterator[int]:
    one = fused.instructions[name]
    if one.opcode == "tuple":
        for element in one.operand_names:
            yield from _written_by_fusion(program, fused, element)
    elif one.opcode == "bitcast":
        yield from _written_by_fusion(program, fused, one.operand_names[0])
    elif _updates_a_copy(fused, one):
        yield one.arrays[0].num_bytes
    else:
        yield from _written(program, fused, name)


def _updates_a_copy(fused: Computation, one: Instruction) -> bool:
    """Whether an instruction in a fusion updates what is no parameter, so that all is written."""
    if one.opcode not in _UPDATES:
        return False
    target = fused.instructions[one.operand_names[0]]
    while target.opcode == "bitcast":
        target = fused.instructions[target.operand_names[0]]
    return target.opcode != "parameter"


def _source(program: Program, computation: Computation, one: Instruction) -> str:
    """Where an instruction comes from: by its names, those of what uses it, or of its operands."""
    for follow in (_user, _operand):
        near: Instruction | None = one
        while near is not None:
            if found := _source_of_names(program, near):
                return found
            near = follow(computation, near)
    # The stacks of weights and activations that a scan reads from and writes to.
    return "scan of layers" if "stack._scan" in one.op_name else "other"


def _user(computation: Computation, one: Instruction) -> Instruction | None:
    """The first use, unless it is in a loop or a result of the computation."""
    user = next(iter(computation.users[one.name]), None)
    return None if user is None or user.opcode in ("tuple", "while") else user


def _operand(computation: Computation, one: Instruction) -> Instruction | None:
    return computation.instructions.get(next(iter(one.operand_names), ""))


def _source_of_names(program: Program, one: Instruction) -> str | None:
    """Source by the name of an instruction, or else by most of the names that it fuses."""
    if found := part_of(one.op_name):
        return found
    fused = (
        inner.op_name
        for called in one.called("calls")
        for inner in program.computations[called].instructions.values()
    )
    votes = collections.Counter(found for name in fused if (found := part_of(name)))
    return votes.most_common(1)[0][0] if votes else None
