"""The cache: values of JSON, and stores of flat arrays that grow part by part."""

import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxformer.errors import storage_error
from jaxformer.storage import append, make_folder, write_whole
from jaxformer.storage.files import sync
from jaxformer.text.store.ragged import RaggedArray

Arrays = Mapping[str, RaggedArray]
Record = dict[str, Any]
"""Values of JSON, written with the arrays of a part."""

_MANIFEST = "parts.jsonl"


def cache_path(cache_dir: pathlib.Path | None, name: str, *key: object) -> pathlib.Path | None:
    """Path in a folder of the cache, named by a hash of the key; None without a cache."""
    if cache_dir is None:
        return None
    return cache_dir / name / hashlib.sha256(repr(key).encode()).hexdigest()[:32]


def remembered(path: pathlib.Path | None, make: Callable[[], Any]) -> Any:
    """A value of JSON that is made once, and read from the file in later calls."""
    if path is None:
        return make()
    if not path.exists():
        make_folder(path.parent)
        write_whole(path, json.dumps(make()))
    return json.loads(path.read_bytes())


class Store(NamedTuple):
    """Arrays by name, and a record of each part that they were filled with."""

    arrays: dict[str, RaggedArray]  # memory-mapped if in a folder
    records: list[Record]


def filled_store(
    folder: pathlib.Path | None,
    make: Callable[[Sequence[Record]], Iterator[tuple[Arrays, Record]]],
) -> Store:
    """Maps the arrays of a folder, after the missing parts were made and appended.

    The manifest gets a line for each part, after its values were written: what an ended process
    wrote without that is cut off again. Only one process fills a folder; others wait for it.

    The folder is named by a hash of all that `make` depends on; None keeps the arrays in memory.
    `make` makes the parts after those with the given records. A record has `end`: where the next
    part begins, or None in the last one. An array has items of one kind in all parts.
    """
    if folder is None:
        parts = list(make([]))
        names = dict.fromkeys(name for arrays, _ in parts for name in arrays)
        joined = {
            name: _concatenated([arrays[name] for arrays, _ in parts if name in arrays])
            for name in names
        }
        return Store(joined, [record for _, record in parts])
    records = _records(folder)
    if not _is_complete(records):
        import filelock

        make_folder(folder)
        with filelock.FileLock(folder / "lock"):
            records = _records(folder)  # another process may have filled it
            if not _is_complete(records):
                _cut(folder, records)
                for arrays, record in make(records):
                    records.append(_append(folder, records, arrays, record))
    return Store(_mapped(folder, records), records)


def _is_complete(records: Sequence[Record]) -> bool:
    return bool(records) and records[-1]["end"] is None


def _concatenated(parts: Sequence[RaggedArray]) -> RaggedArray:
    values = np.concatenate([part.values for part in parts])
    if parts[0].offsets is None:
        return RaggedArray(values)
    begins = np.cumsum([0, *(part.values.size for part in parts)])
    starts = [part.offsets + begin for part, begin in zip(parts, begins, strict=False)]
    return RaggedArray(values, np.concatenate(starts))


def _records(folder: pathlib.Path) -> list[Record]:
    """The lines of a manifest; none if there is no manifest."""
    path = folder / _MANIFEST
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return list(map(json.loads, lines))  # after the last break, a line is not whole


def _files(folder: pathlib.Path, name: str, array: Record) -> Iterator[tuple[pathlib.Path, Any]]:
    """The files of an array, each with the dtype and number of its elements."""
    yield folder / f"{name}.values", (np.dtype(array["dtype"]), array["values"])
    if array["items"] is not None:
        yield folder / f"{name}.starts", (np.dtype(np.int64), array["items"])


def _sizes(records: Sequence[Record]) -> dict[str, Record]:
    """By name of an array, its dtype, and its numbers of values and items so far."""
    return records[-1]["arrays"] if records else {}


def _cut(folder: pathlib.Path, records: Sequence[Record]) -> None:
    """Cuts off what is not in the manifest."""
    sizes = {
        path: dtype.itemsize * count
        for name, array in _sizes(records).items()
        for path, (dtype, count) in _files(folder, name, array)
    }
    manifest = folder / _MANIFEST
    if manifest.exists():
        sizes[manifest] = manifest.read_bytes().rfind(b"\n") + 1
    for path in (*folder.glob("*.values"), *folder.glob("*.starts"), *folder.glob(_MANIFEST)):
        os.truncate(path, sizes.get(path, 0))


def _append(
    folder: pathlib.Path, records: Sequence[Record], arrays: Arrays, record: Record
) -> Record:
    """Appends a part to the files of its arrays, and then its line to the manifest."""
    sizes = dict(_sizes(records))
    for name, array in arrays.items():
        values, items = np.asarray(array.values), None
        before = sizes.get(name, {"values": 0, "items": 0})
        _append_numbers(folder / f"{name}.values", values)
        if array.offsets is not None:
            _append_numbers(folder / f"{name}.starts", array.offsets + before["values"])
            items = before["items"] + array.offsets.size
        sizes[name] = {
            "dtype": values.dtype.str, "values": before["values"] + values.size, "items": items,
        }  # fmt: skip
    record = {**record, "arrays": sizes}
    append(folder / _MANIFEST, json.dumps(record).encode() + b"\n")
    return record


def _append_numbers(path: pathlib.Path, numbers: np.ndarray) -> None:
    append(path, np.ascontiguousarray(numbers).tobytes())
    try:
        sync(path)
    except OSError as error:
        raise storage_error(path, error) from error


def _mapped(folder: pathlib.Path, records: Sequence[Record]) -> dict[str, RaggedArray]:
    return {
        name: RaggedArray(*(_map(path, *kind) for path, kind in _files(folder, name, array)))
        for name, array in _sizes(records).items()
    }


def _map(path: pathlib.Path, dtype: np.dtype, count: int) -> np.ndarray:
    if not count:  # nothing to map
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r", shape=(count,))
