"""The parts of a mask that kernels know: a window, lengths and segments."""

from typing import NamedTuple

from jaxformer.functional.masks.base import And, Mask
from jaxformer.functional.masks.rules import Lengths, Segments, Window

_ALL_REAL = Lengths()


class MaskParts(NamedTuple):
    """The parts of a mask that kernels know; a query sees the keys that all of them allow."""

    window: Window = Window(None, None)
    lengths: Lengths = _ALL_REAL
    segments: Segments | None = None
    rules: tuple[Mask, ...] = ()  # all others


def mask_parts(mask: Mask | None) -> MaskParts:
    """Splits a checked mask; of several windows with one offset, the narrower sides."""
    parts = MaskParts()
    for rule in mask.rules if isinstance(mask, And) else (mask,):
        if isinstance(rule, Window) and (window := _narrower(parts.window, rule)) is not None:
            parts = parts._replace(window=window)
        elif isinstance(rule, Lengths) and parts.lengths is _ALL_REAL:
            parts = parts._replace(lengths=rule)
        elif isinstance(rule, Segments) and parts.segments is None:
            parts = parts._replace(segments=rule)
        elif rule is not None:
            parts = parts._replace(rules=(*parts.rules, rule))
    return parts


def _narrower(window: Window, other: Window) -> Window | None:
    """The window that two allow; None if they are not at the same known offset."""
    if window.left is None and window.right is None:
        return other
    are_known = isinstance(window.offset, int) and isinstance(other.offset, int)
    if not are_known or window.offset != other.offset:
        return None
    left, right = (
        min((side for side in sides if side is not None), default=None)
        for sides in ((window.left, other.left), (window.right, other.right))
    )
    return Window(left, right, window.offset)
