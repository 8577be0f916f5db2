"""Figures of how training went."""

import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxformer.errors import DataError
from jaxformer.viz.style import DPI, Lettering, line_style, small_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["loss_curves"]


def loss_curves(
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    unit: str = "token",
    training_label: str = "training",
    title: str = "",
) -> "Figure":
    """Draws training and validation loss of runs over the steps.

    Several runs have a colour each: a thin line for the training loss, markers for the validation
    loss. Of one run, each of the two has its colour. A curve has a gap where its loss is inf or
    NaN.

    The two losses of a run are not always the same quantity: label smoothing and dropout, where a
    run has them, are in its training loss alone, which can be the larger one for that. Say so by
    training_label.

    Args:
        runs: name of each run, and its records: dicts with "step", an int, and "loss" or
            "validation_loss", numbers in nats, such as `training.read_metrics` gives. Records with
            neither loss are left out.
        unit: what the loss is the mean of, such as "token" or "text".
        training_label: what the legend calls the training loss, such as "training (with label
            smoothing and dropout)"; the run's name goes before it where there are several.
        title: of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        DataError: there is no run, or one without any finite loss, or a record with a loss has no
            step, or one that is no int, or its loss is no number.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = loss_curves({"small": [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.5}]})
        >>> figure.axes[0].get_ylabel()
        'loss (nats per token)'
    """
    from matplotlib.figure import Figure

    if not runs:
        raise DataError("loss curves are of at least one run, got none")
    lettering = Lettering.of([title, unit, training_label, *runs])
    figure = Figure(figsize=(6, 4), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    curves, labels = [], []
    kinds = (("loss", lettering.token(training_label)), ("validation_loss", "validation"))
    for index, (name, records) in enumerate(runs.items()):
        points = {key: _points(name, records, key) for key, _ in kinds}
        if not any(np.isfinite(loss) for found in points.values() for _, loss in found):
            count = sum(map(len, points.values()))
            raise DataError(
                f"loss curves need records with a finite loss, got {len(records)} of {name!r} "
                f"without {'one' if count else 'any'}; leave it out"
                + ("" if count else ", or wait for its first ones")
            )
        alone = len(runs) == 1
        prefix = "" if alone else f"{lettering.token(name)}, "
        thin = {**line_style(index), "marker": "", "linewidth": 1.0, "alpha": 1.0 if alone else 0.7}
        marked = {**line_style(1 if alone else index), "linewidth": 1.4, "markersize": 4.5}
        for (key, kind), style in zip(kinds, (thin, marked), strict=True):
            if points[key]:
                steps, losses = zip(*points[key], strict=True)
                labels.append(f"{prefix}{kind}")
                curves += axes.plot(steps, losses, label=labels[-1], **style)
    axes.set_xlabel("optimizer step")
    axes.set_ylabel(f"loss (nats per {lettering.token(unit)})")
    axes.set_title(lettering.title(title))
    axes.grid(alpha=0.3)
    if len(curves) <= 8:
        axes.legend(curves, labels, **small_legend(len(curves)))
    else:  # below the axes, where they hide no curve
        figure.legend(curves, labels, loc="outside lower center", fontsize=8, ncols=2)
        figure.set_figheight(4 + 0.085 * len(curves))
    lettering.apply(figure)
    return figure


def _points(name: str, records: Sequence[Mapping[str, Any]], key: str) -> list[tuple[int, float]]:
    """The steps of a run that have a loss, and that loss, which may be inf or NaN."""
    points = []
    for index, record in enumerate(records):
        if key not in record:
            continue
        step, loss = record.get("step"), record[key]
        if isinstance(step, bool) or not isinstance(step, numbers.Integral):
            got = f"got {step!r}" if "step" in record else "got none"
            raise DataError(
                f"each record with a loss must have a step, an int, {got} in record {index} of "
                f"{name!r}"
            )
        if isinstance(loss, bool) or not isinstance(loss, numbers.Real):
            raise DataError(
                f"{key} must be a number, got {loss!r} at step {step} of {name!r}; leave the "
                "loss out of a record that has none"
            )
        points.append((int(step), float(loss)))
    return points
