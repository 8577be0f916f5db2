"""The heat map that the figures of tables and of attention are made of."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxformer.errors import ShapeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CELL_HEIGHT", "bar_aspect", "draw_cells", "number_width", "wants_numbers"]

CELL_HEIGHT = 0.2  # inches of a cell with a number

_MOST_UNASKED = 400  # cells that get numbers without being asked
_MOST_ROWS = 200  # or columns with numbers; more would make a picture of meters
_MOST_CRISP = 400  # rows or columns; of more, several can share a pixel, which has their mean
_NUMBER_POINTS = 7
_DIGIT_WIDTH = 0.062  # inches, at that size
_MASKED = {"facecolor": "#F4F4F4", "edgecolor": "#9A9A9A", "hatch": "//////", "linewidth": 0.0}


def wants_numbers(values: np.ndarray, annotate: bool | None) -> bool:
    """Decides whether the cells of a figure get numbers.

    Args:
        values: all that it shows, `[..., rows, columns]`.
        annotate: what the caller wants; None for numbers in at most 400 cells.

    Returns:
        Whether they do.

    Raises:
        ShapeError: there are too many cells to write into.

    Example:
        >>> wants_numbers(np.zeros((20, 20)), None), wants_numbers(np.zeros((20, 21)), None)
        (True, False)
    """
    rows, columns = values.shape[-2:]
    if annotate and max(rows, columns) > _MOST_ROWS:
        raise ShapeError(
            f"annotate=True writes numbers into at most {_MOST_ROWS} rows and columns, got "
            f"{rows} rows and {columns} columns; leave it out, or draw a part"
        )
    return values.size <= _MOST_UNASKED if annotate is None else annotate


def number_width(values: np.ndarray) -> float:
    """Returns how wide a cell must be for its number, in inches.

    Args:
        values: all numbers; -inf is masked, and has none.

    Returns:
        The width.

    Example:
        >>> round(number_width(np.array([0.5, 1.0])), 2)
        0.35
    """
    return max(map(len, _numbers(values).flat)) * _DIGIT_WIDTH + 0.1


def draw_cells(
    axes: "Axes", values: np.ndarray, *, low: float, high: float, colours: str, numbers: bool
) -> Any:
    """Draws a table as cells, row 0 at the top; masked ones are hatched in grey.

    Args:
        axes: where.
        values: float `[rows, columns]`; -inf is masked.
        low: what the first colour stands for.
        high: what the last colour stands for.
        colours: name of the colour map.
        numbers: whether to write them.

    Returns:
        The image, which a colour bar can be made for.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = Figure().add_subplot()
        >>> image = draw_cells(axes, np.eye(3), low=0, high=1, colours="viridis", numbers=True)
        >>> len(axes.texts)
        9
    """
    masked = np.isneginf(values)
    if masked.any():
        axes.patch.set(**_MASKED)  # seen through the cells that have no colour
    crisp = max(values.shape) <= _MOST_CRISP
    image = axes.imshow(
        np.ma.array(values, mask=masked), vmin=low, vmax=high, cmap=colours, aspect="auto",
        interpolation="nearest" if crisp else "auto", interpolation_stage="data",
    )  # fmt: skip
    if numbers:
        written = _numbers(values)
        shades = image.to_rgba(values)[..., :3] @ np.array([0.2126, 0.7152, 0.0722])
        for row, column in np.argwhere(~masked):
            axes.text(
                column, row, written[row, column], ha="center", va="center",
                fontsize=_NUMBER_POINTS, color="black" if shades[row, column] > 0.45 else "white",
            )  # fmt: skip
    return image


def bar_aspect(height: float) -> float:
    """Returns how many times as high as wide a colour bar is, for a width of 0.16 inches.

    Args:
        height: of the cells beside it, in inches.

    Returns:
        The ratio.

    Example:
        >>> bar_aspect(3.2)
        20.0
    """
    return max(8.0, height / 0.16)


def _numbers(values: np.ndarray) -> np.ndarray:
    """Writes numbers to three digits of the largest, at least to hundredths if that is below 10."""
    shown = np.where(np.isneginf(values), 0.0, values).astype(np.float64)
    largest = np.abs(shown).max()
    if largest and not 1e-3 <= largest < 1e5:
        return np.vectorize("{:.1e}".format, otypes=[object])(shown)
    digits = max(0, 2 - math.floor(math.log10(largest))) if largest >= 1 else 2
    if 0 < largest < 0.1:
        digits = 1 - math.floor(math.log10(largest))
    # Adding 0 makes a negative zero positive.
    return np.vectorize(f"{{:.{digits}f}}".format, otypes=[object])(shown.round(digits) + 0.0)
