"""Trains a group of runs by one program: the assembly of a training, whose loop is in `loop`."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxformer.errors import ConfigError
from jaxformer.stopping import StopRequest
from jaxformer.training.data import TrainingData, ValidationBatches, check_data
from jaxformer.training.loop import TrainingLoop
from jaxformer.training.parallel import Runner, is_first_process
from jaxformer.training.records import (
    MetricsWriter,
    Recorder,
    StepProfiler,
    TrainingProgress,
    WallClock,
)
from jaxformer.training.trial import Programs, RunSpec, make_programs


def check_run(spec: RunSpec) -> None:
    """Raises DataError for data that cannot be used, and ConfigError if validation is missing."""
    check_data(spec.data, spec.loop.steps)
    for callback in spec.callbacks:
        if spec.data.validation is None and getattr(callback, "needs_validation", False):
            raise ConfigError(f"{callback} needs validation data, got none; add it, or remove this")


def train_group(
    specs: Sequence[RunSpec],
    runner: Runner,
    programs: Programs | None = None,
    *,
    profile: range | None = None,
    notes: Iterable[str] = (),
) -> TrainingLoop:
    """Trains runs with the same program and initial parameters, from the same step.

    Args:
        specs: the runs, which have passed `check_run`.
        runner: runner of all runs, a `TogetherRunner` if there are several.
        programs: programs of the runs for this runner; made when not given.
        profile: as in `fit`.
        notes: lines to print before the first step.

    Returns:
        The loop, which has ended.
    """
    clock, loop, recipe = WallClock(), specs[0].loop, specs[0].recipe
    programs = programs or make_programs(recipe.make, loop, runner)
    checkpoints = [spec.checkpoints for spec in specs]
    start = specs[0].step
    numbers = runner.join([spec.recipe.arguments for spec in specs])
    # The initial state is computed by one program: eagerly, each leaf compiles one.
    state = runner.create(programs.create, (numbers, recipe.params), recipe.frozen)
    frozen = runner.place_frozen(recipe.frozen)
    if start:  # the initial state is the template
        saved = [runs.restore(runner.take(state, index)) for index, runs in enumerate(checkpoints)]
        state = runner.join(saved)
    specs = [
        spec._replace(recipe=spec.recipe._replace(params=None, frozen=frozen)) for spec in specs
    ]
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(
            TrainingProgress(
                start, loop.steps, unit=specs[0].data.unit, is_quiet=not is_first_process(),
                names=[spec.name for spec in specs],
            )
        )  # fmt: skip
        stop = stack.enter_context(StopRequest(is_shared=runner.num_hosts > 1))
        runs = [
            Recorder(
                spec=spec, trial=spec.recipe.trial, index=index, runner=runner,
                checkpoints=checkpoints[index], progress=progress, last_saved=start,
                metrics=stack.enter_context(
                    MetricsWriter(spec.folder, start, writes=is_first_process())
                ),
            )
            for index, spec in enumerate(specs)
        ]  # fmt: skip
        if start:
            count = f"{len(specs)} runs " if len(specs) > 1 else ""
            progress.print(f"resuming {count}at step {start} of {loop.steps}")
        for note in dict.fromkeys(notes):
            progress.print(note)
        profiler = StepProfiler(
            clock, profile if is_first_process() else None, specs[0].folder, start=start,
            programs=(programs.train, programs.evaluate),
        )  # fmt: skip
        training = TrainingLoop(
            runs=runs, data=_joined([spec.data for spec in specs]), runner=runner,
            programs=programs, arguments=(runner.place_frozen(numbers), frozen), state=state,
            progress=progress, stop=stop, clock=clock, profiler=profiler,
        )  # fmt: skip
        training.train()
    training.stop_signal = training.stop_signal or stop.received
    return training


def shares_batches(data: Sequence[TrainingData]) -> bool:
    """Whether runs have the same batches."""
    return all(part is data[0] for part in data)


class _Joined:
    """Batches of several runs, as tuples."""

    def __init__(self, parts: Sequence[TrainingData]) -> None:
        self._parts = parts

    def __getitem__(self, step: int) -> tuple[Any, ...]:
        return tuple(part.batches[step] for part in self._parts)


def _joined(parts: Sequence[TrainingData]) -> TrainingData:
    """Data of several runs, whose batches are tuples unless they are the same."""
    if shares_batches(parts):
        return parts[0]

    def validation() -> ValidationBatches:
        batches: list[Any] = [part.validation() for part in parts if part.validation is not None]
        if isinstance(batches[0], Mapping):
            return {
                name: zip(*(parts[name] for parts in batches), strict=True) for name in batches[0]
            }
        return zip(*batches, strict=True)

    has_validation = parts[0].validation is not None
    return TrainingData(_Joined(parts), validation if has_validation else None, unit=parts[0].unit)
