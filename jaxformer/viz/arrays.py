"""Arguments of figures: checked numbers, and tokens of which all can be seen."""

import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxformer.errors import DataError, ShapeError
from jaxformer.functional.checks import check_axes

_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥"}
_JOINERS = "\u200c\u200d"  # shape the letters around them, as in Kannada


def checked(
    argument: str, value: Any, axes: str | None = None, sizes: Mapping[str, int] | None = None, *,
    masked: bool = False, remedy: str = "",
) -> np.ndarray:  # fmt: skip
    """Argument as float32; ShapeError or DataError unless it is finite, or -inf where `masked`."""
    try:
        with np.errstate(over="ignore"):  # values too large for float32 become inf
            array = np.asarray(value, np.float32)
    except (TypeError, ValueError) as error:
        raise ShapeError(
            f"{argument} must be an array of numbers with rows of equal length, got "
            f"{type(value).__name__}"
        ) from error
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


def visible(token: str) -> str:
    """A token with symbols for invisible characters, and without effect on nearby text."""
    shown = "".join(map(_sign, token)) or "⟨empty⟩"
    return f"◌{shown}" if unicodedata.category(shown[0]).startswith("M") else shown


def _sign(letter: str) -> str:
    """Symbol of a space or line break; code of a letter that cannot be seen, but not of joiners."""
    if letter in _SIGNS:
        return _SIGNS[letter]
    if letter.isprintable() or letter in _JOINERS:
        return letter
    return f"⟨U+{ord(letter):04X}⟩"
