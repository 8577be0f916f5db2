"""Special tokens around a text, such as [CLS] and [SEP]."""

import dataclasses
import json
from typing import Any

import numpy as np
import tokenizers

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

    def are_around(self, ids: np.ndarray) -> bool:
        """Whether tokens begin and end with the special tokens, as those of `around` do.

        Args:
            ids: integers [tokens].

        Example:
            >>> SurroundingTokens(after=(2,)).are_around(np.array([7, 11, 2]))
            True
        """
        begin, end = ids[: len(self.before)], ids[ids.size - len(self.after) :]
        return ids.size >= self.size and (*begin, *end) == (*self.before, *self.after)

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
    """Special tokens that the post-processor of a tokenizer puts around a text.

    Example:
        >>> from tokenizers import models, processors
        >>> tokenizer = tokenizers.Tokenizer(models.WordLevel({"a": 0, "</s>": 1}))
        >>> template_tokens(tokenizer).size
        0
        >>> tokenizer.post_processor = processors.TemplateProcessing(
        ...     single="$A </s>", special_tokens=[("</s>", 1)]
        ... )
        >>> template_tokens(tokenizer).after
        (1,)
    """
    processor: Any = tokenizer.post_processor
    if processor is None:
        return SurroundingTokens()
    return _processor_tokens(json.loads(processor.__getstate__()))


def _processor_tokens(state: dict[str, Any]) -> SurroundingTokens:
    match state["type"]:
        case "ByteLevel":  # changes offsets only
            return SurroundingTokens()
        case "BertProcessing":
            end = (state["sep"][1],)
            return SurroundingTokens((state["cls"][1],), end, between=end, second_type=1)
        case "RobertaProcessing":
            end = (state["sep"][1],)
            return SurroundingTokens((state["cls"][1],), end, between=end * 2)
        case "Sequence":
            found = [one for one in map(_processor_tokens, state["processors"]) if one.size]
            if len(found) > 1:
                raise DataError(
                    "only one post-processor may put special tokens around a text, got "
                    f"{len(found)}; fix the tokenizer's post_processor"
                )
            return found[0] if found else SurroundingTokens()
        case "TemplateProcessing":
            single = _single_tokens(state["single"], state["special_tokens"])
            return _with_pair(single, state["pair"], state["special_tokens"])
        case kind:
            raise DataError(
                f"the special tokens around a text come from a post-processor {kind!r}, which is "
                "not supported; encode the text without them"
            )


def _single_tokens(single: list[dict[str, Any]], special: dict[str, Any]) -> SurroundingTokens:
    """Tokens of a template for one text."""
    texts = [index for index, part in enumerate(single) if "Sequence" in part]
    if len(texts) != 1:
        raise DataError(
            f"a template of special tokens must have the text once, got {len(texts)} times; fix "
            "the tokenizer's post_processor"
        )

    before, after = single[: texts[0]], single[texts[0] + 1 :]
    return SurroundingTokens(_ids(before, special), _ids(after, special))


def _with_pair(
    single: SurroundingTokens, pair: list[dict[str, Any]], special: dict[str, Any]
) -> SurroundingTokens:
    """Adds the tokens between two texts, if a pair has the same tokens around it as one text."""
    texts = [index for index, part in enumerate(pair) if "Sequence" in part]
    if [pair[index]["Sequence"]["id"] for index in texts] != ["A", "B"]:
        return single
    first, second = texts
    types = [each["type_id"] for part in pair for each in part.values()]
    found = SurroundingTokens(
        _ids(pair[:first], special), _ids(pair[second + 1 :], special),
        _ids(pair[first + 1 : second], special), types[second],
    )  # fmt: skip
    as_one = (found.before, found.after) == (single.before, single.after)
    two_types = types == [0] * second + [types[second]] * (len(pair) - second)
    return found if as_one and two_types else single


def _ids(parts: list[dict[str, Any]], special: dict[str, Any]) -> tuple[int, ...]:
    return tuple(i for part in parts for i in special[part["SpecialToken"]["id"]]["ids"])
