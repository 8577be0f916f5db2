"""Sentences in two languages: reading pairs, holding some out, and the tokens to train on."""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterable, Sequence

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

__all__ = ["Pairs", "encode_pairs", "encode_source", "read_pairs", "split_pairs"]


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Source sentences, each with its translation.

    Args:
        sources: what is to be translated.
        targets: as many translations.
        lines: where each pair was read; 1, 2, 3 and so on if not given.

    Raises:
        DataError: there are not as many of one as of the other.

    Example:
        >>> len(Pairs(("A dog.", "A cat."), ("Ein Hund.", "Eine Katze.")))
        2
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    lines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", self.lines or line_numbers(len(self.sources)))
        require_same_length(sources=self.sources, targets=self.targets, lines=self.lines)

    def __len__(self) -> int:
        return len(self.sources)


def read_pairs(paths: Sequence[str]) -> tuple[Pairs, RowCounts]:
    r"""Reads pairs of sentences from one file with two columns, or from two files line by line.

    The files are UTF-8, and unpacked if their names end in `.gz`. Only `\n` and `\r\n` end a line.
    The spaces around a sentence are left out. A pair of which a side is empty is dropped, as is a
    line of a single file that has no tab, or more than one; the counts say how many and where.

    Args:
        paths: a TSV file, each line of which is source, tab, target; or two files, the sources
            and the targets.

    Returns:
        The pairs, at least one, and how many were read and dropped.

    Raises:
        DataError: there are not one or two paths, a file is missing, damaged or not UTF-8, two
            files have different numbers of lines, or no pair is left.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "a.tsv").write_text("A dog.\tEin Hund.\nA cat.\t\n")
        ...     pairs, counts = read_pairs([f"{folder}/a.tsv"])
        >>> pairs.sources, pairs.targets, str(counts)
        (('A dog.',), ('Ein Hund.',), '2 pairs read, 1 kept; 1 empty (line 2)')
    """
    if isinstance(paths, str) or len(paths) not in (1, 2):
        raise DataError(
            "paths must be a list of one TSV file, or of a file of sources and one of targets, "
            f"got {paths!r}; name one or two"
        )
    texts = [list(read_lines(pathlib.Path(path))) for path in paths]
    columns: Iterable[Sequence[str]]
    if len(texts) == 1:
        columns = (line.split("\t") for line in texts[0])
        remedy = "each line must be source, tab, target"
    else:
        if len(texts[0]) != len(texts[1]):
            raise DataError(
                "two files of pairs must have the same number of lines, got "
                f"{len(texts[0]):,} in '{paths[0]}' and {len(texts[1]):,} in '{paths[1]}'; "
                "give files that are aligned line by line"
            )
        columns = zip(*texts, strict=True)
        remedy = "each line of one must translate that line of the other"
    numbered = ((str(i), row) for i, row in zip(itertools.count(1), columns, strict=False))
    rows, counts = sorted_out(numbered, "pairs", files=paths, remedy=remedy)
    return Pairs(*rows), counts


def split_pairs(
    pairs: Pairs, validation_fraction: float, counts: RowCounts, *, seed: int = 0
) -> tuple[Pairs, Pairs, RowCounts]:
    """Holds out some pairs, so that no sentence of them is trained on.

    The pairs are put in a random order, of which the last ones are held out. The others are
    trained on, but for those with a source or a target that is held out: they are dropped.

    Args:
        pairs: what to split.
        validation_fraction: share of the pairs to hold out, more than 0 and less than 1.
        counts: of the pairs so far.
        seed: of the order.

    Returns:
        The training pairs and the held-out pairs, at least one of each, and the counts with the
        pairs that are in neither.

    Raises:
        DataError: the fraction is out of range, or one of the sides would be empty.

    Example:
        >>> pairs = Pairs(("yes", "no", "well", "well"), ("ja", "nein", "nun", "gut"))
        >>> train, held_out, counts = split_pairs(pairs, 0.25, RowCounts("pairs", 4), seed=1)
        >>> train.targets, held_out.targets
        (('ja', 'nein'), ('gut',))
        >>> print(counts)
        4 pairs read, 3 kept; 1 repeating held-out text (line 3)
    """
    texts = (pairs.sources, pairs.targets)
    training, held_out, counts = held_out_rows(
        texts, pairs.lines, validation_fraction, counts, seed=seed
    )
    return _take(pairs, training), _take(pairs, held_out), counts


