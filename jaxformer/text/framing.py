"""The special tokens that a tokenizer's model reads around a text."""

import json
from typing import Any, NamedTuple

import tokenizers

from jaxformer.errors import DataError

__all__ = ["Frame", "frame_of"]


class Frame(NamedTuple):
    """Ids of special tokens around a text.

    Args:
        before: ids before the text, such as that of [CLS].
        after: ids behind it, such as that of [SEP].
    """

    before: list[int]
    after: list[int]


def frame_of(tokenizer: tokenizers.Tokenizer) -> Frame:
    """Special tokens that the post-processor of a tokenizer puts around a text.

    Args:
        tokenizer: tokenizer of the library.

    Raises:
        DataError: the post-processor does something else.

    Example:
        >>> from tokenizers import models, processors
        >>> tokenizer = tokenizers.Tokenizer(models.WordLevel({"a": 0, "</s>": 1}))
        >>> frame_of(tokenizer)
        Frame(before=[], after=[])
        >>> tokenizer.post_processor = processors.TemplateProcessing(
        ...     single="$A </s>", special_tokens=[("</s>", 1)]
        ... )
        >>> frame_of(tokenizer)
        Frame(before=[], after=[1])
    """
    processor: Any = tokenizer.post_processor
    return Frame([], []) if processor is None else _frame(json.loads(processor.__getstate__()))


def _frame(state: dict[str, Any]) -> Frame:
    match state["type"]:
        case "ByteLevel":  # changes offsets only
            return Frame([], [])
        case "BertProcessing" | "RobertaProcessing":
            return Frame([state["cls"][1]], [state["sep"][1]])
        case "Sequence":
            frames = [f for f in map(_frame, state["processors"]) if f.before or f.after]
            if len(frames) > 1:
                raise DataError(
                    f"one post-processor puts special tokens around a text, got {len(frames)} that "
                    "do; mend the tokenizer's post_processor"
                )
            return frames[0] if frames else Frame([], [])
        case "TemplateProcessing":
            return _template_frame(state)
        case kind:
            raise DataError(
                f"the special tokens around a text are those of a post-processor {kind!r}, which "
                "is not known; encode the text without them"
            )


def _template_frame(state: dict[str, Any]) -> Frame:
    single, ids = state["single"], state["special_tokens"]
    texts = [index for index, part in enumerate(single) if "Sequence" in part]
    if len(texts) != 1:
        raise DataError(
            f"a template of special tokens must have the text once, got {len(texts)} times; mend "
            "the tokenizer's post_processor"
        )

    def tokens(parts: list[dict[str, Any]]) -> list[int]:
        return [token for part in parts for token in ids[part["SpecialToken"]["id"]]["ids"]]

    return Frame(tokens(single[: texts[0]]), tokens(single[texts[0] + 1 :]))
