"""Line styles, fonts for tokens of any script, and checked numbers, for all figures."""

import functools
import pathlib
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxformer.errors import DataError, ShapeError
from jaxformer.functional.checks import check_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette of Okabe and Ito ("Color Universal Design", 2008), without its yellow, which is hard
# to see on white paper.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_LINES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def line_style(index: int) -> dict[str, Any]:
    """Color, line style and marker of a curve, as arguments of `axes.plot`; 28 are distinct.

    Example:
        >>> line_style(0)["linestyle"], line_style(7)["linestyle"]
        ('-', '--')
    """
    return {
        "color": _COLOURS[index % len(_COLOURS)],
        "linestyle": _LINES[index // len(_COLOURS) % len(_LINES)],
        "marker": _MARKERS[index % len(_MARKERS)],
    }


def small_legend(count: int) -> dict[str, Any]:
    """Font size and columns of a legend with `count` entries, as arguments of `legend`.

    Example:
        >>> small_legend(30)["ncols"]
        2
    """
    return {"fontsize": 9 if count <= 8 else 8, "ncols": -(-count // 20)}


def as_numbers(argument: str, value: Any) -> np.ndarray:
    """Converts an array, number or nested lists to float32; ShapeError if they are not numbers.

    Example:
        >>> as_numbers("table", [[1, 2, 3]]).shape
        (1, 3)
    """
    try:
        with np.errstate(over="ignore"):  # values too large for float32 become inf
            return np.asarray(value, np.float32)
    except (TypeError, ValueError):
        raise ShapeError(
            f"{argument} must be an array of numbers with rows of equal length, got "
            f"{type(value).__name__}"
        ) from None


def checked(
    argument: str, value: Any, axes: str, *, masked: bool = False, remedy: str = ""
) -> np.ndarray:
    """Converts an argument to float32; ShapeError or DataError unless it can be drawn.

    All numbers must be finite, or -inf if `masked`. No axis may be empty; `remedy` is the end of
    the message about wrong axes.

    Example:
        >>> checked("table", [[1, 2, 3]], "T D").shape
        (1, 3)
    """
    array = as_numbers(argument, value)
    sizes = check_axes(argument, array, axes, remedy=remedy)
    if 0 in sizes.values():
        raise ShapeError(f"{argument} must have no empty axis, got shape {array.shape}")
    bad = np.isnan(array) | (array == np.inf) | ((array == -np.inf) & (not masked))
    if bad.any():
        where = tuple(int(index) for index in np.argwhere(bad)[0])
        raise DataError(
            f"{argument} must be finite{', or -inf where masked' if masked else ''}, got "
            f"{array[where]} at {list(where)}"
        )
    return array


class Lettering(NamedTuple):
    r"""Fonts that together can draw all texts of a figure, in any script.

    If matplotlib's default font lacks a character, another installed font draws it. A character
    that no font has is written as its code, such as \u0c95, with a warning.

    Example:
        >>> lettering = Lettering.of(["Käse\n", " "])
        >>> lettering.token("Käse\n"), lettering.token(" "), lettering.missing
        ('Käse\\n', "' '", frozenset())
    """

    families: tuple[str, ...]  # the default first
    missing: frozenset[str]  # characters that no installed font has

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Lettering":
        """Finds fonts for some texts; warns if no font has a character."""
        needed = frozenset(c for c in "".join(texts) if _is_drawn(c) and c != " ")
        families, missing = _families(needed)
        if missing:
            some = ", ".join(
                f"U+{ord(c):04X} {unicodedata.name(c, '')}" for c in sorted(missing)[:3]
            )
            warnings.warn(
                f"no installed font has {len(missing)} of the figure's characters, such as {some}; "
                "they are written as codes; install a font for the script, such as Noto Sans",
                stacklevel=3,
            )
        return cls(families, missing)

    def token(self, text: str) -> str:
        """One drawable line, with codes for other characters; a text of only spaces is quoted."""
        if text and not text.strip(" "):
            return repr(text)
        return "".join(
            c if _is_drawn(c) and c not in self.missing else ascii(c)[1:-1] for c in text
        )

    def title(self, text: str) -> str:
        """Drawable text, as from `token`, but with line breaks."""
        return "\n".join(self.token(line) if line.strip() else "" for line in text.split("\n"))

    def apply(self, figure: "Figure", title: str = "") -> None:
        """Sets a title, and the fonts of all texts; turns off formulas between dollar signs."""
        from matplotlib.text import Text

        if title:
            figure.suptitle(self.title(title))
        for text in figure.findobj(Text):
            text.set_parse_math(False)
            if len(self.families) > 1:
                text.set_fontfamily(self.families)


def _is_drawn(character: str) -> bool:
    """Whether a character is drawn as it is; so are the letter joiners U+200C and U+200D."""
    return character.isprintable() or character in "\u200c\u200d"


@functools.cache
def _families(needed: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Font families that cover some characters, and the characters that no font has."""
    from matplotlib import font_manager

    default = font_manager.FontProperties().get_family()
    missing = needed - _characters(font_manager.findfont(font_manager.FontProperties()))
    families = list(default)
    if not missing:
        return tuple(families), missing
    # matplotlib's own list can be older than the installed fonts.
    listed = {font.fname: font for font in font_manager.fontManager.ttflist}
    paths = {*listed, *font_manager.findSystemFonts()}
    for path in sorted(paths, key=functools.partial(_suitability, _scripts(missing))):
        found = missing & _characters(path)
        if not found or "LastResort" in pathlib.Path(path).name:  # draws a box for every character
            continue
        if path not in listed:
            font_manager.fontManager.addfont(path)
        families.append(font_manager.get_font(path).family_name)
        missing -= found
        if not missing:
            break
    return tuple(families), missing


def _scripts(characters: Iterable[str]) -> frozenset[str]:
    """Scripts of characters, such as "kannada": the first words of their Unicode names."""
    return frozenset(unicodedata.name(c, "unnamed").split()[0].lower() for c in characters)


def _suitability(scripts: frozenset[str], path: str) -> tuple[bool, bool, bool, str]:
    """Sort key of a font: first fonts named after a script, then upright sans-serif fonts."""
    name = pathlib.Path(path).stem.lower()
    named = any(script in name for script in scripts)
    plain = not any(word in name for word in ("bold", "italic", "oblique", "light", "black"))
    return not named, not plain, "sans" not in name, path


def _characters(path: str) -> frozenset[str]:
    """Characters of a font file; none if matplotlib cannot use it."""
    from matplotlib import font_manager

    try:
        font = font_manager.get_font(path)
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()


def cells_to_mark(count: int, room: float, needed: float) -> Sequence[int]:
    """Cells of an axis that get a label: all, or every second, third, ... cell.

    `room` is the length of the axis, `needed` that of one label, both in inches.

    Example:
        >>> list(cells_to_mark(5, 1.0, 0.4))
        [0, 2, 4]
    """
    return range(0, count, max(1, -int(-needed * count // room)))