def encode_pairs(
    pairs: Pairs,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    max_len: int,
    counts: RowCounts,
) -> tuple[list[dict[str, np.ndarray]], Pairs, RowCounts]:
    """Turns pairs into what an encoder and a decoder are trained on.

    Each example is a dict of int32 arrays:

    - source_tokens: [S], the source and the end of text;
    - tokens: [T], the input of the decoder: the end of text, which also starts it, and the target;
    - labels: [T], the token after each: the target and the end of text;
    - source_lengths: [], S;
    - lengths: [], T.

    Args:
        pairs: what to encode.
        source_tokenizer: of the sources.
        target_tokenizer: of the targets; may be the same.
        max_len: the most tokens that S and T may be; longer pairs are dropped, as are those of
            which a side has no token at all.
        counts: of the pairs so far.

    Returns:
        The examples, at least one; the pairs that they are made of; and the counts with those
        dropped.

    Raises:
        DataError: no pair is left, or a tokenizer has no end of text, or cannot encode a sentence.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> pairs, bytes_ = Pairs(("no", "well"), ("né", "gut")), byte_tokenizer()
        >>> examples, kept, counts = encode_pairs(pairs, bytes_, bytes_, 4, RowCounts("pairs", 2))
        >>> examples[0]["source_tokens"], examples[0]["tokens"]
        (array([110, 111, 256], dtype=int32), array([256, 110, 195, 169], dtype=int32))
        >>> print(counts)
        2 pairs read, 1 kept; 1 too long (line 2)
    """
    source_end, target_end = _end_of_text(source_tokenizer), _end_of_text(target_tokenizer)
    sources = source_tokenizer.encode_documents(pairs.sources)
    targets = target_tokenizer.encode_documents(pairs.targets)
    # The end of text is one more token.
    sizes = [(s.size + 1, t.size + 1) for s, t in zip(sources, targets, strict=True)]
    kept, counts = fitting_rows(pairs.lines, sizes, max_len, counts, ends=1)
    examples = [_example(sources[i], targets[i], source_end, target_end) for i in kept]
    return examples, _take(pairs, kept), counts


def encode_source(text: str, tokenizer: Tokenizer, max_len: int) -> np.ndarray:
    """Turns one sentence to translate into tokens, as `encode_pairs` does with a source.

    Args:
        text: the sentence; the spaces around it are left out, as `read_pairs` does.
        tokenizer: of the sources.
        max_len: the most tokens, the end of text included.

    Returns:
        int32 [S], the sentence and the end of text.

    Raises:
        DataError: the sentence is empty or too long, or the tokenizer has no end of text, or
            cannot encode it.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> encode_source("no ", byte_tokenizer(), max_len=3)
        array([110, 111, 256], dtype=int32)
    """
    end = _end_of_text(tokenizer)
    ids = tokenizer.encode(text.strip())
    if ids.size == 0:
        raise DataError(f"a sentence to translate must have text, got {text!r}; write one")
    if ids.size + 1 > max_len:
        start = text if len(text) <= 20 else f"{text[:20]}..."
        raise DataError(
            f"a sentence to translate must have at most max_len={max_len} tokens, the end of text "
            f"included, got {ids.size + 1} for {start!r}; cut it into shorter ones"
        )
    return np.append(ids, np.int32(end))


def _example(
    source: np.ndarray, target: np.ndarray, source_end: int, target_end: int
) -> dict[str, np.ndarray]:
    return {
        "source_tokens": np.append(source, np.int32(source_end)),
        "tokens": np.insert(target, 0, target_end),
        "labels": np.append(target, np.int32(target_end)),
        "source_lengths": np.array(source.size + 1, np.int32),
        "lengths": np.array(target.size + 1, np.int32),
    }


def _end_of_text(tokenizer: Tokenizer) -> int:
    if (end := tokenizer.end_of_text) is None:
        raise DataError(
            "a tokenizer of pairs must have an end of text, got one without; use one that "
            "jaxformer made, or add the special token <|endoftext|> to it"
        )
    return end


def _take(pairs: Pairs, indices: Iterable[int]) -> Pairs:
    return Pairs(*take((pairs.sources, pairs.targets, pairs.lines), indices))
