"""The special tokens that a model reads around a text."""

import dataclasses
import json
from typing import Any

import numpy as np
import tokenizers

from jaxformer.errors import DataError

__all__ = ["SurroundingTokens", "template_tokens"]


@dataclasses.dataclass(frozen=True)
class SurroundingTokens:
    """Special tokens before and behind a text.

    Args:
        before: ids before the text, such as that of [CLS].
        after: ids behind it, such as that of [SEP].

    Example:
        >>> SurroundingTokens(before=(101,), after=(102,)).around(np.array([7, 11]))
        array([101,   7,  11, 102], dtype=int32)
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """How many tokens they add to a text.

        Example:
            >>> SurroundingTokens(after=(2,)).size
            1
        """
        return len(self.before) + len(self.after)

    def around(self, ids: np.ndarray) -> np.ndarray:
        """Puts the tokens around those of a text.

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
    """Special tokens that the post-processor of a tokenizer puts around a text.

    Args:
        tokenizer: tokenizer of the library.

    Raises:
        DataError: the post-processor does something else.

    Example:
        >>> from tokenizers import models, processors
        >>> tokenizer = tokenizers.Tokenizer(models.WordLevel({"a": 0, "</s>": 1}))
        >>> template_tokens(tokenizer)
        SurroundingTokens(before=(), after=())
        >>> tokenizer.post_processor = processors.TemplateProcessing(
        ...     single="$A </s>", special_tokens=[("</s>", 1)]
        ... )
        >>> template_tokens(tokenizer)
        SurroundingTokens(before=(), after=(1,))
    """
    processor: Any = tokenizer.post_processor
    if processor is None:
        return SurroundingTokens()
    return _processor_tokens(json.loads(processor.__getstate__()))


def _processor_tokens(state: dict[str, Any]) -> SurroundingTokens:
    match state["type"]:
        case "ByteLevel":  # changes offsets only
            return SurroundingTokens()
        case "BertProcessing" | "RobertaProcessing":
            return SurroundingTokens((state["cls"][1],), (state["sep"][1],))
        case "Sequence":
            found = [one for one in map(_processor_tokens, state["processors"]) if one.size]
            if len(found) > 1:
                raise DataError(
                    f"one post-processor puts special tokens around a text, got {len(found)} that "
                    "do; mend the tokenizer's post_processor"
                )
            return found[0] if found else SurroundingTokens()
        case "TemplateProcessing":
            return _single_tokens(state["single"], state["special_tokens"])
        case kind:
            raise DataError(
                f"the special tokens around a text are those of a post-processor {kind!r}, which "
                "is not known; encode the text without them"
            )


def _single_tokens(single: list[dict[str, Any]], special: dict[str, Any]) -> SurroundingTokens:
    """Tokens of a template for one text."""
    texts = [index for index, part in enumerate(single) if "Sequence" in part]
    if len(texts) != 1:
        raise DataError(
            f"a template of special tokens must have the text once, got {len(texts)} times; mend "
            "the tokenizer's post_processor"
        )

    def ids(parts: list[dict[str, Any]]) -> tuple[int, ...]:
        return tuple(i for part in parts for i in special[part["SpecialToken"]["id"]]["ids"])

    return SurroundingTokens(ids(single[: texts[0]]), ids(single[texts[0] + 1 :]))
