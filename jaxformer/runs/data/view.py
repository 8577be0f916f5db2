"""Description of a task's data and batches, for `inspect_data`."""

import abc
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jaxformer import text
from jaxformer.runs.data.row_texts import causal_text, plain_text

__all__ = ["DataView", "TextColumn", "ViewedTask", "causal_texts", "real_tokens"]


class TextColumn(NamedTuple):
    """Texts that one tokenizer encodes.

    Args:
        name: plural name of the texts, such as "documents" or "sources".
        tokenizer: tokenizer that encodes them.
        train: training texts.
        validation: validation texts.
    """

    name: str
    tokenizer: text.Tokenizer
    train: Sequence[str]
    validation: Sequence[str]


class DataView(NamedTuple):
    """Description of prepared data; omitted fields are not reported.

    Args:
        unit: plural name of the documents or rows, such as "pairs".
        train: number of training documents or rows; None if unknown.
        validation: number of validation documents or rows; None if unknown.
        columns: texts whose words, bytes and tokens are counted.
        lengths: by name, the number of tokens of each training text: integers `[texts]`.
        shared: by name, training and validation texts, which should not overlap. They are iterated
            over once.
    """

    unit: str = "documents"
    train: int | None = None
    validation: int | None = None
    columns: tuple[TextColumn, ...] = ()
    lengths: Mapping[str, np.ndarray] = {}
    shared: Mapping[str, tuple[Iterable[str], Iterable[str]]] = {}


class ViewedTask(abc.ABC):
    """The part of a task that `inspect_data` uses; every task is one.

    Your own task may override these methods. The defaults work for any batch with token ids under
    "tokens".

    Attributes:
        marks: how to read the texts of `row_texts`, in one line.
    """

    marks: ClassVar[str] = ""

    @property
    @abc.abstractmethod
    def tokenizer(self) -> text.Tokenizer:
        """The tokenizer of the tokens."""

    def data_view(self) -> DataView:
        """Describes the prepared data."""
        return DataView()

    def real_tokens(self, batch: Any) -> dict[str, np.ndarray]:
        """Mask of the positions of a batch that are tokens, not padding: bool `[B, T]`, by name."""
        return {"tokens": real_tokens(batch)} if _has_tokens(batch) else {}

    def row_texts(self, batch: Any, count: int) -> list[dict[str, str]]:
        """Texts of the first rows of a batch, by name, such as "source" and "target".

        Args:
            batch: training batch.
            count: number of rows; fewer if the others are padding.
        """
        if not _has_tokens(batch):
            return []
        rows = zip(batch["tokens"], real_tokens(batch), strict=True)
        shown = itertools.islice(((ids, real) for ids, real in rows if real.any()), count)
        return [{"text": plain_text(self.tokenizer, ids[real])} for ids, real in shown]


def real_tokens(
    batch: dict[str, np.ndarray], tokens: str = "tokens", lengths: str = "lengths"
) -> np.ndarray:
    """Mask of the positions of a batch that are tokens, not padding: bool `[B, T]`.

    Padding is found by the lengths `[B]`; else by segment ids, which are 0 there; else by labels,
    which are `IGNORE` there.
    """
    ids = batch[tokens]
    if lengths in batch:
        return np.arange(ids.shape[1]) < batch[lengths][:, None]
    if "segment_ids" in batch:
        return batch["segment_ids"] != 0
    labels = batch.get("labels")
    if labels is not None and labels.shape == ids.shape:
        return labels != text.IGNORE
    return np.ones(ids.shape, bool)


def causal_texts(tokenizer: text.Tokenizer, batch: Any, count: int) -> list[dict[str, str]]:
    """The first `count` rows of a batch of a causal language model, with `CAUSAL_MARKS`."""
    # The document of each token, numbered in its row; 0 in padding.
    segments = batch.get("segment_ids", real_tokens(batch).astype(np.int32))
    rows = itertools.islice(zip(batch["tokens"], batch["labels"], segments, strict=True), count)
    return [{"text": causal_text(tokenizer, *row)} for row in rows]


def _has_tokens(batch: Any) -> bool:
    """Whether a batch is a dict with token ids `[B, T]`."""
    tokens = batch.get("tokens") if isinstance(batch, dict) else None
    return isinstance(tokens, np.ndarray) and tokens.ndim == 2 and tokens.dtype.kind in "iu"
