"""`fit_sweep`: trains runs that differ in numbers in one program, each in a run folder."""

import contextlib
import functools
import itertools
import json
import pathlib
import re
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from jaxformer import stopping
from jaxformer.config import LoopConfig
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.storage import make_folder, read_whole, write_whole
from jaxformer.training.callbacks import Callback
from jaxformer.training.checkpoints import Checkpoints
from jaxformer.training.data import TrainingData, ValidationBatches, check_data
from jaxformer.training.fit import ANSWER, FitResult
from jaxformer.training.health import Health
from jaxformer.training.loop import TrainingLoop
from jaxformer.training.losses import LossFunction
from jaxformer.training.metrics import MetricsWriter
from jaxformer.training.parallel import TogetherRunner, stop_agreement
from jaxformer.training.progress import TrainingProgress
from jaxformer.training.recorder import Recorder, open_checkpoints
from jaxformer.training.state import TrainState
from jaxformer.training.step import make_eval_step, make_train_step

__all__ = ["SweepRun", "SweepSpec", "Trial", "fit_sweep", "name_runs", "read_sweep", "train_specs"]

_FILE = "sweep.json"


class Trial(NamedTuple):
    """What a run of a sweep trains; each as in `fit`.

    Args:
        loss: function of (params, batch, dropout_rng) that returns (loss_sum, weight_sum).
        init_params: initial parameters, or a function of a PRNG key that returns them.
        optimizer: any optax transformation.
        validation_loss: loss of the validation batches; `loss` when not given.
        learning_rate: the optimizer's schedule, to record the learning rate with the metrics.
    """

    loss: LossFunction
    init_params: Any
    optimizer: optax.GradientTransformation
    validation_loss: LossFunction | None = None
    learning_rate: optax.Schedule | None = None


class SweepRun(NamedTuple):
    """A run of a sweep.

    Args:
        name: name of the run, and of its folder.
        values: what distinguishes it, by name.
        result: how its training ended; its params are None if the run failed in an earlier call,
            or if a signal stopped the sweep before the run began.
        failure: why the run left the sweep early, such as a loss that is not finite.
    """

    name: str
    values: Mapping[str, Any]
    result: FitResult
    failure: str | None = None


class SweepSpec(NamedTuple):
    """A run of a sweep before it is trained.

    Args:
        name: name of the run, and of its folder.
        values: what distinguishes it, for people.
        numbers: its numbers, by name, "seed" among them. They are arguments of the program.
        make: function of the numbers except the seed to a `Trial`. Runs with the same function
            share a program.
        loop: settings of the loop. Runs that share a program share them, too.
        data: batches.
        callbacks: as in `fit`.
    """

    name: str
    values: Mapping[str, Any]
    numbers: Mapping[str, float]
    make: Callable[..., Trial]
    loop: LoopConfig
    data: TrainingData
    callbacks: Sequence[Callback] = ()


