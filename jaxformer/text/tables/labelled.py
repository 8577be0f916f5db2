"""Texts with labels: reading them, and encoding training examples."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.tables.row_counts import RowCounts, fitting_rows
from jaxformer.text.tables.table import Table
from jaxformer.text.tokenizers.tokenizer import Tokenizer

__all__ = ["Labelled", "encode_labelled"]


@dataclasses.dataclass(frozen=True)
class Labelled(Table):
    """Texts, each with its label.

    Args:
        texts: texts to classify.
        labels: class of each text, by name.
        lines: line of each text; 1, 2, 3 and so on if not given.

    Raises:
        DataError: there are more texts than labels, or fewer.

    Example:
        >>> Labelled(("Great!", "Boring.", "Fun."), ("good", "bad", "good")).classes
        ('bad', 'good')
    """

    unit = "texts"
    layout = "text, tab, label"
    inputs = ("texts",)
    categories = ("labels",)

    texts: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """The distinct labels, sorted.

        Raises:
            DataError: there are fewer than 2.
        """
        classes = tuple(sorted(set(self.labels)))
        if len(classes) < 2:
            raise DataError(
                f"labels must be of at least 2 classes, got {len(classes)} in {len(self)} texts: "
                f"{list(classes)}; add texts of another class; the label comes after the tab"
            )
        return classes


def encode_labelled(
    labelled: Labelled,
    tokenizer: Tokenizer,
    classes: Sequence[str],
    max_len: int,
    counts: RowCounts,
) -> tuple[list[dict[str, np.ndarray]], Labelled, RowCounts]:
    """Encodes labelled texts as training examples of a classifier.

    Each example is a dict of int32 arrays:

    - tokens: [T], the text, with the tokenizer's surrounding tokens;
    - lengths: [], T;
    - labels: [], the index of the label in `classes`.

    Args:
        labelled: texts and labels to encode.
        tokenizer: tokenizer of the texts.
        classes: all labels, in the order of their indices.
        max_len: limit of T, in tokens. Longer texts and texts without tokens are dropped.
        counts: counts of the texts so far.

    Returns:
        The examples, at least one; the texts that they were made from; and the updated counts.

    Raises:
        DataError: no text is left, a label is not one of the classes, or the tokenizer cannot
            encode a text.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> labelled, counts = Labelled(("ab", "cde"), ("x", "y")), RowCounts("texts", 2)
        >>> examples, _, counts = encode_labelled(
        ...     labelled, byte_tokenizer(), labelled.classes, 2, counts
        ... )
        >>> examples[0]["tokens"], examples[0]["labels"]
        (array([97, 98], dtype=int32), array(0, dtype=int32))
        >>> print(counts)
        2 texts read, 1 kept; 1 too long (line 2)
    """
    index = {name: i for i, name in enumerate(classes)}
    for label, line in zip(labelled.labels, labelled.lines, strict=True):
        if label not in index:
            raise DataError(
                f"a label must be one of the classes {list(classes)}, got {label!r} in line "
                f"{line}; correct it, or train on data that has this class"
            )
    texts = tokenizer.encode_documents(labelled.texts)
    special = tokenizer.surrounding_tokens
    sizes = [(ids.size + special.size,) for ids in texts]
    kept, counts = fitting_rows(labelled.lines, sizes, max_len, counts, ends=special.size)
    encoded = {i: special.around(texts[i]) for i in kept}
    examples = [
        {
            "tokens": encoded[i],
            "lengths": np.array(encoded[i].size, np.int32),
            "labels": np.array(index[labelled.labels[i]], np.int32),
        }
        for i in kept
    ]
    return examples, labelled.take(kept), counts
