"""Rows of batches as text, with marks for predicted tokens and ends of documents."""

import itertools
from collections.abc import Iterator

import numpy as np

from jaxformer.text import IGNORE, Tokenizer

__all__ = ["CAUSAL_MARKS", "MASKED_MARKS", "causal_text", "masked_text", "plain_text"]

_END = "‖"

CAUSAL_MARKS = f"‹text› is context only, the rest is predicted; {_END} ends a document"
MASKED_MARKS = (
    "«MASK=word» is a masked token and its answer, «other=word» a token that was replaced, "
    f"«word=word» one left as it is; only these are predicted; {_END} ends a document"
)


def plain_text(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    """Decodes tokens, integers [tokens], with a mark for the end of text.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> plain_text(byte_tokenizer(), np.array([104, 105, 256, 104]))
        'hi‖h'
    """
    return "".join(_pieces(tokenizer, ids))


def causal_text(
    tokenizer: Tokenizer, tokens: np.ndarray, labels: np.ndarray, segments: np.ndarray
) -> str:
    """A row [T] of a causal language model, with `CAUSAL_MARKS`, and the token after the last.

    The text of padding, where segments are 0, is empty.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> tokens, labels = np.array([97, 98, 99, 0]), np.array([98, IGNORE, 100, IGNORE])
        >>> causal_text(byte_tokenizer(), tokens, labels, np.array([1, 1, 2, 0]))
        '‹a›b‖‹c›d'
        >>> causal_text(byte_tokenizer(), tokens, labels, np.zeros(4, int))
        ''
    """
    size = int((segments != 0).sum())
    if not size:
        return ""
    is_predicted = np.append(False, labels[:size] != IGNORE)
    ids, segments = np.append(tokens[:size], labels[size - 1]), segments[:size]
    segments = np.append(segments, segments[-1])
    shown = slice(None) if is_predicted[-1] else slice(-1)
    texts: list[str] = []
    for segment in np.unique(segments):
        of_segment = np.flatnonzero(segments[shown] == segment)
        if texts and ids[of_segment[0] - 1] != tokenizer.end_of_text:
            texts.append(_END)
        pieces = zip(is_predicted[of_segment], _pieces(tokenizer, ids[of_segment]), strict=True)
        for counts, group in itertools.groupby(pieces, key=lambda pair: pair[0]):
            piece = "".join(one for _, one in group)
            texts.append(piece if counts else _marked(piece, "‹", "›"))
    return "".join(texts)


def masked_text(tokenizer: Tokenizer, tokens: np.ndarray, labels: np.ndarray) -> str:
    """A row [T] of a masked language model, with `MASKED_MARKS`: the answer at each label.

    Example:
        >>> from jaxformer.text import train_word, with_mask
        >>> words = with_mask(train_word(["a b c"]))
        >>> a, b, c = words.encode("a b c")
        >>> tokens, labels = np.array([a, words.mask, a]), np.array([IGNORE, b, c])
        >>> masked_text(words, tokens, labels)
        'a «MASK=b» «a=c»'
    """
    chosen = labels != IGNORE
    pieces = _pieces(tokenizer, np.where(chosen, labels, tokens))
    for i in np.flatnonzero(chosen):
        read = "MASK" if tokens[i] == tokenizer.mask else tokenizer.token_texts(tokens[[i]])[0]
        answer = pieces[i] or tokenizer.token_texts(labels[[i]])[0]  # a part of a character
        pieces[i] = _marked(answer, f"«{read.strip(' ')}=", "»")
    return "".join(pieces)


def _pieces(tokenizer: Tokenizer, ids: np.ndarray) -> list[str]:
    """Text of each token in context; a character of several tokens belongs to the last one."""
    return list(_each(tokenizer, ids))


def _each(tokenizer: Tokenizer, ids: np.ndarray) -> Iterator[str]:
    stream = tokenizer.stream()
    for index in range(ids.size):
        if ids[index] == tokenizer.end_of_text:
            yield stream.flush() + _END
        elif not tokenizer.ordinary_ids(ids[[index]]):  # another special token
            yield stream.flush() + tokenizer.token_texts(ids[[index]])[0]
        else:
            piece = stream.push(ids[[index]])
            yield piece if index + 1 < ids.size else piece + stream.flush()


def _marked(piece: str, start: str, end: str) -> str:
    """Puts marks around a piece of text, after its leading spaces."""
    body = piece.lstrip(" ")
    if not body:
        return f"{start}{piece}{end}" if piece else ""
    return f"{piece[: len(piece) - len(body)]}{start}{body}{end}"
