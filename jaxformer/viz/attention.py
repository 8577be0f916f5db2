"""Heat maps of attention weights and scores, for every head and layer."""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from einops import rearrange

from jaxformer.errors import DataError, ShapeError
from jaxformer.functional.checks import check_axes
from jaxformer.viz.arrays import checked, visible
from jaxformer.viz.cells import CELL_HEIGHT, NUMBERS_MAX_CELLS, draw_cells, number_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_AXES = {2: "T S", 3: "N T S", 4: "L N T S"}
_RULE = "[T, S], [heads, T, S] or [layers, heads, T, S]"
_MAX_COLUMNS = 4  # panels of one layer side by side before they wrap
_MAX_WIDTH = 20.0  # inches of all panels side by side, unless numbers need more
_LABEL_POINTS = 8
_LABEL_SPACING = 0.13  # inches from one token's label to the next
_LETTER_WIDTH = 0.08  # inches, of a letter in a token label
_BAR_LABEL_LETTERS = 24  # of a line of the color bar's label
_ROUNDING = 1e-5  # a rounded weight may exceed 1 by this much


def attention_heatmaps(
    weights: Any,
    query_tokens: Sequence[str],
    key_tokens: Sequence[str] | None = None,
    *,
    label: str = "attention weight",
    scores: bool = False,
    names: Sequence[str] | None = None,
    title: str = "",
) -> "Figure":
    """Heat maps of the attention weights or scores of one or more heads, on one color scale.

    For weights, which are between 0 and 1, colors range from 0 to the largest weight. For scores,
    they range from minus to plus the largest absolute score, with white for 0. A score of -inf is
    masked, and drawn hatched.

    matplotlib draws tokens of other scripts if it knows a font for them: set, for example,
    `matplotlib.rcParams["font.family"] = ["DejaVu Sans", "Noto Sans Kannada"]`. If there is no room
    for all tokens, only every second, third, ... token is labeled.

    Args:
        weights: float `[T, S]` for one head; `[N, T, S]` for N heads, one panel each;
            `[L, N, T, S]` for L layers, one row each.
        query_tokens: T tokens.
        key_tokens: S tokens; default: the query tokens.
        label: label of the color bar.
        scores: whether the numbers are scores; weights when not given.
        names: N names of heads; default: "head 0" and so on, or none for `[T, S]`.
        title: title of the figure.

    Returns:
        The figure; save it with `figure.savefig(path)`.

    Raises:
        ShapeError: weights have other axes, or the number of tokens or names is wrong.
        DataError: a number is neither finite nor -inf, or a weight is not between 0 and 1.
        ImportError: matplotlib is not installed.

    Example:
        >>> figure = attention_heatmaps(np.full((2, 3, 3), 1 / 3), ["the", "cat", "sat"])
        >>> [axes.get_title() for axes in figure.axes[:2]]
        ['head 0', 'head 1']
    """
    from matplotlib.colors import Normalize

    from jaxformer.viz.figure import Figure

    keys = query_tokens if key_tokens is None else key_tokens
    array = checked("weights", weights, masked=True)
    if (ndim := array.ndim) not in _AXES:
        raise ShapeError(f"weights must be {_RULE}, got {ndim} axes")
    sizes = {"T": len(query_tokens), "S": len(keys)}
    remedy = "pass one row per query and one column per key"
    check_axes("weights", array, _AXES[ndim], sizes, remedy=remedy)
    heads = array[(None,) * (4 - ndim)]
    num_layers, num_heads = heads.shape[:2]
    if names is None:
        names = [f"head {i}" for i in range(num_heads)] if ndim > 2 else [""]
    if len(names) != num_heads:
        raise ShapeError(
            f"names must have one name for each of {num_heads} heads, got {len(names)}"
        )

    if not scores and (array.min() < 0 or array.max() > 1 + _ROUNDING):
        raise DataError(
            f"weights must be between 0 and 1, got {array.min():.6g} .. {array.max():.6g}; pass "
            "scores=True to draw scores"
        )
    largest = float(np.abs(array[np.isfinite(array)]).max(initial=0.0)) or 1.0
    low, colors = (-largest, "RdBu_r") if scores else (0.0, "viridis")
    norm = Normalize(low, largest)
    numbers = array.size <= NUMBERS_MAX_CELLS
    columns = num_heads if ndim == 4 else -(-num_heads // -(-num_heads // _MAX_COLUMNS))
    count = num_layers * num_heads
    rows = -(-count // columns)
    wide, tall = _panel_size(array, columns, rows, numbers)
    query_labels, key_labels = list(map(visible, query_tokens)), list(map(visible, keys))
    beside, below = (_LETTER_WIDTH * max(map(len, labels)) for labels in (query_labels, key_labels))
    query_marks, key_marks = (
        range(0, count, math.ceil(_LABEL_SPACING * count / room))
        for count, room in ((len(query_labels), tall), (len(key_labels), wide))
    )
    height = rows * (tall + (0.3 if ndim > 2 else 0.1))
    figure = Figure(columns * (wide + 0.15) + beside + 1.5, height + below + 0.9)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in panels[count:]:
        unused.remove()
    for index, head_weights in enumerate(rearrange(heads, "l n t s -> (l n) t s")):
        row, column = divmod(index, columns)
        panel = panels[index]
        image = draw_cells(panel, head_weights, norm=norm, colours=colors, numbers=numbers)
        if ndim == 3 or row == 0:
            panel.set_title(names[index % num_heads], fontsize=9)
        panel.set_yticks(query_marks, [query_labels[i] for i in query_marks])
        panel.set_xticks(key_marks, [key_labels[i] for i in key_marks], rotation=90)
        is_lowest = index + columns >= count
        panel.tick_params(
            labelsize=_LABEL_POINTS, length=2, labelleft=column == 0, labelbottom=is_lowest
        )
        if column == 0:
            panel.set_ylabel(f"layer {row}\nquery" if ndim == 4 else "query")
        if is_lowest:
            panel.set_xlabel("key")
    caption = textwrap.fill(label, _BAR_LABEL_LETTERS)
    caption += "\n(hatched: masked)" if np.isneginf(array).any() else ""
    figure.colorbar(image, ax=panels[:count], label=caption, pad=0.02)
    figure.suptitle(title)
    return figure.without_formulas()


def _panel_size(array: np.ndarray, columns: int, rows: int, numbers: bool) -> tuple[float, float]:
    """Width and height of a panel in inches."""
    num_queries, num_keys = array.shape[-2:]
    if numbers:
        sides = num_keys * number_width(array), num_queries * CELL_HEIGHT
        return max(1.2, sides[0]), max(1.2, sides[1])
    alone = columns * rows == 1
    wide, tall = (
        min(max(2.5 if alone else 1.4, (0.2 if alone else 0.15) * cells), _MAX_WIDTH / panels)
        for cells, panels in ((num_keys, columns), (num_queries, rows))
    )
    return wide, tall
