"""Reads traces of training steps: device time by part of the model, host time by activity."""

import pathlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from jaxformer.errors import DataError
from jaxformer.op_names import is_of_gradient, part_of
from jaxformer.storage import read_whole
from jaxformer.training.profiles.profiler import FOLDER, STEP
from jaxformer.training.protobuf import Messages
from jaxformer.training.records.clock import RECORDED

_CONTROL = {"while", "conditional", "call"}  # their events contain those of other operations

# The fields that are read of XPlane and HLO protocol buffers (openxla/xla: tsl/profiler/protobuf/
# xplane.proto, xla/service/hlo.proto): their numbers and types. A map is a list of entries.
_FIELDS: Mapping[str, Mapping[str, tuple[int, str]]] = {
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
_REPEATED = frozenset({"planes", "event_metadata", "stats", "computations", "instructions"})
_MESSAGES = Messages(_FIELDS, _REPEATED)


class StepProfile(NamedTuple):
    """Mean time of a traced training step, by part of the model and by activity of the host.

    Args:
        steps: number of traced steps.
        device_seconds: seconds per step of each part of the model, largest first: the sum of the
            durations of its operations, averaged over devices. On a CPU, operations run in
            parallel, so that the sum can exceed the time of the step. "other" are operations of the
            step whose part is unknown, "other programs" those of validation and saving.
        host_seconds: seconds per step of activities of the host, such as "waiting for data",
            largest first.
    """

    steps: int
    device_seconds: Mapping[str, float]
    host_seconds: Mapping[str, float]


def read_profile(folder: pathlib.Path) -> StepProfile:
    """Reads the newest trace of a run folder.

    Args:
        folder: the run folder.

    Returns:
        Where the time of the traced steps went.

    Raises:
        DataError: there is no trace, or it has no training step.

    Example:
        >>> profile = read_profile(pathlib.Path("runs/traced"))  # doctest: +SKIP
        >>> profile.device_seconds["attention"]  # doctest: +SKIP
        0.291
    """
    own = (folder / FOLDER).resolve()
    paths = [
        path
        for path in sorted((folder / FOLDER).glob("plugins/profile/*/*.xplane.pb"))
        if path.resolve().is_relative_to(own) and not (folder / FOLDER).is_symlink()
    ]  # without those behind links
    if not paths:
        raise DataError(
            f"{folder} has no trace of steps; train with --profile 20:25, or in Python with "
            "profile=range(20, 25), to trace steps 20 to 24"
        )
    with warnings.catch_warnings():
        # Python warns of a class of jaxlib at its first use; as an error, that aborts the process.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return _read(paths[-1])
        except RuntimeError as error:
            raise DataError(f"{paths[-1]} is damaged: {error}; remove its folder") from None


def _read(path: pathlib.Path) -> StepProfile:
    content, steps, host = read_whole(path), 0, Counter[str]()
    profile = jax.profiler.ProfileData.from_serialized_xspace(content)
    programs = defaultdict[_Program, Counter[str]](Counter)  # ns by operation
    for plane in profile.planes:
        for line in plane.lines:
            for event in line.events:
                if event.name == STEP:
                    steps += 1
                elif event.name in RECORDED:
                    host[event.name] += event.duration_ns
                elif (operation := _operation(line.name, event)) is not None:
                    name, stats = operation
                    device = plane.name, stats.get("device_ordinal")
                    program = _Program(stats.get("hlo_module"), stats.get("program_id"), device)
                    programs[program][name] += event.duration_ns
    if not steps or not programs:
        raise DataError(f"{path} has no training step; take a trace of some with --profile")
    spent, modules = Counter[str](), list(_modules(content))
    # What the host of an accelerator computes is not of the step.
    on_devices = [program for program in programs if "/device:" in program.device[0]]
    for program in on_devices or programs:
        operations = programs[program]
        parts = _parts(program, operations, modules)
        for name, duration in operations.items():
            if (part := parts.get(name, "other")) is not None:
                spent[part] += duration
    num_devices = len({program.device for program in on_devices or programs})
    return StepProfile(
        steps=steps,
        device_seconds={part: ns / 1e9 / steps / num_devices for part, ns in spent.most_common()},
        host_seconds={name: ns / 1e9 / steps for name, ns in host.most_common()},
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
    # A program from the compilation cache keeps the id of the process that compiled it, so ids may
    # differ: name and operations decide, and an equal id is preferred.
    found = [
        (one.id != program.program_id, {each.name: each for each in _instructions(one)})
        for one in modules
        if program.module in (None, one.name)
    ]
    fitting = [each for each in found if each[1].keys() >= set(operations)]
    if not fitting:
        return {}
    _, instructions = min(fitting, key=lambda each: (each[0], len(each[1])))
    is_step = any(is_of_gradient(one.metadata.op_name) for one in instructions.values())
    parts: dict[str, str | None] = {}
    for name, one in instructions.items():
        part = part_of(one.metadata.op_name) or "other" if is_step else "other programs"
        parts[name] = None if one.opcode in _CONTROL else part
    return parts


def _instructions(module: Any) -> Iterator[Any]:
    return (one for computation in module.computations for one in computation.instructions)


def _modules(content: bytes) -> Iterator[Any]:
    """HLO modules of the programs in a trace."""
    for plane in _MESSAGES["Space"].FromString(content).planes:
        for entry in plane.event_metadata if plane.name == "/host:metadata" else ():
            for stat in entry.value.stats:
                if stat.bytes_value:
                    yield _MESSAGES["Hlo"].FromString(stat.bytes_value).hlo_module
