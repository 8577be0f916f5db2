"""Loss curves of training runs."""

import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxformer.errors import DataError
from jaxformer.viz.style import Lettering, line_style, small_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def loss_curves(
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    unit: str = "token",
    training_label: str = "training",
    title: str = "",
) -> "Figure":
    """Curves of the training and validation loss of runs, by step.

    With several runs, each run has its own color, a thin line for the training loss and markers for
    the validation loss. With one run, each loss has its own color. A curve has a gap where its loss
    is inf or NaN.

    Unlike the validation loss, the training loss includes label smoothing and dropout, so it can be
    larger. `training_label` can say so.

    Args:
        runs: records of each run, by name: dicts with "step", an int, and "loss" or
            "validation_loss", in nats, as from `training.read_metrics`. Records with neither loss
            are ignored.
        unit: unit of one label, such as "token" or "text".
        training_label: label of the training loss in the legend, such as "training (with label
            smoothing and dropout)"; with several runs, the run's name comes first.
        title: title of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        DataError: there is no run; a run has no finite loss; or a record has a loss but no step, a
            step that is not an int, or a loss that is not a number.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = loss_curves({"small": [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.5}]})
        >>> figure.axes[0].get_ylabel()
        'loss (nats per token)'
    """
    from jaxformer.viz.figure import Figure

    if not runs:
        raise DataError("loss curves need at least one run, got none")
    lettering = Lettering.of([title, unit, training_label, *runs])
    figure = Figure(6, 4)
    axes = figure.add_subplot(
        xlabel="optimizer step", ylabel=f"loss (nats per {lettering.token(unit)})",
        title=lettering.title(title),
    )  # fmt: skip
    curves, labels = [], []
    kinds = (("loss", lettering.token(training_label)), ("validation_loss", "validation"))
    for index, (name, records) in enumerate(runs.items()):
        points = {key: _points(name, records, key) for key, _ in kinds}
        if not any(np.isfinite(loss) for found in points.values() for _, loss in found):
            count = sum(map(len, points.values()))
            raise DataError(
                f"loss curves need records with a finite loss, got {len(records)} of {name!r} "
                f"without {'one' if count else 'any'}; leave it out"
                + ("" if count else ", or wait for its first losses")
            )
        alone = len(runs) == 1
        prefix = "" if alone else f"{lettering.token(name)}, "
        thin = {**line_style(index), "marker": "", "linewidth": 1.0, "alpha": 1.0 if alone else 0.7}
        marked = {**line_style(1 if alone else index), "linewidth": 1.4, "markersize": 4.5}
        for (key, kind), style in zip(kinds, (thin, marked), strict=True):
            if points[key]:
                steps, losses = zip(*points[key], strict=True)
                labels.append(f"{prefix}{kind}")
                if len(steps) == 1 and not style["marker"]:  # a line of one point is invisible
                    style = {**style, "marker": "o", "markersize": 3.0}
                curves += axes.plot(steps, losses, label=labels[-1], **style)
    axes.grid(alpha=0.3)
    if len(curves) <= 8:
        axes.legend(curves, labels, **small_legend(len(curves)))
    else:  # below the axes, so that it hides no curve
        figure.legend(curves, labels, loc="outside lower center", fontsize=8, ncols=2)
        figure.set_figheight(4 + 0.085 * len(curves))
    lettering.apply(figure)
    return figure


def _points(name: str, records: Sequence[Mapping[str, Any]], key: str) -> list[tuple[int, float]]:
    """Steps and losses of the records that have this loss, which may be inf or NaN."""
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
                f"{key} must be a number, got {loss!r} at step {step} of {name!r}; remove the key "
                "if the record has no loss"
            )
        points.append((int(step), float(loss)))
    return points
