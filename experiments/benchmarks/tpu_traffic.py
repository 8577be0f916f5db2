"""Bytes that a program compiled for a TPU moves through the device memory (HBM), by source.

The other scripts for TPUs here import it.
"""

import collections
import functools
import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from jaxformer.hlo import Computation, Instruction, parse_hlo
from jaxformer.op_names import part_of

_ARRAY = re.compile(r"\b(pred|[a-z]+\d\w*)\[([\d,]*)\](?:\{([\d,]*)(?::([^}]*))?\})?")

_FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "replica-id", "opt-barrier", "add-dependency", "call-update", "call-done",
}  # fmt: skip
_FREE_KERNELS = tuple(
    f'custom_call_target="{name}"' for name in ("AllocateBuffer", "ConcatBitcast")
)
_SLICES = {"dynamic-slice", "slice", "gather", "slice-start", "dynamic-slice-start"}
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}  # the operand that holds the new values
_VIEWS = {"bitcast", "convert", "copy", "reshape", "transpose"}  # element by element in a fusion


class Array(NamedTuple):
    """An array of a result."""

    size: int  # elements
    num_bytes: int  # with the padding of their tiles
    space: int  # memory space: 0 is the device memory, others are a TPU's, such as 1, the VMEM


def traffic_of(text: str) -> dict[str, int]:
    """Bytes that a program reads from and writes to HBM on a device, by source, most first."""
    return read_traffic(parse_hlo(text))


def read_traffic(program: Computation) -> dict[str, int]:
    """`traffic_of` a parsed computation."""
    # What stays within a fusion or in on-chip memory moves nothing, slices count as the slice, and
    # updates in place as the update. A kernel (custom call) counts its operands and results once: a
    # lower bound, since kernels of attention read keys and values several times.
    total = collections.Counter[str]()
    for op in program.instructions.values():
        if op.opcode == "while":
            for body in op.called("body"):
                for source, num_bytes in read_traffic(body).items():
                    total[source] += op.trip_count * num_bytes
        elif op.opcode == "conditional":
            keys = ("branch_computations", "true_computation", "false_computation")
            branches = [read_traffic(branch) for branch in op.called(*keys)]
            total.update(max(branches, key=lambda branch: sum(branch.values()), default={}))
        elif op.opcode in ("call", "call-start"):
            for inner in op.called("to_apply"):
                total.update(read_traffic(inner))
        elif num_bytes := _bytes_moved(op):
            total[_source(op)] += num_bytes
    return dict(total.most_common())


def _bytes_moved(op: Instruction) -> int:
    """Bytes that an instruction reads and writes."""
    if op.opcode in _FREE or any(kernel in op.attributes for kernel in _FREE_KERNELS):
        return 0
    # Of an asynchronous pair, the start reads and the end writes.
    moved = 0 if op.opcode.endswith("-done") else _bytes_read(op)
    if not op.opcode.endswith("-start"):
        sizes = zip(_written(op), arrays_of(op), strict=True)
        moved += sum(size for size, array in sizes if array.space == 0)
    return moved


def _bytes_read(op: Instruction) -> int:
    total = 0
    for position, operand in enumerate(operands_of(op)):
        for array in arrays_of(operand) if operand else ():
            if array.space == 0:
                part = min(_elements_read(op, position, array.size), array.size)
                total += array.num_bytes * part // array.size if part else 0
    return total


def _elements_read(op: Instruction, position: int, size: int) -> int:
    """Elements of an operand of `size` elements that an instruction reads."""
    if position == 0 and op.opcode in _SLICES:
        return arrays_of(op)[-2 if op.opcode.endswith("-start") else 0].size
    if position == 0 and op.opcode == "dynamic-update-slice":
        return 0
    if position == 0 and op.opcode == "scatter" and len(arrays_of(op)) == 1:
        return _update(op).size
    for fused in op.called("calls") if op.opcode == "fusion" else ():
        for parameter in fused.instructions.values():
            if parameter.opcode == "parameter" and parameter.operand_text == str(position):
                return _elements_used(parameter, size)
    return size


