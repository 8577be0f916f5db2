"""Workarounds for what the `tokenizers` library cannot do when it reads texts and files."""

import base64
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import tokenizers
from tokenizers import models

from jaxformer.errors import DataError
from jaxformer.text.tokenizers.charsmaps import Charsmap
from jaxformer.text.tokenizers.spelling import flat_steps, steps_of

_MOST_GROWTH = 10_000  # times; published files have 1 to 13

_ONE_SPACE = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
_NO_LAST_SPACE = {"type": "Strip", "strip_left": False, "strip_right": True}

LONGEST_MATCH: dict[str, Any] = {
    "type": "Replace",
    "pattern": {"Regex": "(?!)"},
    "content": "longest match",
}
"""A step that matches nothing. It marks the next step, `Precompiled`, as the rules of a
SentencePiece model, to be applied as SentencePiece does."""

WITHOUT_ID = " without id: "
"""Prefix of Unigram pieces that are read as the unknown token: pieces of a SentencePiece model that
the Transformer's vocabulary lacks. They have the last ids."""


def require_bounded(tokenizer: tokenizers.Tokenizer) -> None:
    """Raises DataError if prepending and replacing could make a text grow until it fills memory."""
    for part in (tokenizer.normalizer, tokenizer.decoder):
        growth = 1
        for step in steps_of(part):
            growth *= max(1, len(step.get("prepend") or step.get("content") or ""))
        if growth > _MOST_GROWTH:
            raise DataError(
                "the steps of a tokenizer must make a text at most "
                f"{_MOST_GROWTH:,} times as long, got {growth:,} times; its file is damaged or "
                "untrusted"
            )


def reading_copy(
    tokenizer: tokenizers.Tokenizer,
) -> tuple[tokenizers.Tokenizer, Charsmap | None]:
    """Copy of a tokenizer for reading texts, and the rules to apply to a text before.

    The copy is the tokenizer itself if it needs none.

    - The library finds special tokens of a Unigram vocabulary in any text that contains their
      spelling. In the copy, a space precedes their names. No text that it reads contains this
      space, since such vocabularies write spaces as U+2581.
    - Pieces that begin with `WITHOUT_ID` are found in text, under ids that the tokenizer lacks.
    - The library's step `Precompiled` does not match the longest rule. After `LONGEST_MATCH`, it is
      removed from the copy and done by `Charsmap`.
    """
    unigram = isinstance(tokenizer.model, models.Unigram)
    special = {t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special}
    if not unigram and tokenizer.normalizer is None:
        return tokenizer, None
    steps = steps_of(tokenizer.normalizer)
    is_exact = steps[:1] == [LONGEST_MATCH] and steps[1:2] and "precompiled_charsmap" in steps[1]
    rules = steps[1] if is_exact else None
    if rules is None and not unigram:
        return tokenizer, None
    state = json.loads(tokenizer.to_str())
    charsmap = None
    if rules is not None:
        charsmap = Charsmap(base64.b64decode(rules["precompiled_charsmap"]))
        state["normalizer"]["normalizers"] = steps[2:]
    if unigram:
        for entry in state["model"]["vocab"]:
            if entry[0] in special:
                entry[0] = " " + entry[0]
            entry[0] = entry[0].removeprefix(WITHOUT_ID)
        state["added_tokens"] = [t for t in state["added_tokens"] if not t["special"]]
        state["post_processor"] = None
    copy = tokenizers.Tokenizer.from_str(json.dumps(state))
    copy.encode_special_tokens = True
    return copy, charsmap


def continuing_copy(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer | None:
    """Copy of a tokenizer that puts no space before a text; None if the tokenizer puts none.

    Tokenizers in the style of SentencePiece begin each text with a space, so that its first word
    has the token that it has elsewhere. A text that continues another must not get one.
    """
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


@contextlib.contextmanager
def panics_as_errors(what: str) -> Iterator[None]:
    """Turns a panic of the library (such as a regex that takes too long) into a DataError."""
    try:
        yield
    except BaseException as error:  # A panic is not an Exception; its class cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise DataError(f"{what}: {error}; is its file damaged or untrusted?") from None
