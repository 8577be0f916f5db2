"""Sweeps of configs: each run is trained in a run folder of its own."""

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
from jaxformer.runs.weights.trials import numbers_of, with_numbers
from jaxformer.storage import as_path
from jaxformer.sweeps.fit import train_specs
from jaxformer.sweeps.runs import SweepRun, SweepSpec, combine_values, name_runs
from jaxformer.text import BucketedBatches
from jaxformer.training import TrainingData, Trial, make_runner
from jaxformer.training.callbacks import Callback
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
    callbacks: Callable[..., Sequence[Callback]] | None = None,
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
        callbacks: function of a run's values, by key, to its callbacks.

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
    return train_configs(named, as_path(config.out), task=task, callbacks=callbacks)


def train_configs(
    named: NamedConfigs,
    folder: pathlib.Path,
    *,
    task: type[Task] | None = None,
    callbacks: Callable[..., Sequence[Callback]] | None = None,
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
        specs = {
            spec.run.name: spec
            for group in _groups(named, folder)
            for spec in _start_group(group, named, locked, task, callbacks, on_start)
        }
        return train_specs([specs[name] for name in named], folder)


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


def _groups(named: NamedConfigs, folder: pathlib.Path) -> list[dict[str, ExperimentConfig]]:
    """Configs that differ only in numbers, by the names of their runs."""
    groups: dict[ExperimentConfig, dict[str, ExperimentConfig]] = {}
    for name, (_, config) in named.items():
        in_folder = dataclasses.replace(config, out=str(folder / name))
        groups.setdefault(_without_numbers(config), {})[name] = in_folder
    return list(groups.values())


def _without_numbers(config: ExperimentConfig) -> ExperimentConfig:
    """The settings that the programs of two runs must have in common."""
    return with_numbers(config, dict.fromkeys(numbers_of(config), 0))


def _start_group(
    group: Mapping[str, ExperimentConfig],
    named: NamedConfigs,
    locked: Mapping[str, LockedFolder],
    task: type[Task] | None,
    callbacks: Callable[..., Sequence[Callback]] | None,
    on_start: Callable[[Task], None] | None,
) -> list[SweepSpec]:
    """Prepares the data of runs that differ in numbers only, once for each seed."""
    runner = TogetherRunner(len(group), shares_batches=False)
    prepared: dict[int, Task] = {}
    data: dict[int, TrainingData] = {}
    makers: dict[Any, Callable[..., Trial]] = {}
    tasks, specs = [], []
    for name, config in group.items():
        if config.seed not in prepared:
            folder = locked[name].folder
            resumed = folder if is_run(folder) else None
            prepared[config.seed] = prepare_task(config, task=task, folder=resumed)
        seed_task = prepared[config.seed]
        filled = with_numbers(seed_task.config, numbers_of(config))
        run_task = seed_task.with_config(dataclasses.replace(filled, out=config.out))
        run_task, spec = start_run(
            run_task.config, locked[name], runner, task=task, prepared=run_task
        )
        tasks.append(run_task)
        # The data of a seed may also decide sizes, such as that of the vocabulary. Which of several
        # shapes a batch has depends on the seed, so runs with other seeds follow each other then.
        config, batches, values = run_task.config, spec.data.batches, named[name][0]
        shapes = batches.shapes if isinstance(batches, BucketedBatches) else ()
        by_seed = config.seed if len(shapes) > 1 else None
        key = _without_numbers(dataclasses.replace(config, out=None)), shapes, by_seed
        spec = spec._replace(
            recipe=spec.recipe._replace(make=makers.setdefault(key, spec.recipe.make)),
            data=data.setdefault(config.seed, spec.data),
            callbacks=() if callbacks is None else tuple(callbacks(**values)),
            name=name,
        )
        num_devices = 1 if config.training.runner == "single" else config.training.devices
        specs.append(SweepSpec(spec, values, num_devices))
    if on_start is not None:
        on_start(tasks[0])
    return specs
