"""Figures of how training went."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxformer.errors import DataError
from jaxformer.viz.style import DPI, Lettering, line_style, small_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["loss_curves"]


def loss_curves(
    runs: Mapping[str, Sequence[Mapping[str, Any]]], *, unit: str = "token", title: str = ""
) -> "Figure":
    """Draws training and held-out loss of runs over the steps.

    Several runs have a colour each: a thin line for the training loss, markers for the held-out
    loss. Of one run, each of the two has its colour.

    Args:
        runs: name of each run, and its records: dicts with "step" and "loss" or "held_out_loss"
            (nats), such as `training.read_metrics` returns.
        unit: what the loss is the mean of, such as "token" or "text".
        title: of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        DataError: there is no run, or one without any loss.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = loss_curves({"small": [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.5}]})
        >>> figure.axes[0].get_ylabel()
        'loss (nats per token)'
    """
    from matplotlib.figure import Figure

    if not runs:
        raise DataError("loss curves are of at least one run, got none")
    lettering = Lettering.of([title, unit, *runs])
    figure = Figure(figsize=(6, 4), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    curves = {}
    for index, (name, records) in enumerate(runs.items()):
        training = [(r["step"], r["loss"]) for r in records if "loss" in r]
        held_out = [(r["step"], r["held_out_loss"]) for r in records if "held_out_loss" in r]
        if not training and not held_out:
            raise DataError(
                f"loss curves need records with a loss, got {len(records)} of {name!r} without "
                "any; leave it out, or wait for its first ones"
            )
        alone = len(runs) == 1
        prefix = "" if alone else f"{lettering.token(name)}, "
        thin = {**line_style(index), "marker": "", "linewidth": 1.0, "alpha": 1.0 if alone else 0.7}
        marked = {**line_style(1 if alone else index), "linewidth": 1.4, "markersize": 4.5}
        for kind, points, style in (("training", training, thin), ("held out", held_out, marked)):
            if points:
                steps, losses = zip(*points, strict=True)
                (curve,) = axes.plot(steps, losses, label=f"{prefix}{kind}", **style)
                curves[f"{prefix}{kind}"] = curve
    axes.set_xlabel("optimizer step")
    axes.set_ylabel(f"loss (nats per {lettering.token(unit)})")
    axes.set_title(lettering.title(title))
    axes.grid(alpha=0.3)
    if len(curves) <= 8:
        axes.legend(curves.values(), curves.keys(), **small_legend(len(curves)))
    else:  # below the axes, where they hide no curve
        figure.legend(
            curves.values(), curves.keys(), loc="outside lower center", fontsize=8, ncols=2
        )
        figure.set_figheight(4 + 0.085 * len(curves))
    lettering.apply(figure)
    return figure
