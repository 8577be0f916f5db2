"""Encoding a corpus: its rows, group by group in constant memory, as tokens or examples."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.corpora.corpus import Corpus
from jaxformer.text.sources.records import Counts, Row
from jaxformer.text.store.arrays import (
    Example,
    ExampleArrays,
    RaggedArray,
    TokenStream,
    example_length,
    token_dtype,
)
from jaxformer.text.store.store import Arrays, cache_path, filled_store
from jaxformer.text.tables.table import Table, row_size
from jaxformer.text.tokenizers.texts import groups_of_size
from jaxformer.text.tokenizers.tokenizer import Tokenizer

_LAYOUT = 10  # version of the layout in the cache; part of the names of folders
_GROUP = 2**21  # bytes of text that are encoded at a time

Group = list[tuple[Row, bool]]
"""Rows, each with whether it is for validation."""

Encode = Callable[[Any], Sequence[Example | None]]
"""Rows to the example of each; None for a row without tokens."""


def prepare_documents(
    corpus: Corpus,
    tokenizer: Tokenizer,
    cache_dir: pathlib.Path | None,
    *,
    on_progress: Callable[[int], None] = lambda size: None,
) -> tuple[TokenStream, TokenStream | None]:
    """Encodes a corpus of documents into token files, or maps existing files.

    Of several processes, one prepares, and the others wait.

    Args:
        corpus: the documents.
        tokenizer: tokenizer that encodes them.
        cache_dir: cache folder. The corpus gets a folder in it, named by a hash of text and
            tokenizer. None to keep the tokens in memory.
        on_progress: called with the number of bytes of text done so far.

    Returns:
        The training tokens, and those for validation, if there are any; memory-mapped if they are
        in a folder. The end of text ends documents.

    Raises:
        DataError: the tokenizer cannot encode a text, or a text file has changed.
        OSError: a token file cannot be written.

    Example:
        >>> import tempfile
        >>> from jaxformer.text import Documents, byte_tokenizer, scan_corpus
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.txt").write_text("some text")
        >>> corpus = scan_corpus(Documents, [folder / "a.txt"], validation_fraction=0)
        >>> train, _ = prepare_documents(corpus, byte_tokenizer(), folder / "cache")
        >>> train.tokens[:4].tolist(), train.num_bytes
        ([115, 111, 109, 101], 9)
    """

    def encoded(group: Group) -> list[np.ndarray]:
        starts = [row.columns[0] for row, _ in group if row.is_start]
        continued = [row.columns[0] for row, _ in group if not row.is_start]
        firsts = iter(tokenizer.encode_documents(starts))
        rests = iter(tokenizer.encode_documents(continued, is_start=False))
        return [next(firsts if row.is_start else rests) for row, _ in group]

    def fill(append: Callable[[Arrays], None]) -> dict[str, int]:
        writers = {side: _DocumentWriter(tokenizer) for side in ("train", "validation")}
        last = None
        for group in _groups(corpus, on_progress):
            for (row, is_validation), tokens in zip(group, encoded(group), strict=True):
                side = "validation" if is_validation else "train"
                # A document that goes on on the other side begins anew there.
                writers[side].add(tokens, row_size(row), is_start=row.is_start or side != last)
                last = side
            append({side: writer.taken() for side, writer in writers.items()})
        append({side: writer.ended() for side, writer in writers.items()})
        return {side: writer.num_bytes for side, writer in writers.items()}

    key = corpus.fingerprint, tuple(corpus.holdout), tokenizer.identity
    arrays, sizes = filled_store(cache_path(cache_dir, "corpora", _LAYOUT, *key), fill)
    on_progress(corpus.num_bytes)
    streams = {
        side: TokenStream(array.values, np.asarray(array.offsets), sizes[side], corpus.fingerprint)
        for side, array in arrays.items()
        if side == "train" or array.values.size
    }
    return streams["train"], streams.get("validation")


class _DocumentWriter:
    """Joins tokens of documents in parts; special tokens and the end of text surround each."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        special, end = tokenizer.surrounding_tokens, tokenizer.end_of_text
        is_ended = end is None or special.after[-1:] == (end,)
        self._dtype = token_dtype(tokenizer.vocab_size)
        self._before = np.array(special.before, self._dtype)
        self._after = np.array(special.after if is_ended else (*special.after, end), self._dtype)
        self._parts, self._starts, self._size = [self._before[:0]], list[int](), 0
        self._is_open = False
        self.num_bytes = 0

    def add(self, tokens: np.ndarray, num_bytes: int, *, is_start: bool) -> None:
        """Adds a part of a document."""
        if is_start:
            self._end_document()
            self._starts.append(self._size)
            self._add(self._before)
            self._is_open = True
        self._add(tokens.astype(self._dtype))
        self.num_bytes += num_bytes

    def taken(self) -> RaggedArray:
        """The tokens since the last call, and the starts of documents in them."""
        taken = RaggedArray(np.concatenate(self._parts), np.array(self._starts, np.int64))
        self._parts, self._starts, self._size = [self._before[:0]], [], 0
        return taken

    def ended(self) -> RaggedArray:
        """The end of the last document."""
        self._end_document()
        return self.taken()

    def _end_document(self) -> None:
        if self._is_open:
            self._add(self._after)

    def _add(self, tokens: np.ndarray) -> None:
        self._parts.append(tokens)
        self._size += tokens.size


