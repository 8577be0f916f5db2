"""Sentences from patterns: every filler in every slot, or a random subset."""

import hashlib
import heapq
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, NamedTuple

from forms import Subject
from words import NAMES, PRONOUNS, RELATIVES

__all__ = ["ALL", "Template", "differ", "fill", "fits", "rank", "whoever"]

ALL = 10_000  # more than any pattern has


class Template(NamedTuple):
    """Sentences of one pattern.

    Args:
        topic: topic, such as "food".
        pairs: English and Kannada.
    """

    topic: str
    pairs: tuple[tuple[str, str], ...]


def rank(english: str, purpose: str) -> bytes:
    """Sort key: a random order that is always the same."""
    return hashlib.sha256(f"{purpose}: {english}".encode()).digest()


def fill(
    topic: str,
    count: int,
    english: str,
    kannada: str,
    *,
    where: Callable[..., bool] | None = None,
    **slots: Iterable[Any],
) -> Template:
    """Draws at most `count` of the ways to fill the slots of a pattern.

    Args:
        topic: topic of the sentences.
        count: largest number of sentences.
        english: pattern. `{s}` is the filler of slot s, `{s.is_}` one of its forms, and `{does}`
            the present tense of action `a` of subject `s`.
        kannada: pattern, with the same slots.
        where: whether fillers go together.
        **slots: possible fillers of each slot.

    Returns:
        The sentences drawn, in an order that depends only on their English.

    Example:
        >>> fill("names", 1, "i am {n}", "ನಾನು {n.kannada}", n=NAMES[:1]).pairs
        (('i am prathamesh', 'ನಾನು ಪ್ರಥಮೇಶ್'),)
    """
    # Draws by the English, and formats the Kannada only of what was drawn.
    choices = (dict(zip(slots, values, strict=True)) for values in product(*slots.values()))
    filled = (
        (english.format(**fillers, does=_does(fillers)), fillers)
        for fillers in choices
        if where is None or where(**fillers)
    )
    drawn = heapq.nsmallest(count, filled, key=lambda pair: rank(pair[0], "draw"))
    return Template(topic, tuple((text, kannada.format(**fillers)) for text, fillers in drawn))


def _does(fillers: dict[str, Any]) -> str:
    """English present tense of action `a` of subject `s`, if the pattern has both."""
    return fillers["a"].does(fillers["s"]) if {"a", "s"} <= fillers.keys() else ""


def whoever(
    topic: str, count: int, english: str, kannada: str, *who: Iterable[Subject], **slots: Any
) -> Template:
    """Fills a pattern with the same number of pronouns, relatives and names as `s`.

    Example:
        >>> template = whoever("verbs", 3, "{s} sleep{s.s}", "{s.kannada} ನಿದ್ದೆ ಮಾಡುತ್ತ{s.now}")
        >>> len(template.pairs)
        3
    """
    groups = who or (PRONOUNS, RELATIVES, NAMES)
    drawn = [fill(topic, count // len(groups), english, kannada, s=s, **slots) for s in groups]
    return Template(topic, tuple(pair for template in drawn for pair in template.pairs))


def fits(**fillers: Any) -> bool:
    """Whether a relative `r` can have the name `n`."""
    return fillers["n"].feminine == fillers["r"].feminine


def differ(**fillers: Any) -> bool:
    """Whether all fillers differ."""
    return len(set(map(str, fillers.values()))) == len(fillers)
