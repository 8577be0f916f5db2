"""Figures of runs as files."""

import io
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jaxformer.cli.terminal import show
from jaxformer.errors import ConfigError, first_line
from jaxformer.storage import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_figure(figure: "Figure", path: pathlib.Path) -> None:
    """Writes a figure in the format of the file's suffix, and prints the path."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:].lower() or "png")
    write_whole(path, drawn.getvalue())
    show(str(path))


def draw(name: str, make: "Callable[[], Figure]", path: pathlib.Path) -> None:
    """Draws a figure of trained runs, or prints why it cannot be drawn."""
    show(f"{name}: ", end="")
    try:
        write_figure(make(), path)
    except Exception as error:  # of any class in matplotlib; the runs are trained nevertheless
        show(f"not drawn: {first_line(error)}")


def loss_figure(folders: Sequence[pathlib.Path]) -> "Figure":
    """Figure of the losses of one or more runs."""
    from jaxformer.runs import read_run_config, task_class
    from jaxformer.training import read_metrics
    from jaxformer.viz import loss_curves

    configs = [read_run_config(folder) for folder in folders]
    unit, *units = [task_class(config).text_model.unit for config in configs]
    for folder, other in zip(folders[1:], units, strict=True):
        if other != unit:
            raise ConfigError(
                f"losses in one figure must have the same unit, got nats per {unit} for "
                f"{folders[0]} and nats per {other} for {folder}; plot them separately"
            )
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = list(map(str, folders))
    records = {name: read_metrics(folder) for name, folder in zip(names, folders, strict=True)}
    title = f"Loss of {names[0]}" if len(names) == 1 else "Losses of several runs"
    return loss_curves(records, unit=unit, title=title)