def fit_sweep(
    make: Callable[..., Trial],
    values: Mapping[str, Sequence[Any]],
    data: TrainingData | Callable[..., TrainingData],
    folder: str | pathlib.Path | None,
    loop: LoopConfig,
    *,
    compiled_in: Collection[str] = (),
    callbacks: Callable[..., Sequence[Callback]] | None = None,
) -> list[SweepRun]:
    """Trains a run for each combination of values; those that differ in numbers share a program.

    A name whose values are numbers, one of them a float, is an argument of the compiled step, as is
    "seed". For each combination of the other values there is one program, and its runs train at
    once, split over the local devices. Each run has the losses that `fit` gives it alone, but for
    rounding. A run whose loss or gradient is not finite leaves the sweep, and the others go on.

    Args:
        make: function of the values as keyword arguments, except "seed", to what the run trains.
            Numbers are traced arrays in it, so it must not branch on them in Python.
        values: values of each name. "seed" is the seed of parameters and dropout, as in `fit`; it
            is 0 if there is none.
        data: batches of all runs; or a function of all values, "seed" included, to those of a run.
            Batches of runs that share a program must have the same shapes.
        folder: folder of the sweep, with a run folder for each run, as `fit` writes it, and
            sweep.json. If it exists, the sweep is resumed. None writes nothing.
        loop: as in `fit`.
        compiled_in: names of numbers that `make` must know as such, for example because they
            are a shape. Each of their values makes another program.
        callbacks: function of all values to the callbacks of a run.

    Returns:
        The runs, in the order of the combinations; the last name varies fastest.

    Raises:
        ConfigError: a name has no values, two runs have the same name, or as in `fit`.
        CheckpointError: the folder is of another sweep, or as in `fit`.
        DataError: as in `fit`.
        StorageError: as in `fit`.

    Example:
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
    for name, options in values.items():
        if not len(options):
            raise ConfigError(f"values must have at least one value of each name, got none: {name}")
    traced = {
        name for name, options in values.items()
        if name == "seed" or (name not in compiled_in and _are_numbers(options))
    }  # fmt: skip
    combinations = [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]
    makers: dict[str, Callable[..., Trial]] = {}
    specs = []
    for name, one in zip(name_runs(combinations), combinations, strict=True):
        static = {key: value for key, value in one.items() if key not in traced}
        specs.append(
            SweepSpec(
                name=name,
                values=one,
                numbers={"seed": 0, **{key: one[key] for key in one if key in traced}},
                make=makers.setdefault(repr(static), functools.partial(make, **static)),
                loop=loop,
                data=data(**one) if callable(data) else data,
                callbacks=() if callbacks is None else callbacks(**one),
            )
        )
    return train_specs(specs, None if folder is None else pathlib.Path(folder))


def _are_numbers(options: Sequence[Any]) -> bool:
    """Whether all are numbers, and not all of them integers."""
    kinds = {np.asarray(option).dtype.kind for option in options}
    return kinds <= {"i", "f"} and "f" in kinds


def name_runs(combinations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of runs, by the values that distinguish them, in the order of the names of these.

    Args:
        combinations: values of each run, by dotted keys.

    Raises:
        ConfigError: two runs have the same name.

    Example:
        >>> name_runs([{"optimizer.learning_rate": 1e-3, "seed": 0}])
        ['learning_rate=0.001,seed=0']
    """
    names: list[str] = []
    for one in combinations:
        last = [key.rpartition(".")[2] for key in one]
        keys = last if len(set(last)) == len(last) else list(one)
        parts = [f"{key}={_text(value)}" for key, value in zip(keys, one.values(), strict=True)]
        name = ",".join(sorted(parts)) or "run"
        if name in names:
            raise ConfigError(f"the runs of a sweep must differ, got {name} twice; remove one")
        names.append(name)
    return names


def _text(value: Any) -> str:
    """A value in the name of a folder."""
    text = f"{value:g}" if np.asarray(value).dtype.kind == "f" else str(value)
    return re.sub(r"[^\w.+-]+", "_", text)


def train_specs(specs: Sequence[SweepSpec], folder: pathlib.Path | None) -> list[SweepRun]:
    """Trains the runs of a sweep; arguments and errors are those of `fit_sweep`.

    Runs with the same program that resume at the same step train at once, the others one group
    after the other. A signal stops all.
    """
    failures = _start_folder(specs, folder)
    groups: dict[Any, list[SweepSpec]] = {}
    for spec in specs:
        if spec.name not in failures:
            key = id(spec.make), spec.loop, _start(spec, folder)
            groups.setdefault(key, []).append(spec)
    results: dict[str, FitResult] = {}
    stopped: signal.Signals | None = None
    for group in groups.values():
        if stopped is None:
            loop, found = _train_group(group, folder)
            results |= found
            failures |= {run.name: run.failure for run in loop.runs if run.failure}
            stopped = loop.stop_signal
            _write(specs, failures, folder)
    nothing = FitResult(0, None, None, stopped)
    return [
        SweepRun(spec.name, spec.values, results.get(spec.name, nothing), failures.get(spec.name))
        for spec in specs
    ]


def _start(spec: SweepSpec, folder: pathlib.Path | None) -> int:
    """Step that a run starts from."""
    path = None if folder is None else folder / spec.name / "checkpoints"
    if path is None or not path.is_dir():
        return 0
    with Checkpoints(path, read_only=True) as checkpoints:
        return checkpoints.step_to_resume(spec.loop.steps)


