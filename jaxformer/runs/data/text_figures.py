"""Statistics of texts: words and bytes per token, lengths, and overlap of two parts."""

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from jaxformer.text import Tokenizer

_SAMPLE = 4_000_000  # characters; they take a second or two to encode
_MOST_BINS = 12
_SKEW = 16  # use doubling bins if the longest text is longer than this many medians


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFigures:
    """Words, bytes and tokens of texts, or of a sample of them.

    Args:
        name: plural name of the texts, such as "documents".
        part: whether they are training or validation texts.
        num_texts: number of texts counted.
        characters: number of their characters.
        words: number of their words, separated by white space.
        num_bytes: number of their bytes, in UTF-8.
        tokens: number of their tokens, without the end of text.
        unknown: number of unknown words among these tokens; None if the tokenizer has no unknown
            token.
        is_sample: whether this counts only a part of the texts.
    """

    name: str
    part: Literal["training", "validation"]
    num_texts: int
    characters: int
    words: int
    num_bytes: int
    tokens: int
    unknown: int | None
    is_sample: bool


def text_figures(
    name: str, part: Literal["training", "validation"], texts: Sequence[str], tokenizer: Tokenizer,
    *, most: int = _SAMPLE,
) -> TextFigures:  # fmt: skip
    """Counts the words, bytes and tokens of texts; of more than `most` characters, of a sample.

    Raises:
        DataError: the tokenizer cannot encode a text.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> figures = text_figures("documents", "training", ["né is new", "so"], byte_tokenizer())
        >>> figures.words, figures.characters, figures.num_bytes, figures.tokens, figures.unknown
        (4, 11, 12, 12, None)
    """
    total = sum(map(len, texts))
    counted, characters = [], 0
    for one in texts[:: max(1, -(-total // most))]:
        counted.append(one[: most - characters])
        characters += len(counted[-1])
        if characters == most:
            break
    encoded = tokenizer.encode_documents(counted)
    unknown = tokenizer.unknown
    return TextFigures(
        name=name,
        part=part,
        num_texts=len(counted),
        characters=characters,
        words=sum(len(one.split()) for one in counted),
        num_bytes=sum(len(one.encode()) for one in counted),
        tokens=sum(ids.size for ids in encoded),
        unknown=None if unknown is None else sum(int((ids == unknown).sum()) for ids in encoded),
        is_sample=characters < total,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthHistogram:
    """Lengths of texts, in tokens as the model reads them.

    Args:
        name: plural name of the texts.
        bins: (shortest, longest, number of texts) of each bin, both ends included.
        shortest: shortest length.
        median: median length.
        longest: longest length.
    """

    name: str
    bins: tuple[tuple[int, int, int], ...]
    shortest: int
    median: float
    longest: int


def length_histogram(name: str, lengths: np.ndarray) -> LengthHistogram:
    """Counts lengths [texts] in at most 12 bins; doubling bins if a few are far longer than most.

    Example:
        >>> length_histogram("pairs", np.array([3, 4, 4, 9])).bins
        ((3, 3, 1), (4, 4, 2), (5, 5, 0), (6, 6, 0), (7, 7, 0), (8, 8, 0), (9, 9, 1))
        >>> length_histogram("pairs", np.array([3, 5, 6, 200])).bins[:3]
        ((2, 3, 1), (4, 7, 2), (8, 15, 0))
    """
    shortest, longest, median = int(lengths.min()), int(lengths.max()), float(np.median(lengths))
    if longest > _SKEW * max(1, median):
        first = max(1, 2 ** (shortest.bit_length() - 1)) if shortest else 0
        starts = [first]
        while (after := max(1, 2 * starts[-1])) <= longest:
            starts.append(after)
        if len(starts) > _MOST_BINS:  # the shortest bins become one
            starts = [first, *starts[1 - _MOST_BINS :]]
        ends = [*starts[1:], max(1, 2 * starts[-1])]
    else:
        width = _round_width((longest - shortest + 1) / _MOST_BINS)
        starts = list(range(shortest // width * width, longest + 1, width))
        ends = [start + width for start in starts]
    counts, _ = np.histogram(lengths, [*starts, ends[-1]])
    bins = tuple((a, b - 1, int(n)) for a, b, n in zip(starts, ends, counts, strict=True))
    return LengthHistogram(name=name, bins=bins, shortest=shortest, median=median, longest=longest)


def _round_width(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50 and so on that is at least `least`."""
    unit = 1
    while True:
        for factor in (1, 2, 5):
            if factor * unit >= least:
                return factor * unit
        unit *= 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedTexts:
    """Validation texts that also occur in training.

    Args:
        name: plural name of the texts, such as "paragraphs".
        total: number of validation texts.
        shared: number of them in the training data, repetitions included.
        examples: the first few, each once.
    """

    name: str
    total: int
    shared: int
    examples: tuple[str, ...]


def shared_texts(
    name: str, train: Iterable[str], validation: Iterable[str], *, shown: int = 3
) -> SharedTexts:
    """Counts validation texts that also occur in training; keeps only validation in memory.

    Example:
        >>> shared_texts("pairs", ["a", "b", "b"], ["b", "c", "b"])
        SharedTexts(name='pairs', total=3, shared=2, examples=('b',))
    """
    counts = collections.Counter(validation)
    found = {one for one in train if one in counts}
    return SharedTexts(
        name=name,
        total=counts.total(),
        shared=sum(counts[one] for one in found),
        examples=tuple([one for one in counts if one in found][:shown]),
    )
