"""Trains the runs of a sweep: those of one program at once, the programs one after the other."""

import contextlib
import functools
import pathlib
import signal
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxformer.errors import ConfigError
from jaxformer.stopping import StopRequest
from jaxformer.training.checkpoints import Checkpoints, NoCheckpoints
from jaxformer.training.data import TrainingData, ValidationBatches, check_data
from jaxformer.training.fingerprint import (
    program_fingerprint,
    read_program,
    require_same_program,
    settings_of,
    write_program,
)
from jaxformer.training.fit import FitResult
from jaxformer.training.loop import TrainingLoop
from jaxformer.training.open_run import OpenRun, open_run
from jaxformer.training.parallel import TogetherRunner
from jaxformer.training.profiles import StepProfiler
from jaxformer.training.records import (
    MetricsWriter,
    Recorder,
    TrainingProgress,
    WallClock,
)
from jaxformer.training.sweep.runs import SweepRun, SweepSpec, failures_before, write_sweep
from jaxformer.training.trial import Recipe, Trial, make_programs, make_trial


def train_specs(
    specs: Sequence[SweepSpec],
    folder: pathlib.Path | None,
    opened: Mapping[str, OpenRun] | None = None,
) -> list[SweepRun]:
    """Trains the runs of a sweep; arguments and errors are those of `fit_sweep`.

    Runs with the same program that resume at the same step train at once, the others one group
    after the other. All programs are traced before the first run trains. A signal stops all.
    """
    failures = failures_before(specs, folder)
    programs: dict[int, dict[str, Any]] = {}
    for spec in specs:
        check_data(spec.data, spec.loop.steps)
        if id(spec.make) not in programs:
            programs[id(spec.make)] = _fingerprint(spec)
    with contextlib.ExitStack() as stack:
        if folder is not None and opened is None:
            opened = {
                spec.name: stack.enter_context(
                    open_run(folder / spec.name, spec.loop.keep_checkpoints)
                )
                for spec in specs
            }
        groups: dict[Any, list[_Start]] = {}
        for spec in specs:
            run = None if opened is None else opened[spec.name]
            start = _start(spec, run, programs[id(spec.make)], spec.name in failures)
            if spec.name not in failures:
                key = id(spec.make), spec.loop, spec.num_devices, start.step
                groups.setdefault(key, []).append(start)
        return _train_groups(specs, list(groups.values()), folder, failures)


def _train_groups(
    specs: Sequence[SweepSpec],
    groups: "Sequence[Sequence[_Start]]",
    folder: pathlib.Path | None,
    failures: dict[str, str],
) -> list[SweepRun]:
    """Trains groups of runs, one after the other; adds those that fail to `failures`."""
    write_sweep(specs, failures, folder)
    results: dict[str, FitResult] = {}
    stopped: signal.Signals | None = None
    for group in groups:
        if stopped is None:
            loop, found = _train_group(group, folder)
            results |= found
            failures |= {run.name: run.failure for run in loop.runs if run.failure}
            stopped = loop.stop_signal
            write_sweep(specs, failures, folder)
    nothing = FitResult(0, None, None, stopped)
    return [
        SweepRun(spec.name, spec.values, results.get(spec.name, nothing), failures.get(spec.name))
        for spec in specs
    ]


class _Start(NamedTuple):
    """A run, its fingerprint and checkpoints, and why that was not compared, if it was not."""

    spec: SweepSpec
    program: Mapping[str, Any]
    checkpoints: Checkpoints
    step: int
    note: str | None


def _start(
    spec: SweepSpec, run: OpenRun | None, program: Mapping[str, Any], has_failed: bool
) -> _Start:
    """Compares what a run trains with the record in its folder, if it is resumed."""
    program = {**program, "settings": settings_of(Recipe(spec.make, spec.numbers), spec.loop)}
    if run is None:
        return _Start(spec, program, NoCheckpoints(), 0, None)
    step, note = run.checkpoints.step_to_resume(spec.loop.steps), None
    record = read_program(run.folder)
    if record is not None and (step or has_failed):
        note = require_same_program(run.folder, record, program)
    return _Start(spec, program, run.checkpoints, step, note)


