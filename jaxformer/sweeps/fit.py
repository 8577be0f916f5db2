"""Trains the runs of a sweep: those of one program at once, the programs one after the other."""

import contextlib
import functools
import inspect
import pathlib
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxformer.config import LoopConfig
from jaxformer.errors import ConfigError
from jaxformer.storage import as_path
from jaxformer.sweeps.runs import (
    SweepRun,
    SweepSpec,
    combine_values,
    failures_before,
    name_runs,
    write_sweep,
)
from jaxformer.training.checkpoints.locked_folder import lock_folder
from jaxformer.training.data import TrainingData, shares_batches
from jaxformer.training.fit import FitResult, check_run, result_of
from jaxformer.training.loop import TrainingLoop
from jaxformer.training.parallel import Runner, SingleRunner, TogetherRunner
from jaxformer.training.records.trackers import require_trackers
from jaxformer.training.trial import Recipe, RunSpec, Trial, make_trial


def fit_sweep(
    make: Callable[..., Trial],
    values: Mapping[str, Sequence[Any]],
    data: TrainingData | Callable[..., TrainingData],
    folder: str | pathlib.Path | None,
    loop: LoopConfig,
) -> list[SweepRun]:
    """Trains a run for each combination of values; those that differ in numbers share a program.

    A name whose values are numbers, one of them a float, is an argument of the compiled step, as is
    "seed". For each combination of the other values that `make` takes there is one program, and its
    runs train at once, split over the local devices. Each run has the losses that `fit` gives it
    alone, but for rounding. A run whose loss or gradient is not finite leaves the sweep, and the
    others go on.

    Args:
        make: function of values to what the run trains; it gets those that it has a parameter for,
            by name, except "seed". Numbers are traced arrays in it, so it must not branch on them
            in Python. A sweep trains all parameters, without `frozen`.
        values: values of each name. "seed" is the seed of parameters and dropout, as in `fit`; it
            is 0 if there is none.
        data: batches of all runs; or a function of all values, "seed" included, to those of a run.
            Batches of runs that share a program must have the same shapes.
        folder: folder of the sweep, with a run folder for each run, as `fit` writes it, and
            sweep.json. If it exists, the sweep is resumed, as in `fit`. None writes nothing.
        loop: as in `fit`.

    Returns:
        The runs, in the order of the combinations; the last name varies fastest.

    Raises:
        ConfigError: a name has no values or is not used, two runs have the same name, a trial has
            frozen parameters, or as in `fit`.
        CheckpointError: the folder is of another sweep, or as in `fit`.
        DataError: as in `fit`.

    Example:
        >>> import optax
        >>> def make(learning_rate):
        ...     loss = lambda w, batch, rng: (((batch["x"] - w) ** 2).sum(), batch["x"].size)
        ...     return Trial(loss, np.float32(0), optax.sgd(learning_rate))
        >>> data = TrainingData([{"x": np.ones(4, np.float32)}] * 20, unit="row")
        >>> runs = fit_sweep(
        ...     make, {"learning_rate": [0.01, 0.1]}, data, None, LoopConfig(steps=20, log_every=20)
        ... )  # doctest: +ELLIPSIS
        step 20/20  loss ...
        >>> [(run.name, round(float(run.result.params), 2)) for run in runs]
        [('learning_rate=0.01', 0.33), ('learning_rate=0.1', 0.99)]
    """
    takes = _names_taken(make, values)
    require_trackers(loop.log_to, None if folder is None else as_path(folder))
    unused = sorted(values.keys() - takes - {"seed"})
    if unused and not callable(data):
        raise ConfigError(
            f"names of values must be parameters of make, got {unused[0]!r}, which no function "
            "takes; rename it, or pass data as a function of the values"
        )
    traced = {name for name in takes if _are_numbers(values[name])}
    static = sorted(takes - traced)
    combinations = combine_values(values)
    makers: dict[tuple[int, ...], Callable[..., Trial]] = {}
    specs = []
    for name, options in zip(name_runs(combinations), combinations, strict=True):
        # By identity, because values need be neither equal to themselves nor hashable.
        compiled_in = tuple(id(options[key]) for key in static)
        numbers = {key: number for key, number in options.items() if key in {"seed", *traced}}
        if compiled_in not in makers:
            maker = functools.partial(make, **{key: options[key] for key in static})
            if make_trial(maker, numbers).frozen is not None:
                raise ConfigError("a sweep trains all parameters, got frozen ones; use fit")
            makers[compiled_in] = maker
        run = RunSpec(
            Recipe(makers[compiled_in], {"seed": 0} | numbers),
            data(**options) if callable(data) else data,
            loop,
            name=name,
        )
        specs.append(SweepSpec(run, options))
    return train_specs(specs, None if folder is None else as_path(folder))


def _names_taken(make: Callable[..., Trial], values: Mapping[str, Any]) -> set[str]:
    """The names of values that a function has parameters for, without "seed"."""
    parameters = inspect.signature(make).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return {name for name in values if takes_all or name in parameters} - {"seed"}


def _are_numbers(options: Sequence[Any]) -> bool:
    """Whether all are numbers, and not all of them integers."""
    kinds = {np.asarray(option).dtype.kind for option in options}
    return kinds <= {"i", "f"} and "f" in kinds


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
            if folder is not None and run.locked is None:
                locked = lock_folder(folder / run.name, run.loop.keep_checkpoints)
                run = run._replace(locked=stack.enter_context(locked))
            if run.name not in failures:
                key = id(run.recipe.make), run.loop, spec.num_devices, run.step
                groups.setdefault(key, []).append(run)
        write_sweep(specs, failures, folder)
        for (_, _, num_devices, _), group in groups.items():
            if stop_signal is None:
                training = TrainingLoop(group, _runner_of(group, num_devices))
                training.train()
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
