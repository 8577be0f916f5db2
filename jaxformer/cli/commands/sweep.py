"""jaxformer sweep: many runs of one config, a table and a figure of their results."""

import contextlib
import dataclasses
import html
import itertools
import pathlib
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxformer.cli.commands.figures import draw
from jaxformer.cli.commands.train import exit_stopped, print_start
from jaxformer.cli.experiment import ConfigPath, config_path, load_with_start, split_cpu_for
from jaxformer.cli.overrides import override_config, split_flags
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


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Train a config with several values of its keys, and compare.

    A flag with several values, separated by commas, makes a run for each combination:

    jaxformer sweep CONFIG --optimizer.learning-rate 1e-4,3e-4,1e-3 --seed 0,1,2 --out runs/sweep

    Runs that differ only in seed, learning rate or weight decay train at once, in one program. The
    folder (default: runs/NAME_sweep) gets a run folder for each run, sweep.csv, sweep.html and
    sweep.png. If you stop the command and start it again, it continues where it stopped.
    """

    config: ConfigPath
    """Config file, name of a built-in config, or run folder."""


def sweep(words: Sequence[str]) -> None:
    """Trains or resumes the runs of a sweep, and shows their results."""
    chosen, configs, folder = read_sweep(words)
    split_cpu_for(configs[0])
    from jaxformer.sweeps import train_configs
    from jaxformer.training.sweep import name_runs

    values = [
        {flag[2:].replace("-", "_"): _number(word) for flag, word in one.items()} for one in chosen
    ]
    named = dict(zip(name_runs(values), zip(values, configs, strict=True), strict=True))
    show(f"{len(named)} runs, in {for_terminal(str(folder))}")
    runs = train_configs(named, folder, on_start=print_start)
    stopped = next((run.result.stop_signal for run in runs if run.result.stop_signal), None)
    if stopped is not None:
        step = min((run.result.step for run in runs if run.result.params is not None), default=0)
        exit_stopped(stopped, step, folder)
    _report(folder)


def read_sweep(
    words: Sequence[str],
) -> tuple[list[dict[str, str]], list[ExperimentConfig], pathlib.Path]:
    """The swept flags with their values, and the config, of every run; and the sweep's folder."""
    path, overrides = config_path(Sweep, words)
    loaded = load_with_start(path, overrides)
    prog = f"jaxformer sweep {shlex.quote(path)}"
    if {"-h", "--help"} & set(overrides):
        override_config(loaded, overrides, prog=prog)
    fixed, axes = _split(loaded, overrides)
    chosen = [dict(zip(axes, one, strict=True)) for one in itertools.product(*axes.values())]
    configs = [
        override_config(loaded, [*fixed, *itertools.chain(*one.items())], prog=prog)
        for one in chosen
    ]
    own_out = any(flag.key == "out" for flag in split_flags(overrides))
    folder = as_path(str(configs[0].out) if own_out else f"{loaded.out}_sweep")
    return chosen, configs, folder


def _split(
    config: ExperimentConfig, words: Sequence[str]
) -> tuple[list[str], dict[str, list[str]]]:
    """Splits flags into those with one value, and the values of the others by flag."""
    fixed: list[str] = []
    axes: dict[str, list[str]] = {}
    for flag in split_flags(words):
        if not flag.name:
            raise ConfigError(f"flags must start with --, got {words[0]!r} before the first one")
        current: Any = config
        for name in flag.key.split("."):
            current = getattr(current, name, None)
        # An array, or a path, may have commas of its own.
        one = flag.values[0] if len(flag.values) == 1 else ""
        if "," in one and flag.key != "out" and type(current) is not tuple:
            axes[flag.name] = one.split(",")
        else:
            fixed += flag.words
    if not axes:
        raise ConfigError(
            "a sweep needs a flag with several values, separated by commas, got none; add for "
            "example --seed 0,1,2, or use jaxformer train"
        )
    return fixed, axes


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