def _elements_used(array: Instruction, size: int) -> int:
    """Elements of an array within a fusion that its users read, `size` at most."""
    # As in XLA's `HloCostAnalysis`, except that views are followed, too.
    if array is root_of(array.computation):
        return size
    total = 0
    for user in users_of(array):
        for position, operand in enumerate(operands_of(user)):
            if operand is array and user.opcode in _VIEWS:
                total += _elements_used(user, size)
            elif operand is array:
                total += size if _updates_a_copy(user) else _elements_read(user, position, size)
    return min(total, size)


def _update(op: Instruction) -> Array:
    """The new values of an instruction that updates its first operand."""
    new = operands_of(op)[_UPDATES[op.opcode]]
    assert new is not None  # an array that is updated is known
    return arrays_of(new)[0]


def _written(op: Instruction) -> list[int]:
    """Bytes that each array of a result writes."""
    if op.opcode in _UPDATES and len(arrays_of(op)) == 1 and operands_of(op)[0]:
        return [_update(op).num_bytes]
    for fused in op.called("calls") if op.opcode == "fusion" else ():
        sizes = list(_written_by_fusion(root_of(fused)))
        if len(sizes) == len(arrays_of(op)):
            return sizes
    return [array.num_bytes for array in arrays_of(op)]


def _written_by_fusion(op: Instruction | None) -> Iterator[int]:
    assert op is not None  # operands within a fusion are known
    if op.opcode == "tuple":
        for element in operands_of(op):
            yield from _written_by_fusion(element)
    elif op.opcode == "bitcast":
        yield from _written_by_fusion(operands_of(op)[0])
    elif _updates_a_copy(op):
        yield arrays_of(op)[0].num_bytes
    else:
        yield from _written(op)


def _updates_a_copy(op: Instruction) -> bool:
    """Whether an instruction in a fusion updates what is no parameter, so that all is written."""
    if op.opcode not in _UPDATES:
        return False
    target = operands_of(op)[0]
    while target and target.opcode == "bitcast":
        target = operands_of(target)[0]
    return target is None or target.opcode != "parameter"


def _source(op: Instruction) -> str:
    """Source of an instruction: by its names, those of what uses it, or of its operands."""
    follow: Callable[[Instruction], Instruction | None]
    for follow in (_user, lambda op: next(iter(operands_of(op)), None)):
        near: Instruction | None = op
        while near is not None:
            if part := part_of(near.op_name) or _part_of_fused(near):
                return part
            near = follow(near)
    # The stacks of weights and activations that a scan reads from and writes to.
    return "scan of layers" if "stack._scan" in op.op_name else "other"


def _user(op: Instruction) -> Instruction | None:
    """The first use, unless it is in a loop or a result of the computation."""
    return next((user for user in users_of(op)[:1] if user.opcode not in ("tuple", "while")), None)


def _part_of_fused(op: Instruction) -> str | None:
    """Part of most of the names that an instruction fuses."""
    fused = (inner for called in op.called("calls") for inner in called.instructions.values())
    votes = collections.Counter(part for inner in fused if (part := part_of(inner.op_name)))
    return votes.most_common(1)[0][0] if votes else None


def operands_of(op: Instruction) -> list[Instruction | None]:
    """Instructions that one uses; None for those that the text lacks."""
    names = re.findall(r"%([\w.\-]+)", op.operand_text)
    return [op.computation.instructions.get(name) for name in names]


def users_of(op: Instruction) -> list[Instruction]:
    """Instructions that use one."""
    return _users(op.computation)[op.name]


@functools.lru_cache(maxsize=4096)
def _users(computation: Computation) -> dict[str, list[Instruction]]:
    users = collections.defaultdict(list)
    for user in computation.instructions.values():
        for operand in dict.fromkeys(operands_of(user)):
            if operand is not None:
                users[operand.name].append(user)
    return users


def root_of(computation: Computation) -> Instruction:
    """The result of a computation, which is the last instruction."""
    return list(computation.instructions.values())[-1]


def arrays_of(op: Instruction) -> tuple[Array, ...]:
    """Arrays of a result, such as `(f32[8,128]{1,0:T(8,128)S(1)}, s32[])`."""
    return _read_arrays(op.result)


@functools.lru_cache(maxsize=4096)
def _read_arrays(result: str) -> tuple[Array, ...]:
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
    return Array(math.prod(shape), width * math.prod(padded), int(space[1]) if space else 0)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]