def _fingerprint(spec: SweepSpec) -> dict[str, Any]:
    """Fingerprint of the program of a run, which is traced; an error names the run."""
    trial = make_trial(spec.make, spec.numbers)
    if trial.frozen is not None or trial.combine is not None:
        raise ConfigError("a sweep trains all parameters, got frozen ones; train them with fit")
    recipe = Recipe(spec.make, spec.numbers, _initial_params(spec, trial))
    try:
        return program_fingerprint(recipe, spec.data, spec.loop)
    except Exception as error:
        error.add_note(f"in the run {spec.name}; no run of the sweep was trained")
        raise


def _initial_params(spec: SweepSpec, trial: Trial) -> Any:
    """Initial parameters of a run; None if its trial draws them."""
    params = spec.params if trial.init_params is None else trial.init_params
    return None if callable(params) else params


def _train_group(
    starts: Sequence[_Start], folder: pathlib.Path | None
) -> tuple[TrainingLoop, dict[str, FitResult]]:
    """Trains runs by one program, from the same step."""
    specs = [start.spec for start in starts]
    make, loop, clock = specs[0].make, specs[0].loop, WallClock()
    shares_batches = all(spec.data is specs[0].data for spec in specs)
    devices = jax.local_devices()[: specs[0].num_devices]
    runner = TogetherRunner(len(specs), shares_batches=shares_batches, devices=devices)
    recipes = [Recipe(make, spec.numbers) for spec in specs]
    params = _initial_params(specs[0], make_trial(make, specs[0].numbers))
    programs = make_programs(make, loop, runner)
    numbers = runner.place_numbers(
        jax.tree.map(lambda *one: np.stack(one), *(recipe.arguments for recipe in recipes))
    )
    with contextlib.ExitStack() as stack:
        folders = [None if folder is None else folder / spec.name for spec in specs]
        saved = [start.checkpoints for start in starts]
        state = runner.create(programs.create, (numbers, params))
        step = starts[0].step
        if step:
            state = runner.join(
                [each.restore(runner.take(state, index)) for index, each in enumerate(saved)]
            )
        progress = stack.enter_context(
            TrainingProgress(
                step, loop.steps, unit=specs[0].data.unit, names=[spec.name for spec in specs]
            )
        )
        stop = stack.enter_context(StopRequest())
        if step:
            progress.print(f"resuming {len(specs)} runs at step {step} of {loop.steps}")
        for note in dict.fromkeys(start.note for start in starts if start.note):
            progress.print(note)
        runs = []
        for index, (spec, recipe) in enumerate(zip(specs, recipes, strict=True)):
            path, checkpoints = folders[index], saved[index]
            if path is not None:
                write_program(path, starts[index].program)
            runs.append(
                Recorder(
                    config=loop, trial=recipe.trial, seed=recipe.seed, data=spec.data,
                    runner=runner, folder=path, checkpoints=checkpoints, last_saved=step,
                    metrics=stack.enter_context(MetricsWriter(path, step)),
                    print_line=functools.partial(progress.print_of, spec.name),
                    callbacks=spec.callbacks, name=spec.name, index=index,
                )
            )  # fmt: skip
        together = TrainingLoop(
            config=loop, runs=runs, runner=runner, state=state, step=step,
            data=specs[0].data if shares_batches else _joined([spec.data for spec in specs]),
            programs=programs, arguments=(numbers, None), clock=clock, profiler=StepProfiler(clock),
            progress=progress, stop=stop,
        )  # fmt: skip
        together.train()
        for run in together.training:
            run.leave(together.state)
    together.stop_signal = together.stop_signal or stop.received
    return together, {
        run.name: FitResult(
            run.step, run.params, run.evaluation, together.stop_signal, run.metrics.records
        )
        for run in runs
    }


class _Joined:
    """Batches of several runs, as tuples."""

    def __init__(self, parts: Sequence[TrainingData]) -> None:
        self._parts = parts

    def __getitem__(self, step: int) -> tuple[Any, ...]:
        return tuple(part.batches[step] for part in self._parts)


def _joined(parts: Sequence[TrainingData]) -> TrainingData:
    """Data of several runs, whose batches are tuples."""

    def validation() -> ValidationBatches:
        found: list[Any] = [part.validation() for part in parts if part.validation is not None]
        if isinstance(found[0], Mapping):
            return {name: zip(*(one[name] for one in found), strict=True) for name in found[0]}
        return zip(*found, strict=True)

    has_validation = parts[0].validation is not None
    return TrainingData(_Joined(parts), validation if has_validation else None, unit=parts[0].unit)
