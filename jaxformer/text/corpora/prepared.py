"""Preparing a corpus: encoded part by part, in constant memory, into a store."""

import concurrent.futures
import itertools
import pathlib
from collections.abc import Callable, Iterator, Sequence

from jaxformer.text.corpora.corpus import Corpus, CorpusPart
from jaxformer.text.sources.records import Row
from jaxformer.text.store.store import Arrays, Record, Store, cache_path, filled_store

_LAYOUT = 9  # version of the folder's layout; part of its name
_PARTS = 256  # number of parts of much text
_SMALLEST = 2**22  # bytes of text in a part; it takes seconds to encode


def prepared_store(
    corpus: Corpus,
    encode: Callable[[list[tuple[Row, bool]]], tuple[Arrays, Record]],
    cache_dir: pathlib.Path | None,
    *key: object,
    largest: int,
    on_progress: Callable[[int], None],
) -> Store:
    """A store in the cache, filled with what `encode` makes of the rows of a corpus.

    `encode` gets parts of rows, each with whether it is for validation; `key` is all else that it
    depends on. Without a cache, the arrays stay in memory. A part has 4 MiB to `largest` bytes of
    text: 256 parts, if possible.
    """
    size = min(max(corpus.num_bytes // _PARTS, _SMALLEST), largest)
    rule = corpus.fingerprint, tuple(corpus.holdout), size

    def make(records: Sequence[Record]) -> Iterator[tuple[Arrays, Record]]:
        done = sum(record["num_bytes"] for record in records)
        for part in _ahead(corpus.parts(size, records[-1]["end"] if records else 0)):
            on_progress(done)
            split = (corpus.holdout.parts(row, corpus.key) for row in part.rows)
            arrays, record = encode(list(itertools.chain.from_iterable(split)))
            yield arrays, {**record, "num_bytes": part.num_bytes, "end": part.end}
            done += part.num_bytes

    store = filled_store(cache_path(cache_dir, "corpora", _LAYOUT, *rule, *key), make)
    on_progress(sum(record["num_bytes"] for record in store.records))
    return store


def _ahead(parts: Iterator[CorpusPart]) -> Iterator[CorpusPart]:
    """The parts, of which the next one is read while one is encoded."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, parts, None)
        while (part := following.result()) is not None:
            following = pool.submit(next, parts, None)
            yield part
