"""jaxformer sweep: many runs of one config, a table and a figure of their results."""

import itertools
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jaxformer.cli.commands.figures import draw
from jaxformer.cli.commands.train import exit_stopped, print_start
from jaxformer.cli.experiment import (
    ConfigFlags,
    config_tables,
    flag_keys,
    merged_config,
    start_jax,
    value_of,
)
from jaxformer.cli.terminal import show
from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError
from jaxformer.storage import as_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sweep(config: str, *, flags: ConfigFlags) -> None:
    """Train a config with several values of its keys, and compare.

    A flag with several values, separated by commas, makes a run for each combination:

    jaxformer sweep CONFIG --optimizer.learning-rate 1e-4,3e-4,1e-3 --seed 0,1,2 --out runs/sweep

    Runs that differ only in seed, learning rate or weight decay train at once, in one program. The
    folder (default: runs/NAME_sweep) gets a run folder for each run, and sweep.png. If you stop the
    command and start it again, it continues where it stopped.

    Args:
        config: config file, name of a built-in config, or run folder, such as runs/quickstart.
    """
    values, configs, folder = read_sweep(config, flags)
    start_jax(configs[0])
    from jaxformer.sweeps.runs import name_runs
    from jaxformer.sweeps.train import train_configs

    named = dict(zip(name_runs(values), zip(values, configs, strict=True), strict=True))
    show(f"{len(named)} runs, in {folder}")
    runs = train_configs(named, folder, on_start=print_start)
    stopped = next((run.result.stop_signal for run in runs if run.result.stop_signal), None)
    if stopped is not None:
        step = min((run.result.step for run in runs if run.result.params is not None), default=0)
        exit_stopped(stopped, step, folder)
    _report(folder)


def read_sweep(
    path: str, flags: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[ExperimentConfig], pathlib.Path]:
    """Swept values and config of each run of a config with flags, and the sweep's folder."""
    tables = config_tables(path, flags)
    swept = {name: value.split(",") for name, value in flags.items() if _is_swept(name, value)}
    if not swept:
        raise ConfigError(
            "a sweep needs a flag with several values, separated by commas, got none; add for "
            "example --seed 0,1,2, or use jaxformer train"
        )
    options = [[value_of(flag_keys()[name], word) for word in swept[name]] for name in swept]
    values = [dict(zip(swept, row, strict=True)) for row in itertools.product(*options)]
    configs = [merged_config(path, tables, {**flags, **run}) for run in values]
    folder = as_path(flags["out"] if "out" in flags else f"{configs[0].out}_sweep")
    return values, configs, folder


def _is_swept(name: str, value: Any) -> bool:
    """Whether a flag has several values; the folder may have a comma in its name."""
    return isinstance(value, str) and "," in value and name != "out"


def _report(folder: pathlib.Path) -> None:
    """Shows the table of a sweep, and draws a figure."""
    from jaxformer.sweeps import sweep_table

    show(f"\n{sweep_table(folder).as_text()}\n")
    draw("figure", lambda: sweep_figure(folder), folder / "sweep.png")


def sweep_figure(folder: pathlib.Path) -> "Figure":
    """Figure of the first metric of a sweep."""
    from jaxformer.sweeps import sweep_table
    from jaxformer.viz import sweep_curves

    table = sweep_table(folder)
    return sweep_curves(
        table.curves(0), x_label=table.keys[0] if table.keys else "",
        y_label=table.metrics[0].replace("_", " "), title=f"Sweep {folder.resolve().name}",
    )  # fmt: skip
