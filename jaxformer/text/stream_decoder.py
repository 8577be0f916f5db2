"""Text of tokens as they are generated, one after another."""

from typing import TYPE_CHECKING

import numpy.typing as npt

if TYPE_CHECKING:
    from jaxformer.text.tokenizers import Tokenizer

__all__ = ["StreamDecoder"]

# A character has at most 4 bytes, so a decoder that starts this many tokens back has found its
# place again when it gets to the new ones.
_CONTEXT = 8


class StreamDecoder:
    """Incremental decoder, which holds back text that the next token may still change.

    All that `push` returned and what `flush` returns make up `Tokenizer.decode` of all ids. The
    time per token does not depend on how many there were.

    Args:
        tokenizer: tokenizer that the ids are of.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> stream = StreamDecoder(byte_tokenizer())
        >>> [stream.push([byte]) for byte in "né!".encode()]
        ['n', '', 'é', '!']
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._tail: list[int] = []  # The latest ids,
        self._shown = 0  # and how many characters of their text were returned.

    def push(self, ids: npt.ArrayLike) -> str:
        """Takes the next tokens.

        Args:
            ids: integers [tokens].

        Returns:
            The text that became certain, often of the previous tokens and these; may be empty.

        Raises:
            DataError: an id is no integer, negative, or not in the vocabulary.

        Example:
            >>> from jaxformer.text import byte_tokenizer
            >>> byte_tokenizer().stream().push([104, 105, 195])
            'hi'
        """
        self._tail += self._tokenizer.ordinary_ids(ids)
        text = self._tokenizer.decode(self._tail)
        # The first bytes of a character are shown as one U+FFFD until the others have come.
        held = text.endswith("\ufffd")
        new = text[self._shown : len(text) - held]
        self._tail = self._tail[-_CONTEXT:]
        self._shown = len(self._tokenizer.decode(self._tail)) - held
        return new

    def flush(self) -> str:
        """Ends the text, and makes ready for another.

        Returns:
            The text that was held back.

        Example:
            >>> from jaxformer.text import byte_tokenizer
            >>> stream = byte_tokenizer().stream()
            >>> stream.push([195]), stream.flush()
            ('', '\ufffd')
        """
        held = self._tokenizer.decode(self._tail)[self._shown :]
        self._tail, self._shown = [], 0
        return held
