"""Figures of positions: tables, rotations, biases, and distances between positions."""

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxformer.errors import ConfigError, DataError, ShapeError
from jaxformer.functional.checks import check_axes
from jaxformer.viz.cells import CELL_HEIGHT, bar_aspect, draw_cells, number_width, wants_numbers
from jaxformer.viz.style import Lettering, checked, line_style, small_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DIVERGING, _SEQUENTIAL = "RdBu_r", "viridis"


def position_heatmap(
    table: Any, *, annotate: bool | None = None, limit: float | None = None, title: str = ""
) -> "Figure":
    """Heat map of a table of positions, position 0 at the top.

    Args:
        table: float `[T, D]`, one row per position.
        annotate: whether to write numbers in the cells; None: only if there are at most 400 cells.
        limit: colors range from -limit to limit; default: 1 or the largest absolute number,
            whichever is larger. Numbers beyond the limit get the last color, and the color bar
            ends in arrows.
        title: title of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        ShapeError: the table has other axes, or is too large for numbers.
        DataError: a number is not finite.
        ConfigError: the limit is not positive.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = position_heatmap(np.zeros((3, 4)))
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('dimension', 'position')
    """
    array = checked("table", table, "T D")
    if limit is not None and not 0 < limit < np.inf:
        raise ConfigError(f"limit must be positive and finite, got {limit}")
    largest = max(1.0, float(np.abs(array).max())) if limit is None else limit
    return _heatmaps(
        {"": array}, annotate, title, low=-largest, high=largest, colours=_DIVERGING,
        labels=("dimension", "position", "value"),
    )  # fmt: skip


