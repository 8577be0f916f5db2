"""How the tokens of a tokenizer spell text, read from its decoder."""

import json
import re
from typing import Any, Literal

import tokenizers

__all__ = ["MARKED_SPACE", "Spelling", "fallback_byte", "token_spelling"]

Spelling = Literal["byte letters", "marked spaces", "characters", "joined"]

MARKED_SPACE = "\u2581"
"""The letter that stands for a space in SentencePiece tokens."""

_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")


def token_spelling(tokenizer: tokenizers.Tokenizer) -> Spelling:
    """Finds out how the tokens of a tokenizer spell text.

    Args:
        tokenizer: tokenizer of the library.

    Returns:
        "byte letters": one letter per byte, as in GPT-2; "marked spaces": text in which U+2581 is a
        space and <0x0A> a byte, as in SentencePiece; "characters": the text itself; or "joined":
        words and parts of words, with spaces that the decoder puts between them.

    Example:
        >>> from tokenizers import Tokenizer, decoders, models
        >>> tokenizer = Tokenizer(models.BPE())
        >>> token_spelling(tokenizer)
        'joined'
        >>> tokenizer.decoder = decoders.Metaspace()
        >>> token_spelling(tokenizer)
        'marked spaces'
    """
    steps = _steps(tokenizer.decoder)
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds:
        return "byte letters"
    marks = {"String": MARKED_SPACE}
    if "Metaspace" in kinds or any(step.get("pattern") == marks for step in steps):
        return "marked spaces"
    return "characters" if kinds == {"Fuse"} else "joined"


def fallback_byte(token: str) -> int | None:
    """The byte that a token such as <0x0A> stands for; None for other tokens.

    Example:
        >>> fallback_byte("<0x0A>"), fallback_byte("ten")
        (10, None)
    """
    found = _FALLBACK.fullmatch(token)
    return int(found[1], 16) if found else None


def _steps(decoder: Any) -> list[dict[str, Any]]:
    """The steps of a decoder; the library exposes them only as JSON."""
    if decoder is None:
        return []
    state = json.loads(decoder.__getstate__())
    return _flat(state)


def _flat(state: dict[str, Any]) -> list[dict[str, Any]]:
    if state["type"] != "Sequence":
        return [state]
    return [step for inner in state["decoders"] for step in _flat(inner)]
