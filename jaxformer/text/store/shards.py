"""Shards: named ragged arrays in files, with a record that makes them complete."""

import contextlib
import itertools
import json
import pathlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from jaxformer.errors import DataError, StorageError
from jaxformer.storage import make_folder, remove_drafts, write_whole
from jaxformer.text.store.arrays import joined, map_array, write_array
from jaxformer.text.store.ragged import RaggedArray

Arrays = Mapping[str, RaggedArray]
Record = dict[str, Any]
"""Values of JSON, written with the arrays of a shard."""

_T = TypeVar("_T")
_SHARDS = 256  # number of shards of much text
_SMALLEST = 2**22  # bytes of text in a shard; it takes seconds to encode
_ABANDONED = 3600.0  # seconds; a younger draft may belong to another process
_AGAIN = "remove that folder, and the data is prepared again"


class Store(NamedTuple):
    """The shards of a folder, read as one."""

    arrays: dict[str, RaggedArray]  # those of all shards, joined; memory-mapped if in a folder
    records: list[Record]  # one for each shard


def text_per_shard(num_bytes: int, *, largest: int) -> int:
    """Bytes of text in each shard of a text, from 4 MiB to `largest`: 256 shards, if possible."""
    return min(max(num_bytes // _SHARDS, _SMALLEST), largest)


def filled_store(
    folder: pathlib.Path | None,
    make: Callable[[Sequence[Record]], Iterator[tuple[Arrays, Record]]],
) -> Store:
    """Maps the shards of a folder, after it has made and written the missing ones.

    Shard 7 has the record `00007.json`, and for each array its values, `00007.NAME.npy`, and the
    starts of its items, `00007.NAME.starts.npy`, counted over all shards. If a process ends early,
    in any way, it loses only the shard in progress.

    The folder is named by a hash of all that `make` depends on; None keeps the shards in memory.
    `make` makes the shards after those with the given records. A record has `end`: where the next
    shard begins, or None in the last one.
    """
    if folder is None:
        made = list(make([]))
        return Store(
            _by_name([arrays for arrays, _ in made], _concatenated), [record for _, record in made]
        )
    records = list(_records(folder))
    if not records or records[-1]["end"] is not None:
        make_folder(folder)
        remove_drafts(folder, older_than=_ABANDONED)
        for arrays, record in make(records):
            begins = {name: _size(records, name) for name in arrays}
            stem = folder / f"{len(records):05}"
            records.append(_write(stem, arrays, {**record, "folder": folder.name}, begins))
    shards = [_mapped(folder / f"{index:05}", record) for index, record in enumerate(records)]
    return Store(_by_name(shards, _joined), records)


def _by_name(
    shards: Sequence[Arrays], join: Callable[[Sequence[RaggedArray]], RaggedArray]
) -> dict[str, RaggedArray]:
    """Joins the arrays of a name in all shards; a shard need not have them all."""
    names = dict.fromkeys(name for arrays in shards for name in arrays)
    return {name: join([arrays[name] for arrays in shards if name in arrays]) for name in names}


def _concatenated(parts: Sequence[RaggedArray]) -> RaggedArray:
    values = np.concatenate([part.values for part in parts])
    if parts[0].offsets is None:
        return RaggedArray(values)
    begins = itertools.accumulate((part.values.size for part in parts), initial=0)
    starts = [np.asarray(part.offsets) + begin for part, begin in zip(parts, begins, strict=False)]
    return RaggedArray(values, np.concatenate(starts))


def remembered(
    stem: pathlib.Path | None,
    make: Callable[[], _T],
    pack: Callable[[_T], tuple[Arrays, Record]],
    unpack: Callable[[Arrays, Record], _T],
) -> _T:
    """Makes a value once: later calls read it from a shard of its own; damaged ones are made again.

    `stem` is the path of the files, without suffix; None remembers nothing. `pack` returns arrays
    and record. `unpack` is the inverse; it may raise anything for a damaged record. If the files
    cannot be written, none is left.
    """
    if stem is None:
        return make()
    with contextlib.suppress(Exception):
        return unpack(*_read(stem))
    found = make()
    arrays, record = pack(found)
    make_folder(stem.parent)
    try:
        _write(stem, arrays, {**record, "checksum": _checksum(arrays)}, {})
    except StorageError:
        for path in (path for name in arrays for path in _paths(stem, name)):
            with contextlib.suppress(OSError):
                path.unlink()  # useless alone, and the disk is full
        raise
    with contextlib.suppress(Exception):  # another process may have removed the files
        return unpack(*_read(stem)) if arrays else found
    return found


def _records(folder: pathlib.Path) -> Iterator[Record]:
    """The records of a folder up to the last, or to the first that is missing."""
    record: Record = {"end": ""}
    index = 0
    while record["end"] is not None:
        path = folder / f"{index:05}.json"
        try:
            record = json.loads(path.read_bytes())
            owner, _ = record["folder"], record["end"]
            _ = [int(size) for size, _ in record["arrays"].values()]
        except (FileNotFoundError, NotADirectoryError):  # writing says what is wrong with a folder
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"'{path}' is damaged: {error}; {_AGAIN}") from None
        if owner != folder.name:
            raise DataError(
                f"'{path}' belongs to other text or another tokenizer: it was written into a "
                f"folder {owner!r}; {_AGAIN}"
            )
        yield record
        index += 1


def _size(records: Sequence[Record], name: str) -> int:
    """Values of an array in some shards."""
    return sum(record["arrays"].get(name, [0])[0] for record in records)


def _write(stem: pathlib.Path, arrays: Arrays, record: Record, begins: Mapping[str, int]) -> Record:
    """Writes a shard, the record last; `begins` has the values of earlier shards, by name."""
    sizes = {}
    for name, array in arrays.items():
        values, starts = _paths(stem, name)
        write_array(values, array.values)
        if array.offsets is not None:
            write_array(starts, np.asarray(array.offsets) + begins.get(name, 0))
        sizes[name] = array.values.size, None if array.offsets is None else len(array)
    record = {**record, "arrays": sizes}
    write_whole(stem.with_name(f"{stem.name}.json"), json.dumps(record))
    return record


def _read(stem: pathlib.Path) -> tuple[Arrays, Record]:
    """A shard of its own; raises anything if a file is missing or damaged."""
    record = json.loads(stem.with_name(f"{stem.name}.json").read_bytes())
    arrays = _mapped(stem, record)
    del record["arrays"]
    if record.pop("checksum") != _checksum(arrays):
        raise DataError(f"'{stem}' is damaged")
    return arrays, record


def _mapped(stem: pathlib.Path, record: Record) -> dict[str, RaggedArray]:
    """Maps the arrays of a shard, whose starts count from the first shard."""
    arrays = {}
    for name, (size, items) in record["arrays"].items():
        found = []
        for path, numbers in zip(_paths(stem, name), (size, items), strict=True):
            if numbers is None:
                continue
            found.append(map_array(path, remedy=_AGAIN))
            if found[-1].shape != (numbers,):
                raise DataError(
                    f"'{path}' must have {numbers:,} numbers, got {found[-1].shape}; {_AGAIN}"
                )
        arrays[name] = RaggedArray(*found)
    return arrays


def _joined(parts: Sequence[RaggedArray]) -> RaggedArray:
    starts = [part.offsets for part in parts if isinstance(part.offsets, np.ndarray)]
    values = [part.values for part in parts if isinstance(part.values, np.ndarray)]
    return RaggedArray(joined(values), joined(starts) if starts else None)


def _checksum(arrays: Arrays) -> int:
    found = 0
    for array in arrays.values():
        for numbers in (array.values, array.offsets):
            if numbers is not None:
                found = zlib.crc32(np.ascontiguousarray(numbers).data, found)
    return found


def _paths(stem: pathlib.Path, name: str) -> tuple[pathlib.Path, pathlib.Path]:
    """Files of the values of an array, and of the starts of its items."""
    values = stem.with_name(f"{stem.name}.{name}.npy")
    return values, values.with_suffix(".starts.npy")
