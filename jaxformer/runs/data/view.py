"""Description of a task's data and batches, for `inspect_data`; rows as text, with marks."""

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxformer.text import IGNORE, Tokenizer

_END = "‖"
_EXAMPLES = 3  # of texts in both parts

CAUSAL_MARKS = f"‹text› is context only, the rest is predicted; {_END} ends a document"


def counted(count: int, plural: str) -> str:
    """A number and its noun, such as 1 text and 2 texts."""
    return f"{count:,} {plural.removesuffix('s') if count == 1 else plural}"


class SharedTexts(NamedTuple):
    """Validation texts that also occur in training.

    Args:
        name: plural name of the texts, such as "sources".
        total: number of validation texts.
        shared: number of them in the training data, repetitions included.
        examples: the first few, each once.
    """

    name: str
    total: int
    shared: int
    examples: tuple[str, ...]


def shared_texts(name: str, train: Iterable[str], validation: Iterable[str]) -> SharedTexts:
    """Counts validation texts that also occur in training; keeps only validation in memory."""
    counts = collections.Counter(validation)
    shared = {text for text in train if text in counts}
    examples = [text for text in counts if text in shared][:_EXAMPLES]
    return SharedTexts(name, counts.total(), sum(counts[text] for text in shared), tuple(examples))


class DataView(NamedTuple):
    """Description of prepared data; omitted fields are not reported.

    Args:
        unit: plural name of the documents or rows, such as "pairs".
        validation: number of validation documents or rows; None if unknown.
        lengths: by name, the number of tokens of each training text: integers `[texts]`.
        shared: overlap of validation and training data.
    """

    unit: str = "documents"
    validation: int | None = None
    lengths: Mapping[str, np.ndarray] = {}
    shared: tuple[SharedTexts, ...] = ()


def real_tokens(
    batch: dict[str, np.ndarray], tokens: str = "tokens", lengths: str = "lengths"
) -> np.ndarray:
    """Mask of the positions of a batch that are not padding: bool `[B, T]`."""
    ids = batch[tokens]
    if lengths in batch:
        return np.arange(ids.shape[1]) < batch[lengths][:, None]
    if "segment_ids" in batch:  # 0 in padding
        return batch["segment_ids"] != 0
    labels = batch.get("labels")
    if labels is not None and labels.shape == ids.shape:
        return np.logical_or.accumulate((labels != IGNORE)[:, ::-1], axis=1)[:, ::-1]
    return np.ones(ids.shape, bool)


def causal_texts(tokenizer: Tokenizer, batch: Any, count: int) -> list[dict[str, str]]:
    """The first `count` rows of a batch of a causal language model, with `CAUSAL_MARKS`."""
    rows = zip(batch["tokens"], batch["labels"], real_tokens(batch), strict=True)
    return [
        {"text": _causal_text(tokenizer, tokens[real], labels[real])}
        for tokens, labels, real in itertools.islice(rows, count)
    ]


def plain_text(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    """Text of token ids `[T]`, with a mark for the end of text."""
    return "".join(_pieces(tokenizer, ids))


def _causal_text(tokenizer: Tokenizer, tokens: np.ndarray, labels: np.ndarray) -> str:
    """Text of a row `[T]` with `CAUSAL_MARKS`, and the token after it if it is predicted."""
    ids, is_predicted = np.append(tokens, labels[-1:]), np.append(False, labels != IGNORE)
    shown = slice(None) if is_predicted[-1] else slice(-1)
    texts = []
    pieces = zip(is_predicted[shown], _pieces(tokenizer, ids[shown]), strict=True)
    for counts, group in itertools.groupby(pieces, key=lambda pair: pair[0]):
        piece = "".join(text for _, text in group)
        texts.append(f"‹{piece}›" if piece and not counts else piece)
    return "".join(texts)


def _pieces(tokenizer: Tokenizer, ids: np.ndarray) -> Iterator[str]:
    """Text of each token in context; a character of several tokens belongs to the last one."""
    stream = tokenizer.stream()
    for index in range(ids.size):
        if ids[index] == tokenizer.end_of_text:
            yield stream.flush() + _END
        elif not tokenizer.ordinary_ids(ids[[index]]):  # another special token
            yield stream.flush() + tokenizer.token_texts(ids[[index]])[0]
        else:
            piece = stream.push(ids[[index]])
            yield piece if index + 1 < ids.size else piece + stream.flush()
