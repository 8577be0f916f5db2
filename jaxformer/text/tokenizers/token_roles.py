"""Names of the tokens with a special role."""

import dataclasses

__all__ = ["END_OF_TEXT", "MASK", "UNKNOWN", "TokenRoles"]

END_OF_TEXT = "<|endoftext|>"
UNKNOWN = "<|unknown|>"
MASK = "<|mask|>"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenRoles:
    """Special tokens of a vocabulary that was made elsewhere.

    Args:
        end_of_text: name of the token that ends a document, such as "</s>".
        mask: name of the mask token, such as "[MASK]".
        surrounded: whether the model expects the special tokens of the tokenizer's post-processor
            around every text, such as [CLS] and [SEP].
    """

    end_of_text: str = END_OF_TEXT
    mask: str = MASK
    surrounded: bool = False
