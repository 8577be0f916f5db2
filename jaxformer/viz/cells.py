"""Heat-map cells, shared by the figures of positions and of attention."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize

CELL_HEIGHT = 0.2  # inches, of a cell with a number
NUMBERS_MAX_CELLS = 400  # more cells of a figure get no numbers
_NUMBER_POINTS = 7
_DIGIT_WIDTH = 0.062  # inches, at that font size
_MASKED = {"facecolor": "#F4F4F4", "edgecolor": "#9A9A9A", "hatch": "//////", "linewidth": 0.0}


def number_width(values: np.ndarray) -> float:
    """Width in inches of a cell with the longest of the numbers; -inf is masked."""
    return max(map(len, _numbers(values).flat)) * _DIGIT_WIDTH + 0.1


def draw_cells(
    axes: "Axes", values: np.ndarray, *, norm: "Normalize", colours: str, numbers: bool
) -> Any:
    """Draws cells of a table `[rows, columns]`, row 0 on top; cells of -inf are hatched in gray."""
    masked = np.isneginf(values)
    if masked.any():
        axes.patch.set(**_MASKED)  # the background; masked cells have no color
    image = axes.imshow(
        np.ma.array(values, mask=masked), norm=norm, cmap=colours, aspect="auto",
        interpolation_stage="data",
    )  # fmt: skip
    if numbers:
        written = _numbers(values)
        # Luminance of the cells (Rec. 709), for numbers in a contrasting color.
        shades = image.to_rgba(values)[..., :3] @ np.array([0.2126, 0.7152, 0.0722])
        for row, column in np.argwhere(~masked):
            axes.text(
                column, row, written[row, column], ha="center", va="center",
                fontsize=_NUMBER_POINTS, color="black" if shades[row, column] > 0.45 else "white",
            )  # fmt: skip
    return image


def _numbers(values: np.ndarray) -> np.ndarray:
    """Numbers as text, with hundredths."""
    shown = np.where(np.isneginf(values), 0.0, values)
    # Adding 0 makes negative zero positive.
    return np.vectorize("{:.2f}".format, otypes=[object])(shown.round(2) + 0.0)
