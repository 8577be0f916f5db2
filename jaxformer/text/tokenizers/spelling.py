"""How the tokens of a tokenizer spell text: as letters that stand for bytes, or marked spaces."""

import functools
import json
import re
from typing import Any, Literal

import tokenizers
from tokenizers import pre_tokenizers

Spelling = Literal["byte letters", "marked spaces", "characters", "joined"]
"""One letter per byte, as in GPT-2; text in which U+2581 is a space and <0x0A> a byte, as in
SentencePiece; the text itself; or words and parts of words, with spaces between them."""

SPACE = "\u0120"
"""The letter that stands for a space in byte-level tokens."""

MARKED_SPACE = "\u2581"
"""The letter that stands for a space in SentencePiece tokens."""

_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")


def token_spelling(tokenizer: tokenizers.Tokenizer) -> Spelling:
    """How the tokens of a tokenizer spell text, by its decoder."""
    steps = steps_of(tokenizer.decoder)
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds:
        return "byte letters"
    marks = {"String": MARKED_SPACE}
    if "Metaspace" in kinds or any(step.get("pattern") == marks for step in steps):
        return "marked spaces"
    return "characters" if kinds == {"Fuse"} else "joined"


def fallback_byte(token: str) -> int | None:
    """The byte that a token such as <0x0A> stands for; None for other tokens."""
    match = _FALLBACK.fullmatch(token)
    return int(match[1], 16) if match else None


def steps_of(part: Any) -> list[dict[str, Any]]:
    """The steps of a normalizer or decoder, if any; the library exposes them only as JSON."""
    return [] if part is None else flat_steps(json.loads(part.__getstate__()))


def flat_steps(state: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The steps of the JSON of a normalizer, pre-tokenizer or decoder, if any."""
    if state is None:
        return []
    if state["type"] != "Sequence":
        return [state]
    inner = (state.get(name, ()) for name in ("normalizers", "pretokenizers", "decoders"))
    return [step for steps in inner for inner_step in steps for step in flat_steps(inner_step)]


@functools.cache
def byte_letters() -> dict[str, int]:
    """The byte of each letter of byte-level vocabularies, as in GPT-2."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    visible = {letter: ord(letter) for letter in alphabet if ord(letter) < 256}
    invisible = sorted(set(range(256)) - set(visible.values()))
    return visible | dict(zip(alphabet[len(visible) :], invisible, strict=True))
