"""Special tokens around a text, such as [CLS] and [SEP]."""

import dataclasses

import numpy as np
import tokenizers
from tokenizers import models


@dataclasses.dataclass(frozen=True)
class SurroundingTokens:
    """Special tokens before and after a text.

    Args:
        before: ids before the text, such as [CLS].
        after: ids after it, such as [SEP].

    Example:
        >>> SurroundingTokens(before=(101,), after=(102,)).around(np.array([7, 11]))
        array([101,   7,  11, 102], dtype=int32)
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

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


def template_tokens(tokenizer: tokenizers.Tokenizer) -> SurroundingTokens:
    """Special tokens that the post-processor of a tokenizer puts around a text."""
    processor = tokenizer.post_processor
    if processor is None:
        return SurroundingTokens()
    # A text of one token, to see what the post-processor puts around it.
    text = tokenizers.Tokenizer(models.WordLevel({"a": 0}, "a")).encode("a")
    single = processor.process(text)
    place = single.special_tokens_mask.index(0)
    return SurroundingTokens(tuple(single.ids[:place]), tuple(single.ids[place + 1 :]))
