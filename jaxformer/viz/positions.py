"""Figures of positions: tables, rotations, biases, and distances between positions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxformer.errors import DataError, ShapeError
from jaxformer.viz.arrays import checked
from jaxformer.viz.cells import CELL_HEIGHT, NUMBERS_MAX_CELLS, draw_cells, number_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DIVERGING, _SEQUENTIAL = "RdBu_r", "viridis"


def position_heatmap(table: Any, *, title: str = "") -> "Figure":
    """Heat map of a table of positions, position 0 at the top.

    Colors range from minus to plus 1 or the largest absolute number, whichever is larger; for
    others, call `figure.axes[0].images[0].set_clim`.

    Args:
        table: float `[T, D]`, one row per position.
        title: title of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        ShapeError: the table has other axes.
        DataError: a number is not finite.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = position_heatmap(np.zeros((3, 4)))
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('dimension', 'position')
    """
    array = checked("table", table, "T D")
    largest = max(1.0, float(np.abs(array).max()))
    return _heatmaps(
        {"": array}, title, low=-largest, high=largest, colours=_DIVERGING,
        labels=("dimension", "position", "value"),
    )  # fmt: skip


def rotary_heatmaps(cos: Any, sin: Any, *, title: str = "") -> "Figure":
    """Heat maps of the cosines and sines of rotary positions.

    Args:
        cos: float `[T, P]` for P pairs of features, as from `functional.rotary_tables`.
        sin: float `[T, P]`.
        title: title of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        ShapeError: the two have other axes, or different sizes.
        DataError: a number is not finite.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = rotary_heatmaps(np.ones((3, 2)), np.zeros((3, 2)))
        >>> [axes.get_title() for axes in figure.axes[:2]]
        ['cosine of the angle', 'sine of the angle']
    """
    cosine = checked("cos", cos, "T P")
    sizes = dict(zip("TP", cosine.shape, strict=True))
    sine = checked("sin", sin, "T P", sizes, remedy="as in cos")
    largest = max(1.0, float(np.abs([cosine, sine]).max()))
    return _heatmaps(
        {"cosine of the angle": cosine, "sine of the angle": sine}, title,
        low=-largest, high=largest, colours=_DIVERGING,
        labels=("feature pair", "position", "value"),
    )  # fmt: skip


def cosine_distance_heatmap(table: Any, *, title: str = "") -> "Figure":
    """Heat map of the cosine distances between positions: 1 - cosine similarity of their rows.

    Args:
        table: float `[T, D]`, one row per position.
        title: title of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`. Its colors range from 0 to 1 or the largest
        distance, whichever is larger.

    Raises:
        ShapeError: the table has other axes.
        DataError: a row is all zeros, so it has no direction, or a number is not finite.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = cosine_distance_heatmap(np.array([[1.0, 0.0], [0.0, 2.0]]))
        >>> figure.axes[0].images[0].get_array().tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    rows = checked("table", table, "T D").astype(np.float64)
    lengths = np.linalg.norm(rows, axis=-1)
    if not lengths.all():
        raise DataError(
            f"row {int(np.argmin(lengths))} of table must not be all zeros, because it then has no "
            "direction; leave it out"
        )
    directions = rows / lengths[:, None]
    # Rounding can make the similarity of a row to itself greater than 1.
    distances = np.maximum(1 - directions @ directions.T, 0.0)
    return _heatmaps(
        {"": distances}, title, low=0.0, high=max(1.0, float(distances.max())),
        colours=_SEQUENTIAL, labels=("position", "position", "cosine distance"),
    )  # fmt: skip


def _heatmaps(
    tables: dict[str, np.ndarray], title: str, *, low: float, high: float,
    colours: str, labels: tuple[str, str, str],
) -> "Figure":  # fmt: skip
    """Heat maps of equal shape side by side; labels are for the x axis, y axis and color bar."""
    from jaxformer.viz.figure import Figure

    values = np.stack(list(tables.values()))
    count, height, width = values.shape
    numbers = values.size <= NUMBERS_MAX_CELLS
    if numbers:
        wide, tall = max(1.5, width * number_width(values)), max(1.5, height * CELL_HEIGHT)
    else:
        wide, tall = min(max(2.5, 0.1 * width), 8 / count), min(max(2.0, 0.1 * height), 7)
    figure = Figure(count * (wide + 0.2) + 1.4, tall + 0.9)
    panels = figure.subplots(1, count, squeeze=False, sharey=True)[0]
    for panel, (name, table) in zip(panels, tables.items(), strict=True):
        image = draw_cells(panel, table, low=low, high=high, colours=colours, numbers=numbers)
        panel.set_xlabel(labels[0])
        panel.set_title(name, fontsize=10)
        panel.tick_params(labelsize=8)
        panel.locator_params(integer=True)
    panels[0].set_ylabel(labels[1])
    figure.colorbar(image, ax=panels, label=labels[2], pad=0.02)
    figure.suptitle(title)
    return figure.without_formulas()


def position_curves(table: Any, positions: Sequence[int], *, title: str = "") -> "Figure":
    """Curves of rows of a position table: even dimensions, odd dimensions, and all.

    Args:
        table: float `[T, D]`, one row per position.
        positions: row numbers.
        title: title of the figure.

    Returns:
        The figure, with three panels; save it with `figure.savefig(path)`.

    Raises:
        ShapeError: the table has other axes, or fewer than 2 dimensions.
        DataError: a number is not finite.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = position_curves(np.eye(4), [0, 3])
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['position 0', 'position 3']
    """
    from jaxformer.viz.figure import Figure

    array = checked("table", table, "T D")
    width = array.shape[1]
    if width < 2:
        raise ShapeError("table must have at least an even and an odd dimension, got [T, D=1]")
    figure = Figure(7, 6.5)
    dimensions = {
        "even dimensions": np.arange(0, width, 2),
        "odd dimensions": np.arange(1, width, 2),
        "all dimensions": np.arange(width),
    }
    panels = figure.subplots(3, 1, sharex=True)
    for panel, (name, chosen) in zip(panels, dimensions.items(), strict=True):
        for position in positions:
            panel.plot(chosen, array[position, chosen], ".-", label=f"position {position}")
        panel.set_title(name, fontsize="medium")
        panel.set_ylabel("value")
        panel.grid(alpha=0.3)
    panels[-1].set_xlabel("dimension")
    panels[-1].locator_params("x", integer=True)
    figure.legend(handles=panels[0].lines, loc="outside right upper")
    figure.suptitle(title)
    return figure.without_formulas()


def position_bias_curves(
    bias_by_head: Any, distances: Sequence[int] | Any, *, title: str = ""
) -> "Figure":
    """Curves of the position bias that each head adds to its attention scores, by distance.

    Args:
        bias_by_head: float `[N, K]`.
        distances: integers `[K]`, the key's position minus the query's, in tokens.
        title: title of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        ShapeError: the two have other axes, or different sizes.
        DataError: a number is not finite.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = position_bias_curves([[-1.0, -0.5, 0.0]], [-2, -1, 0])
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['head 0']
    """
    from jaxformer.viz.figure import Figure

    biases = checked("bias_by_head", bias_by_head, "N K")
    sizes = {"K": biases.shape[1]}
    steps = checked("distances", distances, "K", sizes, remedy="pass one for each bias of a head")
    figure = Figure(6.5, 4)
    axes = figure.add_subplot(
        xlabel="key position - query position (tokens)", ylabel="added to the attention score",
        title=title,
    )  # fmt: skip
    for head, bias in enumerate(biases):
        style = ("-", "--", ":")[head // 10 % 3]  # the colors repeat
        axes.plot(steps, bias, style, label=f"head {head}")
    axes.grid(alpha=0.3)
    axes.locator_params("x", integer=True)
    figure.legend(handles=axes.lines, loc="outside right upper", ncols=-(-len(biases) // 20))
    return figure.without_formulas()
