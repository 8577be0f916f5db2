"""Texts that each have a label: reading them, holding some out, and the tokens to train on."""

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.files import read_lines
from jaxformer.text.rows import (
    RowCounts,
    fitting_rows,
    held_out_rows,
    line_numbers,
    require_same_length,
    sorted_out,
    take,
)
from jaxformer.text.tokenizers import Tokenizer

__all__ = ["Labelled", "encode_labelled", "read_labelled", "split_labelled"]


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Texts, each with its label.

    Args:
        texts: what is to be classified.
        labels: as many names of classes.
        lines: where each text was read; 1, 2, 3 and so on if not given.

    Raises:
        DataError: there are not as many of one as of the other.

    Example:
        >>> Labelled(("Great!", "Boring.", "Fun."), ("good", "bad", "good")).classes
        ('bad', 'good')
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    lines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", self.lines or line_numbers(len(self.texts)))
        require_same_length(texts=self.texts, labels=self.labels, lines=self.lines)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def classes(self) -> tuple[str, ...]:
        """The different labels, sorted.

        Raises:
            DataError: there are fewer than 2, so that there is nothing to tell apart.
        """
        classes = tuple(sorted(set(self.labels)))
        if len(classes) < 2:
            raise DataError(
                f"labels must be of at least 2 classes, got {len(classes)} in {len(self)} texts: "
                f"{list(classes)}; add texts of another, and see that the label is behind the tab"
            )
        return classes


def read_labelled(paths: Sequence[str]) -> tuple[Labelled, RowCounts]:
    r"""Reads texts with labels from TSV files, each line of which is text, tab, label.

    The files are UTF-8, and unpacked if their names end in `.gz`. Only `\n` and `\r\n` end a line.
    The spaces around a text and a label are left out. A line of which one is empty is dropped, as
    is a line that has no tab, or more than one; the counts say how many and where.

    Args:
        paths: the files; their lines follow each other.

    Returns:
        The texts with their labels, at least one, and how many were read and dropped.

    Raises:
        DataError: there is no path, a file is missing, damaged or not UTF-8, or no text is left.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "a.tsv").write_text("Great!\tgood\nBoring. bad\n")
        ...     labelled, counts = read_labelled([f"{folder}/a.tsv"])
        >>> labelled.texts, labelled.labels, str(counts)
        (('Great!',), ('good',), '2 texts read, 1 kept; 1 misaligned (line 2)')
    """
    if isinstance(paths, str) or not paths:
        raise DataError(f"paths must be a list of TSV files, got {paths!r}; name one")
    remedy = "each line must be text, tab, label"
    rows, counts = sorted_out(_rows(paths), "texts", files=paths, remedy=remedy)
    return Labelled(*rows), counts


def _rows(paths: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields the line and the columns of each row."""
    for path in paths:
        file = f"{path}:" if len(paths) > 1 else ""
        for i, line in enumerate(read_lines(pathlib.Path(path)), 1):
            yield f"{file}{i}", line.split("\t")


def split_labelled(
    labelled: Labelled, validation_fraction: float, counts: RowCounts, *, seed: int = 0
) -> tuple[Labelled, Labelled, RowCounts]:
    """Holds out some texts, none of which is trained on.

    The texts are put in a random order, of which the last ones are held out. The others are
    trained on, but for those that are the same as one held out: they are dropped.

    Args:
        labelled: what to split.
        validation_fraction: share of the texts to hold out, more than 0 and less than 1.
        counts: of the texts so far.
        seed: of the order.

    Returns:
        The training part and the held-out part, each with at least one text, and the counts with
        the texts that are in neither.

    Raises:
        DataError: the fraction is out of range, or one of the parts would be empty.

    Example:
        >>> labelled = Labelled(("a", "b", "c", "d"), ("x", "y", "x", "y"))
        >>> train, held_out, _ = split_labelled(labelled, 0.25, RowCounts("texts", 4), seed=1)
        >>> train.texts, held_out.texts
        (('a', 'b', 'c'), ('d',))
    """
    training, held_out, counts = held_out_rows(
        (labelled.texts,), labelled.lines, validation_fraction, counts, seed=seed
    )
    return _take(labelled, training), _take(labelled, held_out), counts


def encode_labelled(
    labelled: Labelled,
    tokenizer: Tokenizer,
    classes: Sequence[str],
    max_len: int,
    counts: RowCounts,
) -> tuple[list[dict[str, np.ndarray]], Labelled, RowCounts]:
    """Turns texts with labels into what a classifier is trained on.

    Each example is a dict of int32 arrays:

    - tokens: [T], the text;
    - lengths: [], T;
    - labels: [], the index of the label in `classes`.

    Args:
        labelled: what to encode.
        tokenizer: of the texts.
        classes: all labels, in the order of their indices.
        max_len: the most tokens that T may be; longer texts are dropped, as are those that have no
            token at all.
        counts: of the texts so far.

    Returns:
        The examples, at least one; the texts that they are made of; and the counts with those
        dropped.

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
                f"{line}; correct it, or train on data that has it"
            )
    encoded = tokenizer.encode_documents(labelled.texts)
    sizes = [(ids.size,) for ids in encoded]
    kept, counts = fitting_rows(labelled.lines, sizes, max_len, counts, ends=0)
    examples = [
        {
            "tokens": encoded[i],
            "lengths": np.array(encoded[i].size, np.int32),
            "labels": np.array(index[labelled.labels[i]], np.int32),
        }
        for i in kept
    ]
    return examples, _take(labelled, kept), counts


def _take(labelled: Labelled, indices: Iterable[int]) -> Labelled:
    return Labelled(*take((labelled.texts, labelled.labels, labelled.lines), indices))
