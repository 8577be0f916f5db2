"""jaxformer sweep: many runs of one config, a table and a figure of their results."""

import contextlib
import html
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxformer.cli.commands.figures import draw
from jaxformer.cli.commands.train import exit_stopped, print_start
from jaxformer.cli.experiment import config_tables, merged_config, start_jax
from jaxformer.cli.flags import ConfigFlags, Flag, settings
from jaxformer.cli.terminal import for_terminal, show
from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError
from jaxformer.storage import as_path, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAGE = """<!DOCTYPE html>
<meta charset="utf-8">
<title>{title}</title>
<style>body {{ font-family: sans-serif; margin: 2em }} td, th {{ padding: 0.2em 1em 0.2em 0;
text-align: left }}</style>
<h1>{title}</h1>
{table}<p>Mean ± standard deviation over the seeds; the best of each column is bold.</p>
{figure}
"""


class SweptRuns(NamedTuple):
    """The swept flags with their values, and the config, of every run; and the sweep's folder."""

    values: list[dict[str, str]]
    configs: list[ExperimentConfig]
    folder: pathlib.Path


def sweep(config: str, *, flags: ConfigFlags) -> None:
    """Train a config with several values of its keys, and compare.

    A flag with several values, separated by commas, makes a run for each combination:

    jaxformer sweep CONFIG --optimizer.learning-rate 1e-4,3e-4,1e-3 --seed 0,1,2 --out runs/sweep

    Runs that differ only in seed, learning rate or weight decay train at once, in one program. The
    folder (default: runs/NAME_sweep) gets a run folder for each run, sweep.csv, sweep.html and
    sweep.png. If you stop the command and start it again, it continues where it stopped.

    Args:
        config: config file, name of a built-in config, or run folder, such as runs/quickstart.
        flags: flags for the keys of the config.
    """
    words, configs, folder = read_sweep(config, flags)
    start_jax(configs[0])
    from jaxformer.sweeps import train_configs
    from jaxformer.training.sweep import name_runs

    values = [{key: _number(word) for key, word in run.items()} for run in words]
    named = dict(zip(name_runs(values), zip(values, configs, strict=True), strict=True))
    show(f"{len(named)} runs, in {for_terminal(str(folder))}")
    runs = train_configs(named, folder, on_start=print_start)
    stopped = next((run.result.stop_signal for run in runs if run.result.stop_signal), None)
    if stopped is not None:
        step = min((run.result.step for run in runs if run.result.params is not None), default=0)
        exit_stopped(stopped, step, folder)
    _report(folder)


def read_sweep(path: str, flags: Sequence[Flag]) -> SweptRuns:
    """The runs of a config with flags, of which some have several values."""
    tables = config_tables(path, flags)
    fixed = [flag for flag in flags if not _is_swept(tables, flag)]
    axes = [flag for flag in flags if flag not in fixed]
    if not axes:
        raise ConfigError(
            "a sweep needs a flag with several values, separated by commas, got none; add for "
            "example --seed 0,1,2, or use jaxformer train"
        )
    runs = [
        [Flag(flag.name, [word]) for flag, word in zip(axes, words, strict=True)]
        for words in itertools.product(*(flag.values[0].split(",") for flag in axes))
    ]
    configs = [merged_config(path, tables, [*fixed, *run], command="sweep")[0] for run in runs]
    out = next((flag.values[0] for flag in fixed if flag.key == "out" and flag.values), None)
    folder = as_path(f"{configs[0].out}_sweep" if out is None else out)
    values = [{flag.key: flag.values[0] for flag in run} for run in runs]
    return SweptRuns(values, configs, folder)


def _is_swept(tables: Mapping[str, Any], flag: Flag) -> bool:
    """Whether a flag has several values; an array, or a path, may have commas of its own."""
    if len(flag.values) != 1 or "," not in flag.values[0] or flag.key == "out":
        return False
    return all(key.element is None for name, key, _ in settings(tables) if name == flag.key)


def _number(word: str) -> float | str:
    """The number that a word of the command line is, or the word."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(word)
    return word


def _report(folder: pathlib.Path) -> None:
    """Shows the table of a sweep; writes it, and a figure."""
    from jaxformer.sweeps import sweep_table

    table = sweep_table(folder)
    show(f"\n{table.as_text()}\n")
    show(f"figure: {draw(lambda: sweep_figure(folder), folder / 'sweep.png')}")
    has_figure = (folder / "sweep.png").exists()
    page = _PAGE.format(
        title=html.escape(f"Sweep {folder.name}"), table=table.as_html(),
        figure='<img src="sweep.png" alt="figure of the results">' if has_figure else "",
    )  # fmt: skip
    write_whole(folder / "sweep.csv", table.as_csv())
    write_whole(folder / "sweep.html", page)
    show(f"table: {folder / 'sweep.csv'}, {folder / 'sweep.html'}")


def sweep_figure(folder: pathlib.Path) -> "Figure":
    """Figure of the first metric of a sweep."""
    from jaxformer.sweeps import sweep_table
    from jaxformer.viz import sweep_curves

    table = sweep_table(folder)
    return sweep_curves(
        table.curves(0), x_label=table.keys[0] if table.keys else "",
        y_label=table.metrics[0].replace("_", " "), title=f"Sweep {folder.resolve().name}",
    )  # fmt: skip
