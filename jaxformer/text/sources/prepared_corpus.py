"""Preparing a corpus: its tokens, in a store, made on all cores in constant memory."""

import collections
import concurrent.futures
import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jaxformer.text.sources.corpus import Corpus, Place
from jaxformer.text.sources.document_files import Piece
from jaxformer.text.sources.holdout import Holdout, text_draws
from jaxformer.text.sources.streams import token_dtype
from jaxformer.text.store.ragged import RaggedArray, TokenStream
from jaxformer.text.store.shards import Arrays, Record, filled_store
from jaxformer.text.tokenizers.pieces import groups_of_size
from jaxformer.text.tokenizers.tokenizer import Tokenizer

__all__ = ["PartCounts", "PreparedCorpus", "prepare_corpus"]

_LAYOUT = 4  # version of the folder's layout; part of its name
_SHARDS = 256  # number of shards, unless a shard would be smaller or larger than this:
_SMALLEST, _LARGEST = 2**22, 2**25  # bytes of text: seconds of work, and 300 MB of memory
_GROUP = 2**21  # characters that one call encodes
_AHEAD = 2  # groups encoded while others are read and written


_Pieces = Iterator[tuple[Piece, Place]]  # of `Corpus.pieces`
_Part = tuple[str, bool, bool]  # text; is it for validation; does a document of its side begin?


@dataclasses.dataclass(frozen=True)
class PartCounts:
    """Counts of the text for training or for validation.

    Args:
        tokens: number of tokens, including those that end documents.
        documents: number of documents that begin in it.
        num_bytes: bytes of their text in UTF-8.
    """

    tokens: int = 0
    documents: int = 0
    num_bytes: int = 0


class PreparedCorpus(NamedTuple):
    """A corpus as tokens.

    Args:
        train: training tokens, memory-mapped; each document ends with the end of text.
        validation: validation tokens; None if there are none.
        train_counts: counts of the training text.
        validation_counts: counts of the validation text.
        folder: folder of the token files; None if the tokens are in memory.
    """

    train: TokenStream
    validation: TokenStream | None
    train_counts: PartCounts
    validation_counts: PartCounts
    folder: pathlib.Path | None


