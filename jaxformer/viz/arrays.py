"""Arguments of figures: checked numbers, and tokens of which all can be seen."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxformer.errors import DataError, ShapeError
from jaxformer.functional.checks import check_axes

_BYTES = re.compile(r"(⟨[0-9A-F]{2}(?: [0-9A-F]{2})*⟩)")  # how tokenizers show parts of characters
_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥"}
_DIRECTIONS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def checked(
    argument: str, value: Any, axes: str | None = None, sizes: Mapping[str, int] | None = None, *,
    masked: bool = False, remedy: str = "",
) -> np.ndarray:  # fmt: skip
    """Argument as float32; ShapeError or DataError unless it is finite, or -inf where `masked`."""
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


def visible(token: str) -> str:
    r"""A token with symbols for invisible characters, and without effect on nearby text."""
    parts = _BYTES.split(token)
    parts[::2] = ["".join(map(_sign, part)) for part in parts[::2]]
    shown = "".join(parts)
    if all(unicodedata.category(letter) == "Cf" for letter in token):
        shown = "".join(f"⟨U+{ord(letter):04X}⟩" for letter in token) or "⟨empty⟩"
    return f"◌{shown}" if unicodedata.category(shown[0]).startswith("M") else shown


def _sign(letter: str) -> str:
    """Symbol of a space or line break; code of a control, separator or direction character."""
    if letter in _SIGNS:
        return _SIGNS[letter]
    invisible = unicodedata.category(letter) in ("Cc", "Cs", "Zs", "Zl", "Zp")
    if invisible or unicodedata.bidirectional(letter) in _DIRECTIONS:
        return f"⟨U+{ord(letter):04X}⟩"
    return letter
