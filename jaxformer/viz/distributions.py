"""Histograms of values."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxformer.errors import ConfigError, DataError
from jaxformer.viz.style import Lettering, as_numbers, checked, line_style

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
        ConfigError: bins is not positive.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = distributions({"before": [1.0, 3.0], "after": [2.0, 2.0]}, bins=4)
        >>> [text.get_text() for text in figure.legends[0].get_texts()]
        ['before: mean 2, std 1', 'after: mean 2, std 0']
    """
    from jaxformer.viz.figure import Figure

    if not values:
        raise DataError("distributions need at least one name and its values, got none")
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise ConfigError(f"bins must be a positive int, got {bins!r}")
    numbers = {}
    for name, array in values.items():
        argument = f"values[{name!r}]"
        flat = as_numbers(argument, array).ravel()
        numbers[name] = checked(argument, flat, "N").astype(np.float64)
    lettering = Lettering.of([title, xlabel, *values])
    edges = np.histogram_bin_edges(np.concatenate(list(numbers.values())), bins)
    figure = Figure(6, 4)
    axes = figure.add_subplot(
        xlabel=lettering.token(xlabel), ylabel="density", title=lettering.title(title)
    )
    labels, shapes = [], []
    for index, (name, array) in enumerate(numbers.items()):
        style = line_style(index)
        density, _ = np.histogram(array, edges, density=True)
        axes.stairs(density, edges, fill=True, color=style["color"], alpha=0.25)
        shapes.append(
            axes.stairs(
                density, edges, color=style["color"], linestyle=style["linestyle"], linewidth=1.6
            )
        )
        labels.append(f"{lettering.token(name)}: mean {array.mean():.3g}, std {array.std():.3g}")
    axes.grid(alpha=0.3)
    axes.set_ylim(0, None)
    # Below the axes, so that it hides no histogram.
    figure.legend(shapes, labels, loc="outside lower center", fontsize=9)
    figure.set_figheight(3.6 + 0.2 * len(labels))
    lettering.apply(figure)
    return figure