def _train_group(
    specs: Sequence[SweepSpec], folder: pathlib.Path | None
) -> tuple[TrainingLoop, dict[str, FitResult]]:
    """Trains runs by one program, from the same step."""
    make, loop = specs[0].make, specs[0].loop
    for spec in specs:
        check_data(spec.data, loop.steps)
    shares_batches = all(spec.data is specs[0].data for spec in specs)
    runner = TogetherRunner(len(specs), shares_batches=shares_batches)
    numbers = runner.place_numbers(_stacked_numbers(specs))
    first = make(**_rest(specs[0].numbers))
    start = None if callable(first.init_params) else first.init_params

    def create(own: Mapping[str, jax.Array], start: Any) -> TrainState:
        trial = make(**_rest(own))
        draw = trial.init_params
        params = draw(jax.random.key(own["seed"])) if start is None else start
        return TrainState.create(
            params, trial.optimizer, averages=loop.average_decay is not None
        )  # fmt: skip

    def train_step(state: TrainState, batch: Any, own: Mapping[str, jax.Array]) -> Any:
        trial = make(**_rest(own))
        step = make_train_step(
            trial.loss, trial.optimizer, seed=own["seed"], accumulate_steps=loop.accumulate_steps,
            skip_bad_steps=loop.skip_bad_steps, average_decay=loop.average_decay,
        )  # fmt: skip
        return step(state, batch)

    def eval_step(params: Any, batch: Any, own: Mapping[str, jax.Array]) -> Any:
        trial = make(**_rest(own))
        return make_eval_step(trial.validation_loss or trial.loss)(params, batch)

    with contextlib.ExitStack() as stack:
        folders = [None if folder is None else folder / spec.name for spec in specs]
        saved = [
            stack.enter_context(open_checkpoints(path, loop.keep_checkpoints)) for path in folders
        ]
        state = runner.create_each(create, numbers, start)
        step = (saved[0].latest_step or 0) if folder else 0
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
        for index, (spec, path, checkpoints) in enumerate(zip(specs, folders, saved, strict=True)):
            trial = make(**_rest(spec.numbers))
            health = Health(
                loss=trial.loss, seed=int(spec.numbers["seed"]), data=spec.data, runner=runner,
                config=loop, folder=path, print_line=progress.print, explains=False,
            )  # fmt: skip
            runs.append(
                Recorder(
                    config=loop, data=spec.data, folder=path, checkpoints=checkpoints,
                    metrics=stack.enter_context(MetricsWriter(path, step)), health=health,
                    last_saved=step, learning_rate=trial.learning_rate, callbacks=spec.callbacks,
                    name=spec.name, index=index,
                )
            )  # fmt: skip
        together = TrainingLoop(
            config=loop, runs=runs, runner=runner, state=state, step=step, folder=folder,
            data=specs[0].data if shares_batches else _joined([spec.data for spec in specs]),
            train_step=runner.compile_train(train_step, numbers),
            eval_step=runner.compile_eval(eval_step, numbers),
            progress=progress, signals=signals, agreement=agreement, take=runner.take,
        )  # fmt: skip
        together.train()
        params = together.state.evaluated
    together.stop_signal = together.stop_signal or signals.received
    return together, {
        run.name: FitResult(
            run.last_saved if run.has_left else together.step,
            runner.take(params, index), run.evaluation, together.stop_signal, run.metrics.records,
        )
        for index, run in enumerate(runs)
    }  # fmt: skip


def _rest(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that `make` takes."""
    return {name: number for name, number in numbers.items() if name != "seed"}


def _stacked_numbers(specs: Sequence[SweepSpec]) -> dict[str, np.ndarray]:
    return {
        name: np.array(
            [spec.numbers[name] for spec in specs], np.int32 if name == "seed" else np.float32
        )
        for name in specs[0].numbers
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


# The file of a sweep.


def _start_folder(specs: Sequence[SweepSpec], folder: pathlib.Path | None) -> dict[str, str]:
    """Makes the folder of a sweep, or compares it; returns the runs that have failed, and why."""
    if folder is None:
        return {}
    failures: dict[str, str] = {}
    if (folder / _FILE).exists():
        runs, failures = read_sweep(folder)
        keys, now = set(next(iter(runs.values()))), set(specs[0].values)
        if keys != now:
            raise CheckpointError(
                f"{folder} is a sweep of {', '.join(sorted(keys))}, got {', '.join(sorted(now))}; "
                "choose another folder"
            )
    make_folder(folder)
    _write(specs, failures, folder)
    return failures


def _write(
    specs: Sequence[SweepSpec], failures: Mapping[str, str], folder: pathlib.Path | None
) -> None:
    """Writes the file of a sweep; runs of earlier calls stay in it."""
    if folder is None:
        return
    runs = read_sweep(folder)[0] if (folder / _FILE).exists() else {}
    runs = {**runs, **{spec.name: dict(spec.values) for spec in specs}}
    text = json.dumps({"runs": runs, "failures": dict(failures)}, indent=1, default=str)
    write_whole(folder / _FILE, text + "\n")


def read_sweep(folder: pathlib.Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Reads which runs a sweep has.

    Args:
        folder: folder of the sweep.

    Returns:
        Values of each run, by its name; and why runs have left the sweep, by their names.

    Raises:
        CheckpointError: the folder has no readable sweep.json.
    """
    try:
        found = json.loads(read_whole(folder / _FILE))
        return dict(found["runs"]), dict(found["failures"])
    except (CheckpointError, FileNotFoundError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder} is not the folder of a sweep: {_FILE} cannot be read ({error}); "
            "jaxformer sweep makes one"
        ) from None
