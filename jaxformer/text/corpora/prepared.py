"""Preparing a corpus: encoded part by part, in constant memory, into a store."""

import concurrent.futures
import pathlib
from collections.abc import Callable, Iterator, Sequence

from jaxformer.text.corpora.corpus import Corpus, CorpusPart, Place
from jaxformer.text.store.store import Arrays, Record, Store, filled_store
from jaxformer.text.tables.table import Row

_PARTS = 256  # number of parts of much text
_SMALLEST = 2**22  # bytes of text in a part; it takes seconds to encode


def prepared_store(
    corpus: Corpus,
    folder: pathlib.Path | None,
    encode: Callable[[list[Row]], tuple[Arrays, Record]],
    *,
    part_size: int,
    on_progress: Callable[[int], None],
) -> Store:
    """The store of a folder, filled with the arrays that `encode` makes of rows of both sides."""

    def make(records: Sequence[Record]) -> Iterator[tuple[Arrays, Record]]:
        done = sum(record["num_bytes"] for record in records)
        start = Place(*records[-1]["end"]) if records else Place()
        for part in _ahead(corpus.parts(part_size, start)):
            on_progress(done)
            arrays, record = encode(part.rows)
            yield arrays, {**record, "num_bytes": part.num_bytes, "end": part.end}
            done += part.num_bytes

    store = filled_store(folder, make)
    on_progress(sum(record["num_bytes"] for record in store.records))
    return store


def text_per_part(num_bytes: int, *, largest: int) -> int:
    """Bytes of text in a part, from 4 MiB to `largest`: 256 parts, if possible."""
    return min(max(num_bytes // _PARTS, _SMALLEST), largest)


def _ahead(parts: Iterator[CorpusPart]) -> Iterator[CorpusPart]:
    """The parts, of which the next one is read while one is encoded."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, parts, None)
        while (part := following.result()) is not None:
            following = pool.submit(next, parts, None)
            yield part
