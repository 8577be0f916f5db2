"""Bar chart of the time of a training step."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jaxformer.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
