"""Bytes that a compiled step moves through the device memory (HBM), by where they come from."""

import collections
from collections.abc import Callable, Iterator

from jaxformer.hlo import Array, Computation, Instruction
from jaxformer.op_names import part_of

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


def read_traffic(program: Computation) -> dict[str, int]:
    """Bytes that a step reads from and writes to HBM on a device, by source, most first."""
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
        sizes = zip(_written(op), op.arrays, strict=True)
        moved += sum(size for size, array in sizes if array.space == 0)
    return moved


def _bytes_read(op: Instruction) -> int:
    total = 0
    for position, operand in enumerate(op.operands):
        for array in operand.arrays if operand else ():
            if array.space == 0:
                part = min(_elements_read(op, position, array.size), array.size)
                total += array.num_bytes * part // array.size if part else 0
    return total


def _elements_read(op: Instruction, position: int, size: int) -> int:
    """Elements of an operand of `size` elements that an instruction reads."""
    if position == 0 and op.opcode in _SLICES:
        return op.arrays[-2 if op.opcode.endswith("-start") else 0].size
    if position == 0 and op.opcode == "dynamic-update-slice":
        return 0
    if position == 0 and op.opcode == "scatter" and len(op.arrays) == 1:
        return _update(op).size
    for fused in op.called("calls") if op.opcode == "fusion" else ():
        for parameter in fused.instructions.values():
            if parameter.opcode == "parameter" and parameter.operand_text == str(position):
                return _elements_used(parameter, size)
    return size


def _elements_used(array: Instruction, size: int) -> int:
    """Elements of an array within a fusion that its users read, `size` at most."""
    # As in XLA's `HloCostAnalysis`, except that views are followed, too.
    if array is array.computation.root:
        return size
    total = 0
    for user in array.users:
        for position, operand in enumerate(user.operands):
            if operand is array and user.opcode in _VIEWS:
                total += _elements_used(user, size)
            elif operand is array:
                total += size if _updates_a_copy(user) else _elements_read(user, position, size)
    return min(total, size)


def _update(op: Instruction) -> Array:
    """The new values of an instruction that updates its first operand."""
    new = op.operands[_UPDATES[op.opcode]]
    assert new is not None  # an array that is updated is known
    return new.arrays[0]


def _written(op: Instruction) -> list[int]:
    """Bytes that each array of a result writes."""
    if op.opcode in _UPDATES and len(op.arrays) == 1 and op.operands[0]:
        return [_update(op).num_bytes]
    for fused in op.called("calls") if op.opcode == "fusion" else ():
        sizes = list(_written_by_fusion(fused.root))
        if len(sizes) == len(op.arrays):
            return sizes
    return [array.num_bytes for array in op.arrays]


def _written_by_fusion(op: Instruction | None) -> Iterator[int]:
    assert op is not None  # operands within a fusion are known
    if op.opcode == "tuple":
        for element in op.operands:
            yield from _written_by_fusion(element)
    elif op.opcode == "bitcast":
        yield from _written_by_fusion(op.operands[0])
    elif _updates_a_copy(op):
        yield op.arrays[0].num_bytes
    else:
        yield from _written(op)


def _updates_a_copy(op: Instruction) -> bool:
    """Whether an instruction in a fusion updates what is no parameter, so that all is written."""
    if op.opcode not in _UPDATES:
        return False
    target = op.operands[0]
    while target and target.opcode == "bitcast":
        target = target.operands[0]
    return target is None or target.opcode != "parameter"


def _source(op: Instruction) -> str:
    """Source of an instruction: by its names, those of what uses it, or of its operands."""
    follow: Callable[[Instruction], Instruction | None]
    for follow in (_user, lambda op: op.operands[0] if op.operands else None):
        near: Instruction | None = op
        while near is not None:
            if part := part_of(near.op_name) or _part_of_fused(near):
                return part
            near = follow(near)
    # The stacks of weights and activations that a scan reads from and writes to.
    return "scan of layers" if "stack._scan" in op.op_name else "other"


def _user(op: Instruction) -> Instruction | None:
    """The first use, unless it is in a loop or a result of the computation."""
    return next((user for user in op.users[:1] if user.opcode not in ("tuple", "while")), None)


def _part_of_fused(op: Instruction) -> str | None:
    """Part of most of the names that an instruction fuses."""
    fused = (inner for called in op.called("calls") for inner in called.instructions.values())
    votes = collections.Counter(part for inner in fused if (part := part_of(inner.op_name)))
    return votes.most_common(1)[0][0] if votes else None
