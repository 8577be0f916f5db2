"""Preparing rows: encoded examples, in shards on disk, made in constant memory."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxformer.errors import DataError
from jaxformer.storage import make_folder, remove_drafts
from jaxformer.text.store.array_files import map_array, write_array
from jaxformer.text.store.example_arrays import Example, ExampleArrays, RaggedArray
from jaxformer.text.store.shards import (
    ABANDONED,
    PREPARE_AGAIN,
    read_shard_records,
    write_shard_record,
)
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


class _Shard(NamedTuple):
    """The record of a shard.

    Args:
        arrays: whether the arrays of a name have an axis, by name.
        num_examples: number of examples.
        counts: counts of its rows.
        num_bytes: bytes of text that were read for it.
        end: number of the row after it; None for the last shard.
    """

    arrays: dict[str, bool]
    num_examples: int
    counts: RowCounts
    num_bytes: int
    end: int | None


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
    shards = read_shard_records(folder, _unpacked)
    if not shards or shards[-1].end is not None:
        make_folder(folder)
        remove_drafts(folder, older_than=ABANDONED)
        start = shards[-1].end if shards else 0
        assert start is not None
        for piece in corpus.pieces(shard_size, start):
            on_progress(sum(shard.num_bytes for shard in shards))
            shards.append(_write(folder, len(shards), piece, encode))
    on_progress(sum(shard.num_bytes for shard in shards))
    counts = corpus.counts
    for shard in shards:
        counts = counts.with_drops_of(shard.counts)
    parts = [_part(folder, i, shard) for i, shard in enumerate(shards) if shard.num_examples]
    if not parts:
        raise NoRowsError(
            counts,
            f"at least one of the {counts.unit} must be usable for training, got none: {counts}; "
            "raise max_len, or lower validation_fraction",
        )
    return PreparedRows(ExampleArrays(parts), counts)


def _write(folder: pathlib.Path, index: int, piece: RowPiece, encode: Encode) -> _Shard:
    """Encodes a piece and writes its shard, the record last."""
    examples: Sequence[Example] = []
    counts = piece.counts
    if piece.rows is not None:
        try:
            examples, _, counts = encode(piece.rows, counts)
        except NoRowsError as error:  # for example if the last row alone is too long
            counts = error.counts
    arrays: dict[str, bool] = {}
    if examples:
        (part,) = ExampleArrays.of(examples).parts
        for name, array in part.items():
            arrays[name] = array.offsets is not None
            values, offsets = _paths(folder, index, name)
            write_array(values, array.values)
            if array.offsets is not None:
                write_array(offsets, array.offsets)
    shard = _Shard(arrays, len(examples), counts, piece.num_bytes, piece.end)
    record = {**shard._asdict(), "counts": dataclasses.asdict(counts)}
    write_shard_record(folder, index, record)
    return shard


def _unpacked(values: dict[str, Any]) -> _Shard:
    return _Shard(**{**values, "counts": RowCounts.from_dict(values["counts"])})


def _part(folder: pathlib.Path, index: int, shard: _Shard) -> dict[str, RaggedArray]:
    """Maps the arrays of a shard."""
    part = {}
    for name, has_axis in shard.arrays.items():
        values, offsets = _paths(folder, index, name)
        paths = (values, offsets) if has_axis else (values,)
        array = RaggedArray(*(map_array(path, remedy=PREPARE_AGAIN) for path in paths))
        ends_right = array.offsets is None or array.offsets[-1] == array.values.size
        if len(array) != shard.num_examples or not ends_right:
            raise DataError(
                f"'{values}' must have {shard.num_examples:,} examples, got {len(array):,}; "
                f"{PREPARE_AGAIN}"
            )
        part[name] = array
    return part


def _paths(folder: pathlib.Path, index: int, name: str) -> tuple[pathlib.Path, pathlib.Path]:
    return folder / f"{index:05}.{name}.npy", folder / f"{index:05}.{name}.offsets.npy"
