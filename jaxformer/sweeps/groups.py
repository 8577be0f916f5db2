"""Trains the runs of a sweep: those of one program at once, the programs one after the other."""

import contextlib
import pathlib
import signal
from collections.abc import Sequence
from typing import Any

import jax

from jaxformer.sweeps.runs import SweepRun, SweepSpec, failures_before, write_sweep
from jaxformer.training.checkpoints.open_run import open_run
from jaxformer.training.data import shares_batches
from jaxformer.training.fit import FitResult, check_run, result_of, train_group
from jaxformer.training.parallel import Runner, SingleRunner, TogetherRunner
from jaxformer.training.trial import RunSpec


def train_specs(specs: Sequence[SweepSpec], folder: pathlib.Path | None) -> list[SweepRun]:
    """Trains the runs of a sweep, as `fit_sweep` does; those with the same program at once."""
    failures = failures_before(specs, folder)
    groups: dict[Any, list[RunSpec]] = {}
    results: dict[str, FitResult] = {}
    stop_signal: signal.Signals | None = None
    for spec in specs:
        check_run(spec.run)
    with contextlib.ExitStack() as stack:
        for spec in specs:
            run = spec.run
            if folder is not None and run.opened is None:
                opened = open_run(folder / run.name, run.loop.keep_checkpoints)
                run = run._replace(opened=stack.enter_context(opened))
            if run.name not in failures:
                key = id(run.recipe.make), run.loop, spec.num_devices, run.step
                groups.setdefault(key, []).append(run)
        write_sweep(specs, failures, folder)
        for (_, _, num_devices, _), group in groups.items():
            if stop_signal is None:
                training = train_group(group, _runner_of(group, num_devices))
                for recorder in training.runs:
                    results[recorder.name] = result_of(recorder, training)
                    if recorder.failure is not None:
                        failures[recorder.name] = str(recorder.failure)
                stop_signal = training.stop_signal
                write_sweep(specs, failures, folder)
    nothing = FitResult(0, None, None, stop_signal)
    return [
        SweepRun(name, spec.values, results.get(name, nothing), failures.get(name))
        for name, spec in ((spec.run.name, spec) for spec in specs)
    ]


def _runner_of(group: Sequence[RunSpec], num_devices: int | None) -> Runner:
    """Runner of a group on so many local devices, all if None."""
    devices = jax.local_devices()[:num_devices]
    if len(group) == 1:
        return SingleRunner(devices[0])
    shared = shares_batches([run.data for run in group])
    return TogetherRunner(len(group), shares_batches=shared, devices=devices)
