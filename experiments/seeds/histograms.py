"""Overlaid histograms."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure


def draw_histograms(values: Mapping[str, np.ndarray], *, bins: int = 20, x_label: str) -> Figure:
    """Densities of values `[N]` over common bins, with the mean and deviation of each."""
    figure = Figure((6, 4), dpi=150, layout="constrained")
    axes = figure.add_subplot(xlabel=x_label, ylabel="density")
    labels = [
        f"{name}: mean {array.mean():.3g}, std {array.std():.3g}" for name, array in values.items()
    ]
    axes.hist(
        list(values.values()), bins, density=True, histtype="stepfilled", alpha=0.5, label=labels
    )
    figure.legend(loc="outside lower center")
    return figure
