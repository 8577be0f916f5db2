"""How tokens spell text, and copies of tokenizers that read text as they should."""

import functools
import json
import re
from collections.abc import Collection
from typing import Any, Literal

import tokenizers
from tokenizers import models, pre_tokenizers

Spelling = Literal["byte letters", "marked spaces", "characters", "joined"]
"""One letter per byte, as in GPT-2; text in which U+2581 is a space and <0x0A> a byte, as in
SentencePiece; the text itself; or words and parts of words, with spaces between them."""

SPACE = "\u0120"
"""The letter that stands for a space in byte-level tokens."""

MARKED_SPACE = "\u2581"
"""The letter that stands for a space in SentencePiece tokens."""

_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
_ONE_SPACE = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
_NO_LAST_SPACE = {"type": "Strip", "strip_left": False, "strip_right": True}


def token_spelling(tokenizer: tokenizers.Tokenizer) -> Spelling:
    """How the tokens of a tokenizer spell text, by its decoder."""
    decoder: Any = tokenizer.decoder  # the library exposes its steps only as JSON
    steps = [] if decoder is None else flat_steps(json.loads(decoder.__getstate__()))
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


def reading_copy(tokenizer: tokenizers.Tokenizer, special: Collection[str]) -> tokenizers.Tokenizer:
    """Copy of a tokenizer that reads the names of special tokens as text; itself if it does.

    The library finds the entries of a vocabulary of words or of Unigram pieces in any text, special
    tokens too. In the copy, a space precedes their names: no word contains one, and pieces write it
    as U+2581.
    """
    if not isinstance(tokenizer.model, models.Unigram | models.WordLevel):
        return tokenizer
    state = json.loads(tokenizer.to_str())
    model = state["model"]
    hidden = {name: f" {name}" for name in special if name != model.get("unk_token")}
    if isinstance(model["vocab"], dict):
        model["vocab"] = {hidden.get(name, name): i for name, i in model["vocab"].items()}
    else:
        model["vocab"] = [[hidden.get(name, name), score] for name, score in model["vocab"]]
    state["added_tokens"] = [token for token in state["added_tokens"] if not token["special"]]
    state["post_processor"] = None
    copy = tokenizers.Tokenizer.from_str(json.dumps(state))
    copy.encode_special_tokens = True
    return copy


def continuing_copy(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer | None:
    """Copy of a tokenizer that puts no space before a text; None if the tokenizer puts none."""
    state = json.loads(tokenizer.to_str())
    normalizers, words = (flat_steps(state[key]) for key in ("normalizer", "pre_tokenizer"))
    if not any(_adds_space(step) for step in (*normalizers, *words)):
        return None
    normalizers = [step for step in normalizers if step["type"] != "Prepend"]
    for step in normalizers:
        if step["type"] == "Strip":
            step["strip_left"] = False
    if any(step["type"] == "WhitespaceSplit" for step in words):
        # It removes all spaces, and Metaspace then adds one to each word. Without it, several
        # spaces become one, and the text may begin with one.
        words = [step for step in words if step["type"] != "WhitespaceSplit"]
        normalizers += [_ONE_SPACE, _NO_LAST_SPACE]
    for step in words:
        if step["type"] == "Metaspace":
            step["prepend_scheme"] = "never"
        elif step["type"] == "ByteLevel":
            step["add_prefix_space"] = False
    state["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
    state["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": words} if words else None
    return tokenizers.Tokenizer.from_str(json.dumps(state))


def _adds_space(step: dict[str, Any]) -> bool:
    """Whether a step of a tokenizer puts a space before a text."""
    scheme = step.get("prepend_scheme", "never")
    return step["type"] == "Prepend" or scheme != "never" or step.get("add_prefix_space", False)
