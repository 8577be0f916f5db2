"""Figures of positions: tables of encodings or rotations."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxformer.errors import DataError
from jaxformer.viz.arrays import checked
from jaxformer.viz.cells import CELL_HEIGHT, NUMBERS_MAX_CELLS, draw_cells, number_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def position_heatmaps(
    tables: Mapping[str, Any], *, x_label: str = "dimension", label: str = "value", title: str = ""
) -> "Figure":
    """Heat maps of tables of positions side by side, position 0 at the top, on one color scale.

    Colors range from minus to plus the largest absolute number. The panels share a norm, so
    `figure.axes[0].images[0].set_clim` sets another range for all.

    Args:
        tables: float `[T, D]` of equal shape, one row per position, by the name above each: such as
            one table of encodings, or the cosines and sines of `functional.rotary_tables`.
        x_label: label of the x axis.
        label: label of the color bar.
        title: title of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        ShapeError: a table has other axes, or another shape than the first.
        DataError: there is no table, or a number is not finite.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = position_heatmaps({"cosine": np.ones((3, 2)), "sine": np.zeros((3, 2))})
        >>> [(axes.get_title(), axes.get_xlabel()) for axes in figure.axes[:2]]
        [('cosine', 'dimension'), ('sine', 'dimension')]
    """
    from matplotlib.colors import Normalize

    from jaxformer.viz.figure import Figure

    if not tables:
        raise DataError("a figure of positions needs at least one table, got none")
    arrays: list[np.ndarray] = []
    sizes: dict[str, int] = {}
    remedy = "pass tables of equal shape"
    for name, table in tables.items():
        arrays.append(checked(f"tables[{name!r}]", table, "T D", sizes, remedy=remedy))
        sizes = dict(zip("TD", arrays[0].shape, strict=True))
    values = np.stack(arrays)
    largest = float(np.abs(values).max()) or 1.0
    count, height, width = values.shape
    numbers = values.size <= NUMBERS_MAX_CELLS
    if numbers:
        wide, tall = max(1.5, width * number_width(values)), max(1.5, height * CELL_HEIGHT)
    else:
        wide, tall = min(max(2.5, 0.1 * width), 8 / count), min(max(2.0, 0.1 * height), 7)
    figure = Figure(count * (wide + 0.2) + 1.4, tall + 0.9)
    panels = figure.subplots(1, count, squeeze=False, sharey=True)[0]
    norm = Normalize(-largest, largest)
    for panel, name, table in zip(panels, tables, values, strict=True):
        image = draw_cells(panel, table, norm=norm, colours="RdBu_r", numbers=numbers)
        panel.set_xlabel(x_label)
        panel.set_title(name, fontsize=10)
        panel.tick_params(labelsize=8)
        panel.locator_params(integer=True)
    panels[0].set_ylabel("position")
    figure.colorbar(image, ax=panels, label=label, pad=0.02)
    figure.suptitle(title)
    return figure.without_formulas()
