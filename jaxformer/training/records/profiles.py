"""Traces of training steps with `jax.profiler`: device time by part of the model, and host time."""

import contextlib
import gzip
import json
import pathlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from jaxformer.errors import ConfigError, DataError
from jaxformer.hlo import parse_hlo
from jaxformer.op_names import is_of_gradient, part_of
from jaxformer.storage import read_whole, written_folder
from jaxformer.training.parallel import Program
from jaxformer.training.records.clock import RECORDED, Activity, WallClock

FOLDER = "profile"
STEP = "train"  # name of a step in a trace
_PROGRAMS = "programs.txt"  # the compiled programs, one after the other
_CONTROL = {"while", "conditional", "call"}  # their events contain those of other operations


class StepProfiler:
    """Traces steps, counted from 1, of a training into `profile/` of its run folder."""

    def __init__(
        self, clock: WallClock, steps: range | None = None, folder: pathlib.Path | None = None, *,
        start: int = 0, programs: Iterable[Program] = (),
    ) -> None:  # fmt: skip
        self._clock, self._folder, self._programs = clock, folder, programs
        # Of a resumed training, the steps that are left, so that the same command resumes it.
        self._steps = range(max(steps.start, start + 1), steps.stop) if steps else range(0)
        self._trace = contextlib.ExitStack()

    def __enter__(self) -> "StepProfiler":
        return self

    def __exit__(self, *_: object) -> None:
        self._trace.close()

    def before(self, step: int, last_metrics: Any) -> None:
        """Starts the trace before its first step, when the step before that one has ended."""
        if self._folder and step in self._steps[:1]:
            jax.block_until_ready(last_metrics)
            with self._clock.during(Activity.OTHER):
                self._trace.enter_context(_traced(self._folder / FOLDER, self._programs))

    def after(self, step: int, metrics: Any) -> None:
        """Ends the trace when its last step has ended."""
        if step in self._steps[-1:]:
            jax.block_until_ready(metrics)
            with self._clock.during(Activity.OTHER):
                self._trace.close()


@contextlib.contextmanager
def _traced(folder: pathlib.Path, programs: Iterable[Program]) -> Iterator[None]:
    """Context whose trace is written to a folder, with the text of programs."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # every call of Python would be an event
    with written_folder(folder) as path:
        with jax.profiler.trace(str(path), profiler_options=options):
            yield
        text = "\n".join(text for program in programs for text in program.texts())
        (path / _PROGRAMS).write_text(text, encoding="utf-8")


def check_profile(steps: range, folder: pathlib.Path | None, end: int) -> None:
    """Raises ConfigError for steps that a training of `end` steps lacks, or without a folder."""
    if not (1 <= steps.start < steps.stop <= end + 1 and steps.step == 1):
        raise ConfigError(
            f"steps to trace must be consecutive and in 1 .. {end}, got {steps}; try "
            f"{min(2, end)}:{min(7, end + 1)}"
        )
    if folder is None:
        raise ConfigError("profile needs a run folder to write to, got folder=None; pass a folder")


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
    paths = sorted((folder / FOLDER).glob("plugins/profile/*/*.trace.json.gz"))
    if not paths:
        raise DataError(
            f"{folder} has no trace of steps; train with --profile 20:25, or in Python with "
            "profile=range(20, 25), to trace steps 20 to 24"
        )
    events = json.loads(gzip.decompress(read_whole(paths[-1])))["traceEvents"]
    names = {
        (event["pid"], event.get("tid")): event["args"]["name"]
        for event in events if event.get("name") in ("process_name", "thread_name")
    }  # fmt: skip
    # Microseconds by operation, of each run of a program: its name, its id, and the device.
    runs = defaultdict[tuple[str | None, str | None, Any], Counter[str]](Counter)
    steps, host = 0, Counter[str]()
    for event in events:
        name, args = event.get("name"), event.get("args", {})
        if name == STEP:
            steps += 1
        elif name in RECORDED:
            host[name] += event["dur"]
        # A TPU has its operations on a line of their own.
        elif "hlo_op" in args or names.get((event.get("pid"), event.get("tid"))) == "XLA Ops":
            device = event["pid"], args.get("device_ordinal")
            run = args.get("hlo_module"), args.get("run_id"), device
            runs[run][args.get("hlo_op", name)] += event["dur"]
    if not steps or not runs:
        raise DataError(f"{paths[-1]} has no training step; take a trace of some with --profile")
    # What the host of an accelerator computes is not of the step.
    on_devices = [run for run in runs if "/device:" in names.get((run[2][0], None), "")]
    programs = _read_programs(read_whole(folder / FOLDER / _PROGRAMS).decode())
    spent = Counter[str]()
    for run in on_devices or runs:
        fitting = [
            parts for name, parts in programs
            if run[0] in (None, name) and runs[run].keys() <= parts.keys()
        ]  # fmt: skip
        parts = min(fitting, key=len, default={})
        for operation, duration in runs[run].items():
            if (part := parts.get(operation, "other programs")) is not None:
                spent[part] += duration
    num_devices = len({device for _, _, device in on_devices or runs})
    return StepProfile(
        steps=steps,
        device_seconds={part: us / 1e6 / steps / num_devices for part, us in spent.most_common()},
        host_seconds={name: us / 1e6 / steps for name, us in host.most_common()},
    )


def _read_programs(text: str) -> list[tuple[str, dict[str, str | None]]]:
    """Name of each program, and the part of each operation; None for those that contain others."""
    programs = []
    for module in re.split(r"^HloModule ", text, flags=re.MULTILINE)[1:]:
        computations = parse_hlo(module).program.values()
        operations = [
            operation
            for computation in computations
            for operation in computation.instructions.values()
        ]
        is_step = any(is_of_gradient(operation.op_name) for operation in operations)
        parts: dict[str, str | None] = {}
        for operation in operations:
            part = part_of(operation.op_name) or "other" if is_step else "other programs"
            parts[operation.name] = None if operation.opcode in _CONTROL else part
        programs.append((module.partition(",")[0].split()[0], parts))
    return programs
