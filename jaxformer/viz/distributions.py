"""Histograms of values."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxformer.errors import DataError
from jaxformer.viz.arrays import checked

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def distributions(
    values: Mapping[str, Any], *, bins: int = 20, xlabel: str = "value", title: str = ""
) -> "Figure":
    """Overlaid histograms, as densities, with the mean and standard deviation of each.

    Args:
        values: arrays of any shape, by name; all histograms share the same bins.
        bins: number of bins between the smallest and the largest number.
        xlabel: name of the quantity.
        title: title of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        DataError: there is nothing to draw, or a number is not finite.
        ShapeError: values are empty or not an array of numbers, such as lists of unequal length.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = distributions({"before": [1.0, 3.0], "after": [2.0, 2.0]}, bins=4)
        >>> [text.get_text() for text in figure.legends[0].get_texts()]
        ['before: mean 2, std 1', 'after: mean 2, std 0']
    """
    from jaxformer.viz.figure import Figure

    if not values:
        raise DataError("distributions need at least one name and its values, got none")
    numbers = {
        name: checked(f"values[{name!r}]", array).ravel().astype(np.float64)
        for name, array in values.items()
    }
    labels = [
        f"{name}: mean {array.mean():.3g}, std {array.std():.3g}" for name, array in numbers.items()
    ]
    figure = Figure(6, 3.6 + 0.2 * len(labels))
    axes = figure.add_subplot(xlabel=xlabel, ylabel="density", title=title)
    edges = np.histogram_bin_edges(np.concatenate(list(numbers.values())), bins).tolist()
    for index, (array, label) in enumerate(zip(numbers.values(), labels, strict=True)):
        axes.hist(
            array, edges, density=True, histtype="stepfilled", label=label, linewidth=1.6,
            facecolor=(f"C{index}", 0.25), edgecolor=f"C{index}",
        )  # fmt: skip
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center")  # below the axes, so that it hides no histogram
    return figure.without_formulas()