def fitting_rows(
    rows: Table, examples: Sequence[Example | None], max_len: int, counts: Counts
) -> dict[int, Example]:
    """Drops rows without tokens, whose example is None, and examples that are too long.

    The length of an example is the size of its longest array.

    Args:
        rows: the rows that were encoded.
        examples: the example of each row: arrays with one axis or none.
        max_len: largest length that is kept.
        counts: counts of the rows; the dropped ones are added.

    Returns:
        The examples that fit, perhaps none, by the index of their row.

    Example:
        >>> from jaxformer.text import Labelled
        >>> examples = [{"labels": np.arange(9)}, None, {"labels": np.arange(2)}]
        >>> counts = Counts("texts", read=3)
        >>> fitting_rows(Labelled(tuple("abc"), tuple("xyz")), examples, 4, counts)
        {2: {'labels': array([0, 1])}}
        >>> print(counts)
        3 texts read, 1 kept; 1 empty (line 2), 1 too long (line 1)
    """
    fitting = {}
    for index, (line, example) in enumerate(zip(rows.lines, examples, strict=True)):
        if example is None:
            counts.drop("empty", line)
        elif example_length(example) > max_len:
            counts.drop("too long", line)
        else:
            fitting[index] = example
    return fitting


def no_rows_error(counts: Counts, max_len: int) -> DataError:
    """The error that no row fits."""
    return DataError(
        f"at least one of the {counts.unit} must have 1 to max_len={max_len} tokens, got none: "
        f"{counts}; raise max_len, or use another tokenizer"
    )


def prepare_rows(
    corpus: Corpus,
    encode: Encode,
    max_len: int,
    cache_dir: pathlib.Path | None,
    *key: object,
    on_progress: Callable[[int], None] = lambda size: None,
) -> tuple[ExampleArrays, Counts]:
    """Encodes the training rows of a corpus, or maps its files; `encode` depends on `key` alone.

    Without a cache, examples stay in memory; `on_progress` gets the bytes of text done so far.
    """

    def fill(append: Callable[[Arrays], None]) -> dict[str, Any]:
        counts = Counts(**dataclasses.asdict(corpus.counts))
        for group in _groups(corpus, on_progress):
            rows = corpus.table.of_rows(row for row, is_validation in group if not is_validation)
            if rows and (fitting := fitting_rows(rows, encode(rows), max_len, counts)):
                append(ExampleArrays.of(list(fitting.values())).arrays)
        return dataclasses.asdict(counts)

    rule = corpus.fingerprint, tuple(corpus.holdout), corpus.counts, max_len
    arrays, record = filled_store(cache_path(cache_dir, "corpora", _LAYOUT, *rule, *key), fill)
    on_progress(corpus.num_bytes)
    counts = Counts(**record)
    if not arrays:
        raise no_rows_error(counts, max_len)
    return ExampleArrays(arrays), counts


def _groups(corpus: Corpus, on_progress: Callable[[int], None]) -> Iterator[Group]:
    """Groups of rows, each of which is encoded before the next one is read."""
    done = 0
    for group in groups_of_size(corpus.read(), lambda item: row_size(item[0]), _GROUP):
        on_progress(done)
        yield group
        done += _GROUP  # or a few more
