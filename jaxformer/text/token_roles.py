"""Which tokens of a vocabulary do what."""

import dataclasses

__all__ = ["END_OF_TEXT", "MASK", "UNKNOWN", "TokenRoles"]

END_OF_TEXT = "<|endoftext|>"
UNKNOWN = "<|unknown|>"
MASK = "<|mask|>"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenRoles:
    """Which tokens of a vocabulary that was made elsewhere do what, and how a model reads a text.

    Args:
        end_of_text: name of the token that ends a document, such as "</s>".
        mask: name of the token that stands for one to be predicted, such as "[MASK]".
        surrounded: whether the model reads every text with the special tokens around it that the
            tokenizer's own post-processor has, such as [CLS] and [SEP].
    """

    end_of_text: str = END_OF_TEXT
    mask: str = MASK
    surrounded: bool = False
