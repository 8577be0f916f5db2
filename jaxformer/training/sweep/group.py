"""Trains the runs of a sweep: those of one program at once, the programs one after the other."""

import contextlib
import functools
import pathlib
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxformer import stopping
from jaxformer.errors import ConfigError
from jaxformer.training.checkpoints import step_to_resume
from jaxformer.training.data import TrainingData, ValidationBatches, check_data
from jaxformer.training.fit import ANSWER, FitResult
from jaxformer.training.loop import TrainingLoop
from jaxformer.training.parallel import TogetherRunner, stop_agreement
from jaxformer.training.profiles import StepProfiler
from jaxformer.training.records import (
    MetricsWriter,
    Recorder,
    TrainingProgress,
    WallClock,
    open_checkpoints,
)
from jaxformer.training.sweep.runs import SweepRun, SweepSpec, start_folder, write_sweep
from jaxformer.training.trial import Recipe, make_programs, make_trial


def train_specs(specs: Sequence[SweepSpec], folder: pathlib.Path | None) -> list[SweepRun]:
    """Trains the runs of a sweep; arguments and errors are those of `fit_sweep`.

    Runs with the same program that resume at the same step train at once, the others one group
    after the other. A signal stops all.
    """
    failures = start_folder(specs, folder)
    groups: dict[Any, list[SweepSpec]] = {}
    for spec in specs:
        if spec.name not in failures:
            start = 0
            if folder is not None:
                start = step_to_resume(folder / spec.name / "checkpoints", spec.loop.steps)
            key = id(spec.make), spec.loop, spec.num_devices, start
            groups.setdefault(key, []).append(spec)
    results: dict[str, FitResult] = {}
    stopped: signal.Signals | None = None
    for group in groups.values():
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


def _train_group(
    specs: Sequence[SweepSpec], folder: pathlib.Path | None
) -> tuple[TrainingLoop, dict[str, FitResult]]:
    """Trains runs by one program, from the same step."""
    make, loop, clock = specs[0].make, specs[0].loop, WallClock()
    for spec in specs:
        check_data(spec.data, loop.steps)
    shares_batches = all(spec.data is specs[0].data for spec in specs)
    devices = jax.local_devices()[: specs[0].num_devices]
    runner = TogetherRunner(len(specs), shares_batches=shares_batches, devices=devices)
    recipes = [Recipe(make, spec.numbers) for spec in specs]
    first = make_trial(make, specs[0].numbers)
    if first.frozen is not None or first.combine is not None:
        raise ConfigError("a sweep trains all parameters, got frozen ones; train them with fit")
    start = specs[0].params if first.init_params is None else first.init_params
    start = None if callable(start) else start
    programs = make_programs(make, loop, runner)
    numbers = runner.place_numbers(
        jax.tree.map(lambda *one: np.stack(one), *(recipe.arguments for recipe in recipes))
    )
    with contextlib.ExitStack() as stack:
        folders = [None if folder is None else folder / spec.name for spec in specs]
        saved = [
            stack.enter_context(open_checkpoints(path, loop.keep_checkpoints)) for path in folders
        ]
        state = runner.create(programs.create, (numbers, start))
        step = saved[0].latest_step or 0
        if step:
            state = runner.join(
                [each.restore(runner.take(state, index)) for index, each in enumerate(saved)]
            )
        progress = stack.enter_context(
            TrainingProgress(
                step, loop.steps, unit=specs[0].data.unit, names=[spec.name for spec in specs]
            )
        )
        signals = stack.enter_context(stopping.finishing(ANSWER))
        agreement = stack.enter_context(stop_agreement(signals, is_shared=False))
        if step:
            progress.print(f"resuming {len(specs)} runs at step {step} of {loop.steps}")
        runs = []
        for index, (spec, recipe) in enumerate(zip(specs, recipes, strict=True)):
            path, checkpoints = folders[index], saved[index]
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
            config=loop, runs=runs, runner=runner, state=state, step=step, folder=folder,
            data=specs[0].data if shares_batches else _joined([spec.data for spec in specs]),
            programs=programs, arguments=(numbers, None), clock=clock, profiler=StepProfiler(clock),
            progress=progress, signals=signals, agreement=agreement,
        )  # fmt: skip
        together.train()
        for run in together.training:
            run.leave(together.state)
    together.stop_signal = together.stop_signal or signals.received
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
