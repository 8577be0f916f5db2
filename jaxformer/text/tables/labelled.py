"""Texts with labels: reading them, and encoding training examples."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.store.arrays import Example
from jaxformer.text.tables.table import Table
from jaxformer.text.tokenizers.tokenizer import Tokenizer


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
    labelled: Labelled, tokenizer: Tokenizer, classes: Sequence[str]
) -> list[Example | None]:
    """Encodes labelled texts as training examples of a classifier.

    Each example is a dict of int32 arrays:

    - tokens: [T], the text, with the tokenizer's surrounding tokens;
    - lengths: [], T;
    - labels: [], the index of the label in `classes`.

    Args:
        labelled: texts and labels to encode.
        tokenizer: tokenizer of the texts.
        classes: all labels, in the order of their indices.

    Returns:
        An example for each text; None for a text without tokens.

    Raises:
        DataError: a label is not one of the classes, or the tokenizer cannot encode a text.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> labelled = Labelled(("ab", ""), ("x", "y"))
        >>> example, none = encode_labelled(labelled, byte_tokenizer(), labelled.classes)
        >>> example["tokens"], example["labels"], none
        (array([97, 98], dtype=int32), array(0, dtype=int32), None)
    """
    index = {name: i for i, name in enumerate(classes)}
    for label, line in zip(labelled.labels, labelled.lines, strict=True):
        if label not in index:
            raise DataError(
                f"a label must be one of the classes {list(classes)}, got {label!r} in line "
                f"{line}; correct it, or train on data that has this class"
            )
    special, examples = tokenizer.surrounding_tokens, []
    for ids, label in zip(tokenizer.encode_documents(labelled.texts), labelled.labels, strict=True):
        example = None
        if ids.size:
            tokens = special.around(ids)
            example = {
                "tokens": tokens,
                "lengths": np.array(tokens.size, np.int32),
                "labels": np.array(index[label], np.int32),
            }
        examples.append(example)
    return examples
