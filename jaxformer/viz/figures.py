"""Figures, with matplotlib, which is imported only when one is drawn."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxformer.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["loss_curve"]


def loss_curve(records: Sequence[Mapping[str, Any]], *, title: str = "") -> "Figure":
    """Draws training and held-out loss over the steps.

    Args:
        records: dicts with "step" and "loss" or "held_out_loss" (nats per token), such as
            `training.read_metrics` returns.
        title: of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        DataError: no record has a loss.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = loss_curve([{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.5}])
        >>> figure.axes[0].get_xlabel()
        'optimizer step'
    """
    from matplotlib.figure import Figure

    series = {
        "training": [(r["step"], r["loss"]) for r in records if "loss" in r],
        "held out": [(r["step"], r["held_out_loss"]) for r in records if "held_out_loss" in r],
    }
    if not any(series.values()):
        raise DataError(f"a loss curve needs records with a loss, got {len(records)} without any")
    figure = Figure(figsize=(6, 4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    # Blue and orange of the Okabe-Ito palette, told apart by markers as well.
    styles: dict[str, dict[str, Any]] = {
        "training": {"color": "#0072B2", "linewidth": 1.0},
        "held out": {"color": "#D55E00", "marker": "o", "markersize": 4},
    }
    for name, points in series.items():
        if points:
            steps, losses = zip(*points, strict=True)
            axes.plot(steps, losses, label=name, **styles[name])
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("loss (nats per token)")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
