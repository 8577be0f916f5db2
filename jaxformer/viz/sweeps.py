"""Results of a sweep over one of its values."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jaxformer.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
