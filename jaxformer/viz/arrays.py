"""Arguments of figures: checked numbers, and texts that are drawn as they are."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxformer.errors import DataError, ShapeError
from jaxformer.functional.checks import check_axes


def checked(
    argument: str, value: Any, axes: str | None = None, sizes: Mapping[str, int] | None = None, *,
    masked: bool = False, remedy: str = "",
) -> np.ndarray:  # fmt: skip
    """Converts an argument to float32; ShapeError or DataError unless it can be drawn.

    All numbers must be finite, or -inf if `masked`. No axis may be empty; `remedy` is the end of
    the message about wrong axes.

    Example:
        >>> checked("table", [[1, 2, 3]], "T D").shape
        (1, 3)
    """
    try:
        with np.errstate(over="ignore"):  # values too large for float32 become inf
            array = np.asarray(value, np.float32)
    except (TypeError, ValueError):
        raise ShapeError(
            f"{argument} must be an array of numbers with rows of equal length, got "
            f"{type(value).__name__}"
        ) from None
    if axes is not None:
        check_axes(argument, array, axes, sizes, remedy=remedy)
    if not array.size:
        raise ShapeError(f"{argument} must have no empty axis, got shape {array.shape}")
    bad = ~np.isfinite(array) & ~(masked & np.isneginf(array))
    if bad.any():
        where = tuple(int(index) for index in np.argwhere(bad)[0])
        raise DataError(
            f"{argument} must be finite{', or -inf where masked' if masked else ''}, got "
            f"{array[where]} at {list(where)}"
        )
    return array


def drawn_token(text: str) -> str:
    r"""One line for a token, with codes for what cannot be seen; only spaces are quoted.

    Example:
        >>> drawn_token("Käse\n"), drawn_token(" ")
        ('Käse\\n', "' '")
    """
    if text and not text.strip(" "):
        return repr(text)
    # The letter joiners U+200C and U+200D are drawn, though they are not printable.
    return "".join(c if c.isprintable() or c in "\u200c\u200d" else ascii(c)[1:-1] for c in text)
