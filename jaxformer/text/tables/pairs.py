"""Sentence pairs in two languages: reading them, and encoding training examples."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from jaxformer.errors import DataError
from jaxformer.storage import as_path
from jaxformer.text.sources.files import read_lines
from jaxformer.text.sources.records import Row
from jaxformer.text.store.arrays import Example
from jaxformer.text.tables.table import Table
from jaxformer.text.tokenizers.surrounding_tokens import SurroundingTokens
from jaxformer.text.tokenizers.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Pairs(Table):
    """Source sentences, each with its translation.

    Args:
        sources: sentences to translate.
        targets: translation of each source.
        lines: line of each pair; 1, 2, 3 and so on if not given.

    Raises:
        DataError: there are more sources than targets, or fewer.

    Example:
        >>> len(Pairs(("A dog.", "A cat."), ("Ein Hund.", "Eine Katze.")))
        2
    """

    unit = "pairs"
    layout = (
        "source, tab, target (of two files: line N of the second is the translation of line N of "
        "the first)"
    )
    inputs = ("sources", "targets")

    sources: tuple[str, ...]
    targets: tuple[str, ...]

    @classmethod
    def groups(cls, paths: Sequence[str]) -> list[list[str]]:
        """One TSV file with two columns, or a file of sources and one of targets."""
        if isinstance(paths, str) or len(paths) not in (1, 2):
            raise DataError(
                "paths must be a list of one TSV file, or of one file of sources and one of "
                f"targets, got {paths!r}; name one or two"
            )
        return [list(paths)]

    @classmethod
    def rows(cls, paths: Sequence[str]) -> Iterator[Row]:
        r"""Reads pairs from one file with two columns, or from two files line by line.

        Example:
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = pathlib.Path(folder, "a.tsv").write_text("A dog.\tEin Hund.\nA cat.\t\n")
            ...     pairs, counts = Pairs.read([f"{folder}/a.tsv"])
            >>> pairs.sources, pairs.targets, str(counts)
            (('A dog.',), ('Ein Hund.',), '2 pairs read, 1 kept; 1 empty (line 2)')
        """
        if len(paths) == 1:
            yield from super().rows(paths)
            return
        for number, row in enumerate(
            itertools.zip_longest(*(read_lines(as_path(path)) for path in paths)), 1
        ):
            if None in row:
                raise DataError(
                    "two files of pairs must have the same number of lines, got only "
                    f"{number - 1:,} in '{paths[row.index(None)]}'; give files that are aligned "
                    "line by line"
                )
            yield Row(str(number), row)


def encode_pairs(
    pairs: Pairs,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    start: Sequence[int] | None = None,
) -> list[Example | None]:
    """Encodes pairs as training examples of an encoder-decoder.

    Each example is a dict of int32 arrays:

    - source_tokens: [S], the source and the end of text, or the source with the tokenizer's
      surrounding tokens;
    - tokens: [T], the input of the decoder: start tokens, then the target;
    - labels: [T], the next token of each: the target, then the end of text;
    - source_lengths: [], S;
    - lengths: [], T.

    Args:
        pairs: pairs to encode.
        source_tokenizer: tokenizer of the sources.
        target_tokenizer: tokenizer of the targets; may be the same.
        start: tokens that the decoder reads before the target; the first is not predicted. Default:
            the end of text.

    Returns:
        An example for each pair; None for a pair with a side that has no tokens.

    Raises:
        DataError: a tokenizer has no end of text or cannot encode a sentence.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> pairs, bytes_ = Pairs(("no", "well"), ("né", "gut")), byte_tokenizer()
        >>> example, _ = encode_pairs(pairs, bytes_, bytes_)
        >>> example["source_tokens"], example["tokens"]
        (array([110, 111, 256], dtype=int32), array([256, 110, 195, 169], dtype=int32))
    """
    special = around_source(source_tokenizer)
    target_end = require_end_of_text(target_tokenizer)
    starts = [target_end] if start is None else list(start)
    sources = source_tokenizer.encode_documents(pairs.sources)
    targets = target_tokenizer.encode_documents(pairs.targets)
    return [
        _example(special.around(s), t, starts, target_end) if s.size and t.size else None
        for s, t in zip(sources, targets, strict=True)
    ]


def _example(
    source: np.ndarray, target: np.ndarray, starts: Sequence[int], target_end: int
) -> dict[str, np.ndarray]:
    # Inputs and labels of the decoder are views of one array.
    between = np.concatenate([starts, target, [target_end]]).astype(np.int32)
    return {
        "source_tokens": source,
        "tokens": between[:-1],
        "labels": between[1:],
        "source_lengths": np.array(source.size, np.int32),
        "lengths": np.array(between.size - 1, np.int32),
    }


def around_source(tokenizer: Tokenizer) -> SurroundingTokens:
    """Special tokens around a source: those of the tokenizer, else the end of text after it."""
    if tokenizer.roles.surrounded:
        return tokenizer.surrounding_tokens
    return SurroundingTokens(after=(require_end_of_text(tokenizer),))


def require_end_of_text(tokenizer: Tokenizer) -> int:
    """The token that ends a target; raises DataError if there is none."""
    if (end := tokenizer.end_of_text) is None:
        raise DataError(
            "a tokenizer of pairs must have an end of text, got one without; name the token that "
            "ends a text, by tokenizer.end_of_text or Tokenizer.with_roles"
        )
    return end
