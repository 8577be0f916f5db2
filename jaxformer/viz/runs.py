"""Figures of runs: losses, results of sweeps, and the time of a step."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxformer.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def loss_curves(
    runs: Mapping[str, Sequence[Mapping[str, Any]]], *, unit: str = "token", title: str = ""
) -> "Figure":
    """Curves of the training and validation loss of runs, by step.

    With several runs, each run has its own color, a thin line for the training loss and markers for
    the validation loss. With one run, each loss has its own color. A curve has a gap where its loss
    is inf or NaN.

    Unlike the validation loss, the training loss includes label smoothing and dropout, so it can be
    larger.

    Args:
        runs: records of each run, by name: dicts with "step", an int, and "loss" or
            "validation_loss", in nats, as from `training.read_metrics`. Records with neither loss
            are ignored.
        unit: unit of one label, such as "token" or "text".
        title: title of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        DataError: there is no run, or a run has no finite loss.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = loss_curves({"small": [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.5}]})
        >>> figure.axes[0].get_ylabel()
        'loss (nats per token)'
    """
    from jaxformer.viz.figure import Figure

    if not runs:
        raise DataError("loss curves need at least one run, got none")
    figure = Figure(6, 4)
    axes = figure.add_subplot(
        xlabel="optimizer step", ylabel=f"loss (nats per {unit})", title=title
    )
    curves = []
    alone = len(runs) == 1
    for index, (name, records) in enumerate(runs.items()):
        training, validation = (
            [(record["step"], record[key]) for record in records if key in record]
            for key in ("loss", "validation_loss")
        )
        if not any(np.isfinite(loss) for _, loss in training + validation):
            raise DataError(
                f"loss curves need records with a finite loss, got {len(records)} of {name!r} "
                f"without {'one' if training + validation else 'any'}; leave it out, or wait for "
                "its first losses"
            )
        prefix = "" if alone else f"{name}, "
        if training:
            # A line of one point would be invisible.
            marker, label = "" if len(training) > 1 else "o", f"{prefix}training"
            curves += axes.plot(
                *zip(*training, strict=True), color=f"C{index}", marker=marker, markersize=3,
                linewidth=1, label=label,
            )  # fmt: skip
        if validation:
            curves += axes.plot(
                *zip(*validation, strict=True), color="C1" if alone else f"C{index}", marker="o",
                markersize=4.5, label=f"{prefix}validation",
            )  # fmt: skip
    axes.grid(alpha=0.3)
    labels = [str(curve.get_label()) for curve in curves]
    # Below the axes, so that it hides no curve.
    figure.legend(curves, labels, loc="outside lower center", fontsize="small", ncols=2)
    figure.set_figheight(4 + 0.085 * len(curves))
    return figure.without_formulas()


def sweep_curves(
    curves: Mapping[str, Sequence[tuple[float | str, float, float]]],
    *,
    x_label: str = "",
    y_label: str = "",
    title: str = "",
) -> "Figure":
    """Curves of means with error bars. The x axis is logarithmic if its numbers span a decade.

    Args:
        curves: points (x, mean, standard deviation) of each curve, by its name. x is a number, or
            the text of a category.
        x_label: label of the x axis.
        y_label: label of the y axis.
        title: title of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        DataError: there is no point.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = sweep_curves({"": [(1e-3, 2.5, 0.1), (1e-2, 2.2, 0.1)]}, x_label="rate")
        >>> figure.axes[0].get_xscale()
        'log'
    """
    from jaxformer.viz.figure import Figure

    xs = [x for points in curves.values() for x, _, _ in points]
    if not xs:
        raise DataError("a figure of a sweep needs at least one point, got none")
    figure = Figure(6, 4)
    axes = figure.add_subplot(xlabel=x_label, ylabel=y_label, title=title)
    for name, points in curves.items():
        x, mean, deviation = zip(*points, strict=True)
        axes.errorbar(x, mean, deviation, label=name, capsize=3, marker="o")
    numbers = [x for x in xs if not isinstance(x, str)]
    if len(numbers) == len(xs) and min(numbers) > 0 and max(numbers) >= 10 * min(numbers):
        axes.set_xscale("log")
    axes.grid(alpha=0.3)
    if len(curves) > 1:
        axes.legend()
    return figure.without_formulas()


def time_bars(seconds: Mapping[str, Mapping[str, float]], *, title: str = "") -> "Figure":
    """Bar chart of the time of each part of a training step, with its share of its group.

    Args:
        seconds: seconds per step of each part, by group and name, such as
            {"device": {"attention": 0.03, "feed-forward": 0.05}}. Groups may be empty.
        title: title of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        DataError: there is no part that took time.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = time_bars({"device": {"attention": 0.03, "feed-forward": 0.05}})
        >>> figure.axes[0].get_xlabel()
        'milliseconds per step'
    """
    from jaxformer.viz.figure import Figure

    shown = {group: parts for group, parts in seconds.items() if sum(parts.values()) > 0}
    if not shown:
        raise DataError("bars of time need at least one part that took time, got none")
    figure = Figure(6, 1.2 + 0.3 * sum(map(len, shown.values())))
    axes = figure.add_subplot(xlabel="milliseconds per step", title=title)
    names: list[str] = []
    for group, parts in shown.items():
        total, places = sum(parts.values()), range(len(names), len(names) + len(parts))
        names += parts
        bars = axes.barh(places, [1000 * time for time in parts.values()], label=group)
        shares = [f" ({time / total:.0%})" if len(parts) > 1 else "" for time in parts.values()]
        times = [f"{1000 * time:.3g} ms" for time in parts.values()]
        labels = [time + share for time, share in zip(times, shares, strict=True)]
        axes.bar_label(bars, labels, padding=3, fontsize="small")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.grid(axis="x", alpha=0.3)
    if len(shown) > 1:
        axes.legend(loc="lower right")
    return figure.without_formulas()
