"""Special tokens around a text, such as [CLS] and [SEP]."""

import dataclasses

import numpy as np
import tokenizers
from tokenizers import models

from jaxformer.errors import DataError


@dataclasses.dataclass(frozen=True)
class SurroundingTokens:
    """Special tokens before and after a text, and between two texts that are read together.

    Args:
        before: ids before the text, such as [CLS].
        after: ids after it, such as [SEP].
        between: ids between two texts; empty if the model does not read pairs of texts.
        second_type: token type of the second text and of everything after it; all others have 0.

    Example:
        >>> SurroundingTokens(before=(101,), after=(102,)).around(np.array([7, 11]))
        array([101,   7,  11, 102], dtype=int32)
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    second_type: int = 0

    @property
    def size(self) -> int:
        """Number of tokens added to a text.

        Example:
            >>> SurroundingTokens(after=(2,)).size
            1
        """
        return len(self.before) + len(self.after)

    def around(self, ids: np.ndarray) -> np.ndarray:
        """Puts the special tokens around the tokens of a text.

        Args:
            ids: integers [tokens].

        Returns:
            int32 [tokens + size].

        Example:
            >>> SurroundingTokens(after=(2,)).around(np.array([7, 11]))
            array([ 7, 11,  2], dtype=int32)
        """
        before, after = np.array(self.before, np.int32), np.array(self.after, np.int32)
        return np.concatenate([before, ids, after], dtype=np.int32)

    def around_pair(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Puts the special tokens around and between two texts, such as a query and a passage.

        Args:
            first: integers [tokens].
            second: integers [tokens].

        Returns:
            Tokens and token types, int32 [tokens of both texts and special tokens].

        Raises:
            DataError: the tokenizer has no template for two texts.

        Example:
            >>> special = SurroundingTokens((101,), (102,), between=(102,), second_type=1)
            >>> special.around_pair(np.array([7, 11]), np.array([13]))[0]
            array([101,   7,  11, 102,  13, 102], dtype=int32)
        """
        if not self.between:
            raise DataError(
                "to read two texts together, the tokenizer must have special tokens between them, "
                "got none; use the tokenizer.json of a model for pairs of texts"
            )
        before, between, after = self.before, self.between, self.after
        ids = np.array([*before, *first, *between, *second, *after], np.int32)
        types = np.full(ids.size, self.second_type, np.int32)
        types[: len(before) + len(first) + len(between)] = 0
        return ids, types


def template_tokens(tokenizer: tokenizers.Tokenizer) -> SurroundingTokens:
    """Special tokens that the post-processor of a tokenizer puts around a text."""
    processor = tokenizer.post_processor
    if processor is None:
        return SurroundingTokens()
    # A text of one token, to see what the post-processor puts around it.
    text = tokenizers.Tokenizer(models.WordLevel({"a": 0}, "a")).encode("a")
    single, pair = processor.process(text), processor.process(text, text)
    texts = [i for i, is_special in enumerate(single.special_tokens_mask) if not is_special]
    before, after = tuple(single.ids[: texts[0]]), tuple(single.ids[texts[0] + 1 :])
    first, second = (i for i, is_special in enumerate(pair.special_tokens_mask) if not is_special)
    second_type = pair.type_ids[second]
    special = SurroundingTokens(before, after, tuple(pair.ids[first + 1 : second]), second_type)
    return special if _is_of_pair(special, pair) else SurroundingTokens(before, after)


def _is_of_pair(special: SurroundingTokens, pair: tokenizers.Encoding) -> bool:
    """Whether the special tokens around and between two texts are those of a pair."""
    if not special.between or pair.sequence_ids[len(special.before)] != 0:
        return False
    ids, types = special.around_pair(np.zeros(1, int), np.zeros(1, int))
    return (ids.tolist(), types.tolist()) == (pair.ids, pair.type_ids)
