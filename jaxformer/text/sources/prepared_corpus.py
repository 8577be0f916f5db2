"""Preparing a corpus: its tokens, in a store, made on all cores in constant memory."""

import collections
import concurrent.futures
import hashlib
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jaxformer.text.sources.corpus import Corpus, Place
from jaxformer.text.sources.document_files import Piece
from jaxformer.text.sources.holdout import Holdout, text_bytes, text_draws
from jaxformer.text.sources.streams import token_dtype
from jaxformer.text.store.ragged import RaggedArray, TokenStream, item_starts
from jaxformer.text.store.shards import Arrays, Record, filled_store, text_per_shard
from jaxformer.text.tokenizers.pieces import groups_of_size
from jaxformer.text.tokenizers.tokenizer import Tokenizer

_LAYOUT = 5  # version of the folder's layout; part of its name
_LARGEST = 2**25  # bytes of text in a shard; encoding it takes 300 MB of memory
_GROUP = 2**21  # characters that one call encodes
_AHEAD = 2  # groups encoded while others are read and written


class PreparedCorpus(NamedTuple):
    """A corpus as tokens, memory-mapped if they are in a folder; the end of text ends documents.

    Args:
        train: training tokens.
        validation: validation tokens; None if there are none.
    """

    train: TokenStream
    validation: TokenStream | None


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
        >>> prepared.train.tokens[:4].tolist(), prepared.train.num_bytes
        ([115, 111, 109, 101], 9)
    """
    if shard_size is None:
        shard_size = text_per_shard(corpus.num_bytes, largest=_LARGEST)
    key = _key(corpus, tokenizer, shard_size)
    folder = None if cache_dir is None else cache_dir / "corpora" / key

    def shards(records: Sequence[Record]) -> Iterator[tuple[Arrays, Record]]:
        place: Place | None = Place(*records[-1]["end"]) if records else Place()
        assert place is not None
        pieces = corpus.pieces(place)  # read once, for all shards
        done = _num_bytes(records)
        while place is not None:
            parts = _parts(pieces, corpus.holdout, shard_size)
            arrays, record = _shard(parts, tokenizer, done, on_progress)
            end = record["end"]
            corpus.require_unchanged(place, end)
            yield arrays, record
            place, done = end, done + sum(record["bytes"].values())

    store = filled_store(folder, shards)
    on_progress(_num_bytes(store.records))
    streams = {
        name: TokenStream(
            array.values,
            np.asarray(array.offsets),
            num_bytes=_num_bytes(store.records, name),
            fingerprint=corpus.fingerprint,
        )
        for name, array in store.arrays.items()
        if name == "train" or array.values.size
    }
    return PreparedCorpus(streams["train"], streams.get("validation"))


def _key(corpus: Corpus, tokenizer: Tokenizer, shard_size: int) -> str:
    holdout = repr(tuple(corpus.holdout))
    parts = (str(_LAYOUT), str(shard_size), corpus.fingerprint, holdout, tokenizer.identity)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _num_bytes(records: Sequence[Record], *names: str) -> int:
    """Bytes of text in shards, of both sides unless some are named."""
    return sum(record["bytes"][name] for record in records for name in names or record["bytes"])


class _Part(NamedTuple):
    """A part of a document, all of which is on one side."""

    text: str
    is_validation: bool
    is_start: bool  # whether a document of its side begins with it
    end: Place | None  # where the next shard begins, if this one ends with this piece


def _parts(pieces: Iterable[tuple[Piece, Place]], holdout: Holdout, size: int) -> Iterator[_Part]:
    """The parts of a shard: those of the next pieces, of about `size` bytes.

    A document begins anew where it continues on the other side, and in another shard.
    """
    last = None
    for piece, place in pieces:
        data, is_start = text_bytes(piece.text), piece.is_start
        size -= len(data)
        end = place if size <= 0 else None
        for text, is_validation in holdout.parts(piece.text, text_draws(data)[0]):
            yield _Part(text, is_validation, is_start or is_validation != last, end)
            last, is_start = is_validation, False
        if end is not None:
            return


def _shard(
    parts: Iterable[_Part], tokenizer: Tokenizer, done: int, on_progress: Callable[[int], None]
) -> tuple[Arrays, Record]:
    """Encodes the parts of a shard; `done` counts the bytes of earlier shards."""
    dtype = token_dtype(tokenizer)
    documents: dict[str, list[list[np.ndarray]]] = {"train": [], "validation": []}
    sizes, end = dict.fromkeys(documents, 0), None
    for part, tokens in _encoded(parts, tokenizer):
        side = "validation" if part.is_validation else "train"
        if part.is_start:
            documents[side].append([])
        documents[side][-1].append(tokens.astype(dtype))
        num_bytes = len(text_bytes(part.text))
        sizes[side] += num_bytes
        done += num_bytes
        end = part.end
        on_progress(done)
    arrays = {side: _joined(found, tokenizer) for side, found in documents.items()}
    return arrays, {"bytes": sizes, "end": end}


def _joined(documents: Sequence[Sequence[np.ndarray]], tokenizer: Tokenizer) -> RaggedArray:
    """Joins documents, each in parts, with their surrounding tokens; the end of text ends each."""
    special, end = tokenizer.surrounding_tokens, tokenizer.end_of_text
    dtype = token_dtype(tokenizer)
    is_ended = end is None or special.after[-1:] == (end,)
    first = np.array(special.before, dtype)
    last = np.array(special.after if is_ended else (*special.after, end), dtype)
    tokens = [one for parts in documents for one in (first, *parts, last)]
    around = first.size + last.size
    return RaggedArray(
        np.concatenate([first[:0], *tokens]),
        item_starts(sum(map(len, parts)) + around for parts in documents),
    )


def _encoded(parts: Iterable[_Part], tokenizer: Tokenizer) -> Iterator[tuple[_Part, np.ndarray]]:
    """Encodes parts in order, some groups ahead of the consumer."""

    def encode(group: list[_Part]) -> list[tuple[_Part, np.ndarray]]:
        starts = iter(tokenizer.encode_documents([p.text for p in group if p.is_start]))
        others = iter(tokenizer.encode_continuations([p.text for p in group if not p.is_start]))
        return [(part, next(starts if part.is_start else others)) for part in group]

    waiting: collections.deque[concurrent.futures.Future[list[tuple[_Part, np.ndarray]]]]
    waiting = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(_AHEAD) as pool:
        for group in groups_of_size(parts, lambda part: len(part.text), _GROUP):
            waiting.append(pool.submit(encode, group))
            if len(waiting) > _AHEAD:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
