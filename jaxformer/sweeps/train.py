"""Sweeps of configs: each run is trained in a run folder of its own."""

import collections
import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxformer.config import ExperimentConfig, MeshConfig, config_from_dict
from jaxformer.config.files import tables_of
from jaxformer.config.reading import with_values
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.programs import keep_programs
from jaxformer.runs.folder.files import is_run
from jaxformer.runs.tasks.task import Task
from jaxformer.runs.train import start_run, take_folder
from jaxformer.runs.weights.preparing import prepare_task
from jaxformer.runs.weights.trials import numbers_of
from jaxformer.storage import as_path
from jaxformer.sweeps.fit import train_specs
from jaxformer.sweeps.runs import SweepRun, SweepSpec, combine_values, name_runs
from jaxformer.text import BucketedBatches
from jaxformer.training import TrainingData, Trial, make_runner
from jaxformer.training.checkpoints.locked_folder import LockedFolder
from jaxformer.training.parallel import TogetherRunner, num_processes
from jaxformer.training.records.trackers import require_trackers

NamedConfigs = Mapping[str, tuple[Mapping[str, Any], ExperimentConfig]]
"""What distinguishes each run of a sweep, and its config, by the run's name."""


def sweep_configs(config: ExperimentConfig, values: Mapping[str, Sequence[Any]]) -> NamedConfigs:
    """The configs of all combinations of values.

    Args:
        config: the experiment.
        values: values of each key, such as "optimizer.learning_rate", or of a whole table, such as
            "optimizer".

    Raises:
        ConfigError: there is no such key, a key has no values, or a value is impossible.

    Example:
        >>> from jaxformer.config import load_config
        >>> rates = {"optimizer.learning_rate": [1e-3, 3e-3], "seed": [0, 1]}
        >>> list(sweep_configs(load_config("quickstart"), rates))[-1]
        'learning_rate=0.003,seed=1'
    """
    combinations = combine_values(values)
    shown = [  # of a table its kind, such as "adamw"
        {key: getattr(v, "name", getattr(v, "kind", v)) for key, v in combination.items()}
        for combination in combinations
    ]
    tables = tables_of(config)
    configs = [
        config_from_dict(ExperimentConfig, with_values(tables, _tables_in(combination)))
        for combination in combinations
    ]
    return dict(zip(name_runs(shown), zip(shown, configs, strict=True), strict=True))


def _tables_in(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: tables_of(value) if dataclasses.is_dataclass(value) else value
        for key, value in values.items()
    }


def train_sweep(
    config: ExperimentConfig,
    values: Mapping[str, Sequence[Any]],
    *,
    task: type[Task] | None = None,
) -> list[SweepRun]:
    """Trains a run for each combination of values, in a run folder below `config.out`.

    Runs that differ only in seed, learning rate or weight decay train at once, in one compiled
    program, split over the local devices. The others follow each other. Each run has the losses
    that `train_run` gives it on one device, but for rounding, and its folder is a run folder like
    any other. Call this again to resume a sweep that was stopped or killed.

    Args:
        config: the experiment; its out is the folder of the sweep.
        values: values of each key, such as "optimizer.learning_rate", or of a whole table, such as
            "optimizer".
        task: as in `train_run`.

    Returns:
        The runs, in the order of the combinations; the last key varies fastest.

    Raises:
        ConfigError: a key or value is impossible; or the config asks for what a sweep cannot do:
            LoRA, a mesh, several hosts.
        CheckpointError, DataError: as in `train_run`.
    """
    if config.out is None:
        raise ConfigError("out, the folder of the sweep, must be set")
    named = sweep_configs(config, values)
    return train_configs(named, as_path(config.out), task=task)


def train_configs(
    named: NamedConfigs,
    folder: pathlib.Path,
    *,
    task: type[Task] | None = None,
    on_start: Callable[[Task], None] | None = None,
) -> list[SweepRun]:
    """`train_sweep` by configs; `on_start` gets the task of the first run of each program."""
    for _, config in named.values():
        _require_simple(config)
        require_trackers(config.training.log_to, folder)  # before the data is read
    if is_run(folder):
        raise CheckpointError(f"{folder} is a run folder; choose another for the sweep, with out")
    keep_programs()
    with contextlib.ExitStack() as stack:
        locked = {
            name: stack.enter_context(take_folder(folder / name, config.training.keep_checkpoints))
            for name, (_, config) in named.items()
        }
        return train_specs(_start_runs(named, locked, task, on_start), folder)


def _require_simple(config: ExperimentConfig) -> None:
    """Refuses what a sweep cannot train."""
    training = config.training
    for feature, has in {
        "lora": config.lora is not None,
        "a mesh": training.runner == "mesh" or config.mesh != MeshConfig(),
        "several hosts": num_processes() > 1,
    }.items():
        if has:
            raise ConfigError(
                f"a sweep trains whole models, each on one device, got {feature}; remove it, or "
                "train the runs one after the other with jaxformer train"
            )
    make_runner("pmap", devices=training.devices)  # checks that there are so many


def _without_numbers(config: ExperimentConfig) -> ExperimentConfig:
    """The settings that the programs of two runs must have in common."""
    numbers: dict[str, Any] = {name: 1.0 for name in numbers_of(config) if name != "seed"}
    optimizer = dataclasses.replace(config.optimizer, **numbers)
    return dataclasses.replace(config, seed=0, optimizer=optimizer, out=None)


def _start_runs(
    named: NamedConfigs,
    locked: Mapping[str, LockedFolder],
    task: type[Task] | None,
    on_start: Callable[[Task], None] | None,
) -> list[SweepSpec]:
    """Prepares runs; the data of those that differ in numbers only, once for each seed."""
    common = {name: _without_numbers(config) for name, (_, config) in named.items()}
    sizes = collections.Counter(common.values())
    prepared: dict[Any, Task] = {}
    data: dict[Any, TrainingData] = {}
    makers: dict[Any, Callable[..., Trial]] = {}
    specs = []
    for name, (values, config) in named.items():
        folder, of_seed = locked[name].folder, (common[name], config.seed)
        is_first = all(other != common[name] for other, _ in prepared)
        if of_seed not in prepared:
            config = dataclasses.replace(config, out=str(folder))
            resumed = folder if is_run(folder) else None
            prepared[of_seed] = prepare_task(config, task=task, folder=resumed)
        filled = prepared[of_seed].config
        config = dataclasses.replace(filled, optimizer=config.optimizer, out=str(folder))
        run_task, spec = start_run(
            config, locked[name], TogetherRunner(sizes[common[name]], shares_batches=False),
            task=task, prepared=prepared[of_seed].with_config(config),
        )  # fmt: skip
        if on_start is not None and is_first:
            on_start(run_task)
        # The data of a seed may also decide sizes, such as that of the vocabulary. Which of several
        # shapes a batch has depends on the seed, so runs with other seeds follow each other then.
        config, batches = run_task.config, spec.data.batches
        shapes = batches.shapes if isinstance(batches, BucketedBatches) else ()
        by_seed = config.seed if len(shapes) > 1 else None
        key = _without_numbers(config), shapes, by_seed
        spec = spec._replace(
            recipe=spec.recipe._replace(make=makers.setdefault(key, spec.recipe.make)),
            data=data.setdefault(of_seed, spec.data),
            name=name,
        )
        num_devices = 1 if config.training.runner == "single" else config.training.devices
        specs.append(SweepSpec(spec, values, num_devices))
    return specs
