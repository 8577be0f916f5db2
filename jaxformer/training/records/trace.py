"""Reads traces of training steps: device time by part of the model, host time by activity."""

import collections
import functools
import pathlib
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from jaxformer.errors import DataError
from jaxformer.training.records import clock
from jaxformer.training.records.parts import part_of
from jaxformer.training.records.profiler import FOLDER

_CONTROL = {"while", "conditional", "call"}  # their events contain those of other operations
_ACTIVITIES = (clock.DATA, clock.COMPILING, clock.EVALUATING, clock.SAVING)
_STEP = "train"  # name of a step's event on the host
_OPTIMIZER = re.compile(r"\boptimizer\b")  # a program with such an operation is a training step

# The fields that are read of XPlane and HLO protocol buffers (openxla/xla: tsl/profiler/protobuf/
# xplane.proto, xla/service/hlo.proto): their numbers and types. A map is a list of entries.
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Space": {"planes": (1, "Plane")},
    "Plane": {"name": (2, "string"), "event_metadata": (4, "Entry")},
    "Entry": {"value": (2, "EventMetadata")},
    "EventMetadata": {"stats": (5, "Stat")},
    "Stat": {"bytes_value": (6, "bytes")},
    "Hlo": {"hlo_module": (1, "Module")},
    "Module": {"name": (1, "string"), "computations": (3, "Computation"), "id": (5, "int64")},
    "Computation": {"instructions": (2, "Instruction")},
    "Instruction": {"name": (1, "string"), "opcode": (2, "string"), "metadata": (7, "Metadata")},
    "Metadata": {"op_name": (2, "string")},
}
_REPEATED = {"planes", "event_metadata", "stats", "computations", "instructions"}


class StepProfile(NamedTuple):
    """Where the time of traced training steps went, in seconds per step.

    Args:
        steps: number of steps.
        device: seconds of operations on a device, by part of the model, most first; on a CPU, whose
            threads run operations at once, the sum of their times.
        host: seconds of the host's activities, such as waiting for data, most first.
    """

    steps: int
    device: Mapping[str, float]
    host: Mapping[str, float]


def read_profile(folder: pathlib.Path) -> StepProfile:
    """Reads the newest trace of a run folder.

    Args:
        folder: the run folder.

    Raises:
        DataError: there is no trace, or it has no training step.
    """
    paths = sorted((folder / FOLDER).glob("plugins/profile/*/*.xplane.pb"))
    if not paths:
        raise DataError(
            f"{folder} has no trace of steps; take one with --profile 20:25, which traces steps 20 "
            "to 24 of a training"
        )
    with warnings.catch_warnings():
        # Python warns of a class of jaxlib at its first use; as an error, that ends the process.
        warnings.simplefilter("ignore", DeprecationWarning)
        return _read(paths[-1])


def _read(path: pathlib.Path) -> StepProfile:
    profile, steps, host = jax.profiler.ProfileData.from_file(str(path)), 0, Counter[str]()
    programs = collections.defaultdict[_Program, Counter[str]](Counter)  # ns by operation
    for plane in profile.planes:
        for line in plane.lines:
            for event in line.events:
                if event.name == _STEP:
                    steps += 1
                elif event.name in _ACTIVITIES:
                    host[event.name] += event.duration_ns
                elif (operation := _operation(line.name, event)) is not None:
                    name, stats = operation
                    device = plane.name, stats.get("device_ordinal")
                    program = _Program(stats.get("hlo_module"), stats.get("program_id"), device)
                    programs[program][name] += event.duration_ns
    if not steps or not programs:
        raise DataError(f"{path} has no training step with operations; take another trace")
    spent, modules = Counter[str](), list(_modules(path))
    for program, operations in programs.items():
        parts = _parts(program, operations, modules)
        for name, duration in operations.items():
            if (part := parts.get(name, "other")) is not None:
                spent[part] += duration
    num_devices = len({program.device for program in programs})
    return StepProfile(
        steps=steps,
        device={part: ns / 1e9 / steps / num_devices for part, ns in spent.most_common()},
        host={name: ns / 1e9 / steps for name, ns in host.most_common()},
    )


class _Program(NamedTuple):
    """A program on a device, as the events of its operations name it."""

    module: str | None
    program_id: int | None
    device: tuple[str, int | None]


def _operation(line: str, event: Any) -> tuple[str, dict[str, Any]] | None:
    """Name of the operation that an event is, and its statistics; None for other events."""
    stats = dict(event.stats)
    if line == "XLA Ops":  # of a TPU, where an event's name is the whole instruction
        return event.name.partition(" = ")[0].lstrip("%"), stats
    return (stats["hlo_op"], stats) if "hlo_op" in stats else None


def _parts(
    program: _Program, operations: Iterable[str], modules: Sequence[Any]
) -> dict[str, str | None]:
    """Parts of a step by name of operation; None for those that contain others."""
    # Those of a program from the compilation cache have the number that it was compiled with, so
    # that its name and operations must do.
    named = [one for one in modules if program.module in (None, one.name)]
    found = {id(one): {each.name: each for each in _instructions(one)} for one in named}
    fitting = [one for one in named if found[id(one)].keys() >= set(operations)]
    if not fitting:
        return {}
    own = min(fitting, key=lambda one: (one.id != program.program_id, len(found[id(one)])))
    instructions = found[id(own)]
    is_step = any(_OPTIMIZER.search(one.metadata.op_name) for one in instructions.values())
    parts: dict[str, str | None] = {}
    for name, one in instructions.items():
        part = part_of(one.metadata.op_name) or "other" if is_step else "other programs"
        parts[name] = None if one.opcode in _CONTROL else part
    return parts


def _instructions(module: Any) -> Iterator[Any]:
    return (one for computation in module.computations for one in computation.instructions)


def _modules(path: pathlib.Path) -> Iterator[Any]:
    """HLO modules of the programs in a trace."""
    for plane in _message("Space").FromString(path.read_bytes()).planes:
        for entry in plane.event_metadata if plane.name == "/host:metadata" else ():
            for stat in entry.value.stats:
                if stat.bytes_value:
                    yield _message("Hlo").FromString(stat.bytes_value).hlo_module


@functools.cache
def _message(name: str) -> Any:
    """Class of a message of `_MESSAGES`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="jaxformer_trace.proto", package="jaxformer_trace", syntax="proto3"
    )
    types = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "string": types.TYPE_STRING, "bytes": types.TYPE_BYTES, "int64": types.TYPE_INT64
    }  # fmt: skip
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for field, (number, kind) in fields.items():
            label = types.LABEL_REPEATED if field in _REPEATED else types.LABEL_OPTIONAL
            one = described.field.add(name=field, number=number, label=label)
            one.type = scalars.get(kind, types.TYPE_MESSAGE)
            if kind not in scalars:
                one.type_name = f".jaxformer_trace.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"jaxformer_trace.{name}"))
