"""Trains the runs of a sweep: those of one program at once, the programs one after the other."""

import contextlib
import pathlib
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from jaxformer.errors import ConfigError
from jaxformer.training.checkpoints.open_run import open_run
from jaxformer.training.data import batch_at, shares_batches
from jaxformer.training.fit import FitResult, check_run, result_of, train_group
from jaxformer.training.parallel import Runner, SingleRunner, TogetherRunner
from jaxformer.training.sweep.runs import SweepRun, SweepSpec, failures_before, write_sweep
from jaxformer.training.trial import RunSpec, make_programs, make_trial


def train_specs(specs: Sequence[SweepSpec], folder: pathlib.Path | None) -> list[SweepRun]:
    """Trains the runs of a sweep, as `fit_sweep` does; those with the same program at once."""
    failures = failures_before(specs, folder)
    params: dict[int, Any] = {}
    for spec in specs:
        check_run(spec.run)
        if id(spec.run.recipe.make) not in params:
            params[id(spec.run.recipe.make)] = _checked_params(spec.run)
    with contextlib.ExitStack() as stack:
        groups: dict[Any, list[RunSpec]] = {}
        for spec in specs:
            run, make = spec.run, spec.run.recipe.make
            if folder is not None and run.opened is None:
                opened = open_run(folder / run.name, run.loop.keep_checkpoints)
                run = run._replace(opened=stack.enter_context(opened))
            if run.name not in failures:
                run = run._replace(recipe=run.recipe._replace(params=params[id(make)]))
                key = id(make), run.loop, spec.num_devices, run.step
                groups.setdefault(key, []).append(run)
        return _train_groups(specs, groups, folder, failures)


def _checked_params(run: RunSpec) -> Any:
    """Initial parameters of a run, None if they are drawn; traces its step, to find mistakes."""
    recipe, runner = run.recipe, SingleRunner()
    try:
        trial = make_trial(recipe.make, recipe.numbers)
        if trial.frozen is not None or trial.combine is not None:
            raise ConfigError("a sweep trains all parameters, got frozen ones; train them with fit")
        params = recipe.params if trial.init_params is None else trial.init_params
        params = None if callable(params) else params
        programs = make_programs(recipe.make, run.loop, runner)
        state = jax.eval_shape(programs.create, recipe.arguments, params)
        batch = batch_at(run.data.batches, 0, run.loop.accumulate_steps)
        programs.train.lower(state, batch, recipe.arguments, None)
        return params
    except Exception as error:
        error.add_note(f"in the run {run.name}; no run of the sweep was trained")
        raise


def _train_groups(
    specs: Sequence[SweepSpec],
    groups: Mapping[Any, Sequence[RunSpec]],
    folder: pathlib.Path | None,
    failures: dict[str, str],
) -> list[SweepRun]:
    """Trains groups of runs, one after the other; adds those that fail to `failures`."""
    write_sweep(specs, failures, folder)
    results: dict[str, FitResult] = {}
    stop_signal: signal.Signals | None = None
    for (_, _, num_devices, _), group in groups.items():
        if stop_signal is None:
            training = train_group(group, _runner_of(group, num_devices))
            for run in training.runs:
                results[run.name] = result_of(run, training)
                if run.failure is not None:
                    failures[run.name] = str(run.failure)
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
