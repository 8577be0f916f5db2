"""Byte-level vocabularies, whose tokens write each byte as one letter."""

import functools
import re

from tokenizers import pre_tokenizers

__all__ = ["SPACE", "byte_letters", "byte_token_text"]

SPACE = "\u0120"
"""The letter that stands for a space."""


@functools.cache
def byte_letters() -> dict[str, int]:
    """Maps the letters of byte-level vocabularies to the bytes that they stand for.

    A visible byte is written as itself, any other as the next letter from U+0100 on (Radford et
    al., "Language Models are Unsupervised Multitask Learners", 2019).
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    visible = {letter: ord(letter) for letter in alphabet if ord(letter) < 256}
    others = sorted(set(range(256)) - set(visible.values()))
    return visible | dict(zip(alphabet[len(visible) :], others, strict=True))


def byte_token_text(token: str) -> str:
    """Text of a byte-level token; the token itself if it has other letters.

    A byte that is only a part of a character is in angle brackets, in hexadecimal.

    Example:
        >>> byte_token_text("\u0120so"), byte_token_text("Ã")
        (' so', '⟨C3⟩')
    """
    letters = byte_letters()
    if not letters.keys() >= set(token):
        return token
    text = bytes(letters[letter] for letter in token).decode("utf-8", "surrogateescape")
    # Bytes that are not UTF-8 have become surrogates; their last two hexadecimal digits are the
    # byte.
    return re.sub(r"[\udc80-\udcff]+", lambda part: f"⟨{_hexadecimal(part[0])}⟩", text)


def _hexadecimal(surrogates: str) -> str:
    return surrogates.encode("utf-8", "surrogateescape").hex(" ").upper()