def rotary_heatmaps(
    cos: Any, sin: Any, *, annotate: bool | None = None, title: str = ""
) -> "Figure":
    """Heat maps of the cosines and sines of rotary positions.

    Args:
        cos: float `[T, P]` for P pairs of features, as from `functional.rotary_tables`.
        sin: float `[T, P]`.
        annotate: whether to write numbers in the cells; None: only if there are at most 400 cells.
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
    cosine, sine = checked("cos", cos, "T P"), checked("sin", sin, "T P")
    check_axes("sin", sine, "T P", dict(zip("TP", cosine.shape, strict=True)), remedy="as in cos")
    largest = max(1.0, float(np.abs([cosine, sine]).max()))
    return _heatmaps(
        {"cosine of the angle": cosine, "sine of the angle": sine}, annotate, title,
        low=-largest, high=largest, colours=_DIVERGING,
        labels=("feature pair", "position", "value"),
    )  # fmt: skip


def cosine_distance_heatmap(
    table: Any, *, annotate: bool | None = None, title: str = ""
) -> "Figure":
    """Heat map of the cosine distances between positions: 1 - cosine similarity of their rows.

    Args:
        table: float `[T, D]`, one row per position.
        annotate: whether to write numbers in the cells; None: only if there are at most 400 cells.
        title: title of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`. Its colors range from 0 to 1 or the largest
        distance, whichever is larger.

    Raises:
        ShapeError: the table has other axes, or too many rows for numbers.
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
        {"": distances}, annotate, title, low=0.0, high=max(1.0, float(distances.max())),
        colours=_SEQUENTIAL, labels=("position", "position", "cosine distance"),
    )  # fmt: skip


def _heatmaps(
    tables: dict[str, np.ndarray], annotate: bool | None, title: str, *, low: float, high: float,
    colours: str, labels: tuple[str, str, str],
) -> "Figure":  # fmt: skip
    """Heat maps of equal shape side by side; labels are for the x axis, y axis and color bar."""
    from matplotlib.ticker import MaxNLocator

    from jaxformer.viz.figure import Figure

    values = np.stack(list(tables.values()))
    count, height, width = values.shape
    numbers = wants_numbers(values, annotate)
    if numbers:
        wide, tall = max(1.5, width * number_width(values)), max(1.5, height * CELL_HEIGHT)
    else:
        wide, tall = min(max(2.5, 0.1 * width), 8 / count), min(max(2.0, 0.1 * height), 7)
    lettering = Lettering.of([title])
    figure = Figure(count * (wide + 0.2) + 1.4, tall + 0.9)
    panels = figure.subplots(1, count, squeeze=False, sharey=True)[0]
    for panel, (name, table) in zip(panels, tables.items(), strict=True):
        image = draw_cells(panel, table, low=low, high=high, colours=colours, numbers=numbers)
        panel.set_xlabel(labels[0])
        panel.set_title(name, fontsize=10)
        panel.tick_params(labelsize=8)
        for axis, ticks in ((panel.xaxis, 3 * wide), (panel.yaxis, 6 * tall)):
            axis.set_major_locator(MaxNLocator(min(20, int(ticks)), integer=True))
    panels[0].set_ylabel(labels[1])
    clipped = values.min() < low or values.max() > high
    figure.colorbar(
        image, ax=panels, label=labels[2], aspect=bar_aspect(tall), pad=0.02,
        extend="both" if clipped else "neither",
    )  # fmt: skip
    lettering.apply(figure, title)
    return figure


def position_curves(table: Any, positions: Sequence[int], *, title: str = "") -> "Figure":
    """Curves of rows of a position table: even dimensions, odd dimensions, and all.

    Args:
        table: float `[T, D]`, one row per position.
        positions: row numbers; the first 28 curves have different styles.
        title: title of the figure.

    Returns:
        The figure, with three panels; save it with `figure.savefig(path)`.

    Raises:
        ShapeError: the table has other axes, or fewer than 2 dimensions.
        DataError: there are no positions, one is not a row number, or a number is not finite.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = position_curves(np.eye(4), [0, 3])
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['position 0', 'position 3']
    """
    from matplotlib.ticker import MaxNLocator

    from jaxformer.viz.figure import Figure

    array = checked("table", table, "T D")
    length, width = array.shape
    if width < 2:
        raise ShapeError("table must have at least an even and an odd dimension, got [T, D=1]")
    rows = [_row(position, length) for position in positions]
    if not rows:
        raise DataError(f"positions must be rows of the table, 0 .. {length - 1}, got none")
    lettering = Lettering.of([title])
    figure = Figure(7, 6.5)
    dimensions = {
        "even dimensions": np.arange(0, width, 2),
        "odd dimensions": np.arange(1, width, 2),
        "all dimensions": np.arange(width),
    }
    panels = figure.subplots(3, 1, sharex=True)
    for panel, (name, chosen) in zip(panels, dimensions.items(), strict=True):
        for index, position in enumerate(rows):
            style = {**line_style(index), "linewidth": 1.0, "markersize": 3.5}
            panel.plot(chosen, array[position, chosen], label=f"position {position}", **style)
        panel.set_title(name, fontsize=10)
        panel.set_ylabel("value")
        panel.grid(alpha=0.3)
    panels[-1].set_xlabel("dimension")
    panels[-1].xaxis.set_major_locator(MaxNLocator(16, integer=True))
    figure.legend(handles=panels[0].lines, loc="outside right upper", **small_legend(len(rows)))
    lettering.apply(figure, title)
    return figure


def _row(position: Any, length: int) -> int:
    """Checks that a position is a row number of a table with `length` rows, and returns it."""
    try:
        row = operator.index(position)
    except TypeError:
        row = -1
    if isinstance(position, bool) or not 0 <= row < length:
        raise DataError(
            f"positions must be rows of the table, integers 0 .. {length - 1}, got {position!r}"
        )
    return row


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
    from matplotlib.ticker import MaxNLocator

    from jaxformer.viz.figure import Figure

    biases = checked("bias_by_head", bias_by_head, "N K")
    steps = checked("distances", distances, "K")
    check_axes(
        "distances", steps, "K", {"K": biases.shape[1]}, remedy="pass one for each bias of a head"
    )
    lettering = Lettering.of([title])
    figure = Figure(6.5, 4)
    axes = figure.add_subplot(
        xlabel="key position - query position (tokens)", ylabel="added to the attention score",
        title=lettering.title(title),
    )  # fmt: skip
    spacing = -(-steps.size // 12)  # between markers, so that they do not hide the lines
    for head, bias in enumerate(biases):
        axes.plot(
            steps, bias, label=f"head {head}", linewidth=1.2, markersize=3.5,
            markevery=(head % spacing, spacing), **line_style(head),
        )  # fmt: skip
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    figure.legend(handles=axes.lines, loc="outside right upper", **small_legend(len(biases)))
    lettering.apply(figure)
    return figure
