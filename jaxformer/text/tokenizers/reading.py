"""Workarounds for what the `tokenizers` library cannot do when it reads texts and files."""

import json
from collections.abc import Collection
from typing import Any

import tokenizers
from tokenizers import models

from jaxformer.text.tokenizers.spelling import flat_steps

_ONE_SPACE = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
_NO_LAST_SPACE = {"type": "Strip", "strip_left": False, "strip_right": True}


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
