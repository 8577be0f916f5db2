"""Preparing rows: encoded examples, in a store, made in constant memory."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from jaxformer.text.store.ragged import Example, ExampleArrays
from jaxformer.text.store.shards import Arrays, Record, filled_store
from jaxformer.text.tables.row_corpus import RowCorpus, RowPiece
from jaxformer.text.tables.row_counts import NoRowsError, RowCounts
from jaxformer.text.tables.table import Table

__all__ = ["PreparedRows", "prepare_rows"]

_SHARDS = 256  # number of shards, unless a shard would be smaller or larger than this:
_SMALLEST, _LARGEST = 2**22, 2**23  # bytes of text; a shard's examples take ten times that

Encode = Callable[[Table, RowCounts], tuple[Sequence[Example], Table, RowCounts]]
"""(rows, counts) to (examples, the rows that they were made from, updated counts)."""


class PreparedRows(NamedTuple):
    """The training rows of a corpus as examples.

    Args:
        examples: the examples, memory-mapped.
        counts: counts of the rows read and dropped.
    """

    examples: ExampleArrays
    counts: RowCounts


def prepare_rows(
    corpus: RowCorpus,
    encode: Encode,
    folder: pathlib.Path,
    *,
    shard_size: int | None = None,
    on_progress: Callable[[int], None] = lambda size: None,
) -> PreparedRows:
    r"""Encodes the training rows of a corpus into files, or maps existing files.

    If a process ends early, in any way, it loses only the shard in progress. The next call resumes
    after the last complete shard.

    Args:
        corpus: the rows.
        encode: makes examples from rows, as `encode_pairs` does with its tokenizers.
        folder: folder of the files, used only for this corpus, `encode` and shard_size.
        shard_size: bytes of text in a shard. Default: 4 to 8 MiB, depending on the text's size.
        on_progress: called with the number of bytes of text done so far.

    Returns:
        The examples and the counts.

    Raises:
        DataError: a data file has changed, no row is left, or a file in the folder is damaged.
        StorageError: a file cannot be written.

    Example:
        >>> import tempfile
        >>> from jaxformer.text import Pairs, byte_tokenizer, encode_pairs, scan_rows
        >>> folder, bytes_ = pathlib.Path(tempfile.mkdtemp()), byte_tokenizer()
        >>> _ = (folder / "a.tsv").write_text("one\teins\ntwo\tzwei\n")
        >>> corpus = scan_rows(Pairs, [str(folder / "a.tsv")], validation_fraction=0)
        >>> encode = lambda rows, counts: encode_pairs(rows, bytes_, bytes_, 8, counts)
        >>> prepared = prepare_rows(corpus, encode, folder / "cache")
        >>> prepared.examples[1]["source_tokens"].tolist(), str(prepared.counts)
        ([116, 119, 111, 256], '2 pairs read, 2 kept')
    """
    if shard_size is None:
        shard_size = min(max(corpus.num_bytes // _SHARDS, _SMALLEST), _LARGEST)

    def shards(records: Sequence[Record]) -> Iterator[tuple[Arrays, Record]]:
        done = sum(record["num_bytes"] for record in records)
        for piece in corpus.pieces(shard_size, records[-1]["end"] if records else 0):
            on_progress(done)
            arrays, counts = _encoded(piece, encode)
            record = {"counts": dataclasses.asdict(counts), "num_bytes": piece.num_bytes}
            yield arrays, {**record, "end": piece.end}
            done += piece.num_bytes

    store = filled_store(folder, shards)
    on_progress(sum(record["num_bytes"] for record in store.records))
    counts = corpus.counts
    for record in store.records:
        counts = counts.with_drops_of(RowCounts.from_dict(record["counts"]))
    if not store.arrays:
        raise NoRowsError(
            counts,
            f"at least one of the {counts.unit} must be usable for training, got none: {counts}; "
            "raise max_len, or lower validation_fraction",
        )
    return PreparedRows(ExampleArrays(store.arrays), counts)


def _encoded(piece: RowPiece, encode: Encode) -> tuple[Arrays, RowCounts]:
    """Arrays of a piece's examples, none if no row is usable, and the counts of its rows."""
    if piece.rows is None:
        return {}, piece.counts
    try:
        examples, _, counts = encode(piece.rows, piece.counts)
    except NoRowsError as error:  # for example if the last row alone is too long
        return {}, error.counts
    return ExampleArrays.of(examples).arrays if examples else {}, counts
