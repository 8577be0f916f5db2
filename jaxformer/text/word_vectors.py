"""Pretrained word vectors for the words of a vocabulary."""

import dataclasses
import itertools
import re
from collections.abc import Mapping

import numpy as np

from jaxformer.errors import DataError
from jaxformer.storage import as_path
from jaxformer.text.sources.files import read_lines, require_fits_memory

_HEADER = re.compile(r"([0-9]+) ([0-9]+)")
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_LARGEST = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True, eq=False)
class WordVectors:
    """Pretrained vectors of some words of a vocabulary.

    Args:
        vectors: float32 [words found, width].
        ids: int32 [words found], the id of each vector's word.
        read: number of vectors in the file.
        repeated: number of vectors dropped because their word already had one.

    Example:
        >>> found = WordVectors(np.zeros((2, 50), np.float32), np.array([7, 3], np.int32), 9, 0)
        >>> found.vectors.shape
        (2, 50)
    """

    vectors: np.ndarray
    ids: np.ndarray
    read: int
    repeated: int


def read_word_vectors(path: str, words: Mapping[str, int]) -> WordVectors:
    r"""Reads the vectors of some words from a text file in word2vec or GloVe format.

    A line is a word and its numbers, separated by single spaces. A word2vec file begins with a line
    of two integers, the number of vectors and their width. Without it, as in GloVe, the first line
    determines the width. Words may contain spaces, but their last part must not be a number. Every
    line is checked, but only the vectors found take memory. If a word occurs twice, the first
    vector counts.

    Args:
        path: path of the file: UTF-8, read as by `read_lines`.
        words: words with their ids, such as `Tokenizer.words`.

    Returns:
        The vectors found, at least one, in the order of the file.

    Raises:
        DataError: the file is missing, damaged or not UTF-8; a line has a wrong number of numbers,
            or one that is invalid, not finite, or too large for float32; the number of vectors is
            not that of the first line; or no word in `words` has a vector.

    References:
        Mikolov, Chen, Corrado, Dean, Efficient Estimation of Word Representations in Vector Space,
        2013; Pennington, Socher, Manning, GloVe: Global Vectors for Word Representation, 2014.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "a.txt").write_text("the 0.5 1\ncat -2 3\n")
        ...     found = read_word_vectors(f"{folder}/a.txt", {"a": 0, "cat": 7})
        >>> found.vectors, found.ids
        (array([[-2.,  3.]], dtype=float32), array([7], dtype=int32))
    """
    require_fits_memory(as_path(path))
    lines = read_lines(as_path(path))
    first = next(lines, "").rstrip(" ")
    header = _HEADER.fullmatch(first)
    width = int(header[2]) if header else first.count(" ")
    if width < 1:
        raise DataError(
            f"word vectors must have at least 1 number each, got the first line {first[:40]!r} of "
            f"'{path}'; use a text file in word2vec or GloVe format"
        )
    rows = lines if header else itertools.chain([first], lines)
    found: dict[str, np.ndarray] = {}
    read = repeated = 0
    for i, line in enumerate(rows, 2 if header else 1):
        word, vector = _parsed(line.rstrip(" "), width, f"line {i:,} of '{path}'")
        read += 1
        repeated += word in found
        if word in words and word not in found:
            found[word] = vector
    if header and int(header[1]) != read:
        raise DataError(
            f"a file must have as many word vectors as its first line says, got {read:,} instead "
            f"of {int(header[1]):,} in '{path}'; get the file again"
        )
    if not found:
        raise DataError(
            f"at least one of the {len(words):,} words must have a vector, got none among the "
            f"{read:,} of '{path}'; check that language and case are the same"
        )
    ids = np.array([words[word] for word in found], np.int32)
    return WordVectors(np.stack(list(found.values())), ids, read, repeated)


def _parsed(line: str, width: int, place: str) -> tuple[str, np.ndarray]:
    """Parses a line into a word and its vector, float32 [width]."""
    word, *numbers = line.rsplit(" ", width)
    if len(numbers) < width or (" " in word and _NUMBER.fullmatch(word.rpartition(" ")[2])):
        raise DataError(
            f"a line must have a word and {width} numbers, got {line.count(' ') + 1} fields in "
            f"{place}; get the file again"
        )
    try:
        vector = np.array([float(number) for number in numbers])
    except ValueError as error:  # Its text names the field: could not convert string to float: 'x'.
        raise DataError(
            f"a word must be followed by {width} numbers, got {place}: {error}; get the file again"
        ) from None
    if not np.abs(vector).max() <= _LARGEST:  # Also catches NaN.
        bad = numbers[int(np.argmin(np.abs(vector) <= _LARGEST))]
        raise DataError(
            f"the numbers of a vector must be finite in float32, got {bad} in {place}; get the "
            "file again"
        )
    return word, vector.astype(np.float32)
