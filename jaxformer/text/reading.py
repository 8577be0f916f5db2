"""What a tokenizer of the `tokenizers` library lacks to read texts as it should."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import tokenizers
from tokenizers import models

from jaxformer.errors import DataError
from jaxformer.text.charsmaps import Charsmap

__all__ = ["LONGEST_MATCH", "WITHOUT_ID", "reading_copy", "require_bounded"]

_MOST_GROWTH = 10_000  # times; published files have 1 to 13

LONGEST_MATCH: dict[str, Any] = {
    "type": "Replace",
    "pattern": {"Regex": "(?!)"},
    "content": "longest match",
}
"""A step that matches nothing, and says that the rules of the step behind it, which is
`Precompiled`, are those of a SentencePiece model, to be applied as SentencePiece does."""

WITHOUT_ID = " without id: "
"""What the pieces of a Unigram vocabulary begin with that are read as the unknown token: those of a
SentencePiece model which the vocabulary of its Transformer lacks. They have the last ids."""


def require_bounded(tokenizer: tokenizers.Tokenizer) -> None:
    """Checks that no text becomes so long that it fills the memory, before any is read or written.

    Raises:
        DataError: the steps that prepend and replace could make a letter too many of them.
    """
    for part in (tokenizer.normalizer, tokenizer.decoder):
        growth = 1
        for step in _steps(json.loads(part.__getstate__())) if part is not None else ():
            growth *= max(1, len(step.get("prepend") or step.get("content") or ""))
        if growth > _MOST_GROWTH:
            raise DataError(
                "the steps of a tokenizer must make a text at most "
                f"{_MOST_GROWTH:,} times as long, got {growth:,} times; it is damaged, or of a "
                "stranger"
            )


def _steps(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A step, and those in it."""
    yield state
    for inner in (*state.get("normalizers", ()), *state.get("decoders", ())):
        yield from _steps(inner)


def reading_copy(
    tokenizer: tokenizers.Tokenizer,
) -> tuple[tokenizers.Tokenizer, Charsmap | None]:
    """Copy of a tokenizer that texts are read with; the tokenizer itself where it needs no copy.

    - The library finds the special tokens of a Unigram vocabulary in any text that has their
      spelling. In the copy a space is before their names, which is in no text that it reads: such
      vocabularies write spaces as U+2581.
    - Pieces that begin with `WITHOUT_ID` are found in text, under ids that the tokenizer lacks.
    - The step `Precompiled` of the library is no longest match. Behind `LONGEST_MATCH` it is left
      out in the copy, and done by `Charsmap`.

    Args:
        tokenizer: tokenizer of the library.

    Returns:
        The copy, and the rules that are applied to a text before it gets it, if there are any.

    Raises:
        DataError: the rules are damaged.
    """
    unigram = isinstance(tokenizer.model, models.Unigram)
    special = {t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special}
    if not unigram and tokenizer.normalizer is None:
        return tokenizer, None
    normalizer = None if tokenizer.normalizer is None else _state(tokenizer.normalizer)
    steps = normalizer.get("normalizers", []) if normalizer else []
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


def _state(part: Any) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(part.__getstate__())
    return state
