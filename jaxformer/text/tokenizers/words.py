"""Words of a text, as a word tokenizer splits them."""

import tokenizers
from tokenizers import pre_tokenizers

from jaxformer.text.tokenizers.pieces import require_texts

__all__ = ["WORDS", "split_words"]

WORDS = pre_tokenizers.Split(
    tokenizers.Regex(r"\w+(?:['’]\w+)*|[^\w\s]"), behavior="removed", invert=True
)


def split_words(text: str) -> list[str]:
    """Splits a text into words and punctuation characters.

    Args:
        text: text of any length.

    Returns:
        The words and punctuation characters in order, without spaces.

    Raises:
        DataError: the text has a lone surrogate.

    Example:
        >>> split_words("it's ನಮಸ್ಕಾರ, s07!")
        ["it's", 'ನಮಸ್ಕಾರ', ',', 's07', '!']
    """
    require_texts([text])
    return [word for word, _ in WORDS.pre_tokenize_str(text)]