def prepare_corpus(
    corpus: Corpus,
    tokenizer: Tokenizer,
    cache_dir: pathlib.Path | None,
    *,
    shard_size: int | None = None,
    on_progress: Callable[[int], None] = lambda size: None,
) -> PreparedCorpus:
    """Encodes a corpus into token files, or maps existing files.

    If a process ends early, in any way, it loses only the shard in progress. The next call resumes
    after the last complete shard. Concurrent processes write identical files.

    Args:
        corpus: the text.
        tokenizer: tokenizer that encodes it.
        cache_dir: cache folder. The corpus gets a folder in it, named by a hash of text and
            tokenizer. None to keep the tokens in memory.
        shard_size: bytes of text in a shard. Default: 4 to 32 MiB, depending on the text's size.
        on_progress: called with the number of bytes of text done so far.

    Returns:
        The tokens.

    Raises:
        DataError: a text file has changed, or a token file is damaged.
        StorageError: a token file cannot be written.

    Example:
        >>> import tempfile
        >>> from jaxformer.text import byte_tokenizer, scan_corpus
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.txt").write_text("some text")
        >>> corpus = scan_corpus([folder / "a.txt"], validation_fraction=0)
        >>> prepared = prepare_corpus(corpus, byte_tokenizer(), folder / "cache")
        >>> prepared.train.tokens[:4].tolist(), prepared.train_counts.num_bytes
        ([115, 111, 109, 101], 9)
    """
    if shard_size is None:
        shard_size = min(max(corpus.num_bytes // _SHARDS, _SMALLEST), _LARGEST)
    key = _key(corpus, tokenizer, shard_size)
    folder = None if cache_dir is None else cache_dir / "corpora" / key

    def shards(records: Sequence[Record]) -> Iterator[tuple[Arrays, Record]]:
        place: Place | None = Place(*records[-1]["end"]) if records else Place()
        assert place is not None
        pieces = corpus.pieces(place)  # read once, for all shards
        done = _num_bytes(records)
        while place is not None:
            parts = _Parts(pieces, corpus.holdout, shard_size)
            sides = _shard(parts, tokenizer, done, on_progress)
            end = parts.end
            corpus.require_unchanged(place, end)
            sizes = {name: side.num_bytes for name, side in sides.items()}
            arrays = {name: side.finished() for name, side in sides.items()}
            yield arrays, {"bytes": sizes, "end": end}
            place, done = end, done + sum(sizes.values())

    store = filled_store(folder, shards)
    on_progress(_num_bytes(store.records))
    counts = {
        name: PartCounts(array.values.size, len(array), _num_bytes(store.records, name))
        for name, array in store.arrays.items()
    }
    streams = {
        name: TokenStream(array.values, np.asarray(array.offsets))
        for name, array in store.arrays.items()
        if name == "train" or array.values.size
    }
    return PreparedCorpus(
        streams["train"], streams.get("validation"), counts["train"], counts["validation"], folder
    )


def _key(corpus: Corpus, tokenizer: Tokenizer, shard_size: int) -> str:
    holdout = repr(tuple(corpus.holdout))
    parts = (str(_LAYOUT), str(shard_size), corpus.fingerprint, holdout, tokenizer.identity)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _num_bytes(records: Sequence[Record], *names: str) -> int:
    """Bytes of text in shards, of both sides unless some are named."""
    return sum(record["bytes"][name] for record in records for name in names or record["bytes"])


def _shard(
    parts: "_Parts", tokenizer: Tokenizer, done: int, on_progress: Callable[[int], None]
) -> "dict[str, _Side]":
    """Encodes the parts of a shard, by side; `done` counts the bytes of earlier shards."""
    sides = {"train": _Side(tokenizer), "validation": _Side(tokenizer)}
    for (text, is_validation, begins), tokens in _encoded(parts, tokenizer):
        num_bytes = len(text.encode())
        sides["validation" if is_validation else "train"].add(tokens, begins, num_bytes)
        done += num_bytes
        on_progress(done)
    return sides


class _Side:
    """Accumulates a side of a shard; its documents end where others begin, and with the shard."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._dtype = token_dtype(tokenizer)
        end = tokenizer.end_of_text
        self._end = np.array([] if end is None else [end], self._dtype)
        self._tokens = [np.zeros(0, self._dtype)]
        self._starts: list[int] = []
        self._size = self.num_bytes = 0

    def add(self, tokens: np.ndarray, begins: bool, num_bytes: int) -> None:
        """Adds a part of a document."""
        if begins:
            self._end_document()
            self._starts.append(self._size)
        self._tokens.append(tokens.astype(self._dtype))
        self._size += tokens.size
        self.num_bytes += num_bytes

    def finished(self) -> RaggedArray:
        """The documents, after the last one has ended."""
        self._end_document()
        return RaggedArray(np.concatenate(self._tokens), np.array(self._starts, np.int64))

    def _end_document(self) -> None:
        if self._starts:
            self._tokens.append(self._end)
            self._size += self._end.size


class _Parts:
    """The next pieces, of about `size` bytes, by side.

    A document begins anew where it continues on the other side, and in another shard. After all
    parts, `end` is the place behind them, or None at the end of the text.
    """

    def __init__(self, pieces: _Pieces, holdout: Holdout, size: int) -> None:
        self._pieces, self._holdout, self._size = pieces, holdout, size
        self.end: Place | None = None

    def __iter__(self) -> Iterator[_Part]:
        last = None
        for piece, place in self._pieces:
            data = piece.text.encode()
            is_start = piece.is_start
            for text, is_validation in self._holdout.parts(piece.text, text_draws(data)[0]):
                yield text, is_validation, is_start or is_validation != last
                last, is_start = is_validation, False
            self._size -= len(data)
            if self._size <= 0:
                self.end = place
                break


def _encoded(parts: Iterable[_Part], tokenizer: Tokenizer) -> Iterator[tuple[_Part, np.ndarray]]:
    """Encodes parts in order, some groups ahead of the consumer."""

    def encode(group: list[_Part]) -> list[tuple[_Part, np.ndarray]]:
        tokens = tokenizer.encode_documents([text for text, *_ in group])
        return list(zip(group, tokens, strict=True))

    waiting: collections.deque[concurrent.futures.Future[list[tuple[_Part, np.ndarray]]]]
    waiting = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(_AHEAD) as pool:
        for group in groups_of_size(parts, lambda part: len(part[0]), _GROUP):
            waiting.append(pool.submit(encode, group))
            if len(waiting) > _AHEAD:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
