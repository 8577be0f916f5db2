"""Where the time of a training step goes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jaxformer.errors import DataError
from jaxformer.viz.style import Lettering, line_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def time_bars(seconds: Mapping[str, Mapping[str, float]], *, title: str = "") -> "Figure":
    """Bars of the time that parts of a step take, with their shares.

    Args:
        seconds: seconds of each part, by name, in groups: those of a group share a color and a sum,
            such as {"device": {"attention": 0.03, "feed-forward": 0.05}}. Groups may be empty.
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
    count = sum(map(len, shown.values()))
    lettering = Lettering.of([title, *shown, *(part for parts in shown.values() for part in parts)])
    figure = Figure(6, 1.2 + 0.3 * count)
    axes = figure.add_subplot(xlabel="milliseconds per step", title=lettering.title(title))
    names: list[str] = []
    for index, (group, parts) in enumerate(shown.items()):
        total, first = sum(parts.values()), len(names)
        names += map(lettering.token, parts)
        bars = axes.barh(
            range(first, len(names)), [1000 * one for one in parts.values()],
            color=line_style(index)["color"], label=lettering.token(group),
        )  # fmt: skip
        shares = [f"{one / total:.0%}" for one in parts.values()]
        axes.bar_label(bars, shares, padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.grid(axis="x", alpha=0.3)
    if len(shown) > 1:
        axes.legend(loc="lower right")
    return figure
