"""Incremental decoding of tokens as they are generated."""

from typing import TYPE_CHECKING

import numpy.typing as npt

if TYPE_CHECKING:
    from jaxformer.text.tokenizers.tokenizer import Tokenizer

# A character has at most 4 bytes, so a decoder that starts this many tokens back is in sync again
# when it reaches the new ones.
_CONTEXT = 8


class StreamDecoder:
    """Incremental decoder, which holds back text that the next token may still change.

    The results of `push` and `flush` together are `Tokenizer.decode` of all ids. The time per token
    does not depend on the number of earlier tokens.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._tail: list[int] = []  # The latest ids,
        self._shown = 0  # and the number of characters of their text already returned.
        self._bytes: list[int] = []  # Byte tokens after them, decoded once their run has ended.

    def push(self, ids: npt.ArrayLike) -> str:
        """Takes the next tokens [tokens]; returns text that is now final, of these and others."""
        ids = self._bytes + self._tokenizer.ordinary_ids(ids)
        ready = len(ids)
        # SentencePiece decodes a run of tokens such as <0xC3> together.
        while ready and self._tokenizer.is_fallback_byte(ids[ready - 1]):
            ready -= 1
        self._bytes = ids[ready:]
        return self._push(ids[:ready])

    def skip(self, ids: npt.ArrayLike) -> None:
        """Takes tokens [tokens] without returning their text, such as those of a prompt."""
        self.push(ids)
        self._push(self._bytes)
        self._bytes = []

    def _push(self, ids: list[int]) -> str:
        """Takes tokens whose text is final, except for its last character."""
        self._tail += ids
        text = self._tokenizer.decode(self._tail)
        # An incomplete character decodes to one U+FFFD until its other bytes have come.
        held = text.endswith("\ufffd")
        new = text[self._shown : len(text) - held]
        self._tail = self._tail[-_CONTEXT:]
        self._shown = len(self._tokenizer.decode(self._tail)) - held
        return new

    def flush(self) -> str:
        """Ends the text and resets the decoder for another; returns the text that was held back."""
        text = self._push(self._bytes)
        held = self._tokenizer.decode(self._tail)[self._shown :]
        self._tail, self._shown, self._bytes = [], 0, []
        return text + held
