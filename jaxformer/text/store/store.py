"""The cache: values of JSON, and stores of flat arrays that grow part by part."""

import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

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
        parts: dict[str, list[np.ndarray]] = {}
        records: list[Record] = []
        for arrays, record in make([]):
            flat, sizes = _flat(arrays, records)
            for name, numbers in flat.items():
                parts.setdefault(name, []).append(numbers)
            records.append({**record, "sizes": sizes})
        return Store(_ragged({name: np.concatenate(part) for name, part in parts.items()}), records)
    records = _records(folder)
    if not _is_complete(records):
        import filelock

        make_folder(folder)
        with filelock.FileLock(folder / "lock"):
            records = _records(folder)  # another process may have filled it
            if not _is_complete(records):
                _cut(folder, records)
                for arrays, record in make(records):
                    flat, sizes = _flat(arrays, records)
                    for name, numbers in flat.items():
                        append(folder / name, numbers.tobytes())
                        sync(folder / name)
                    records.append({**record, "sizes": sizes})
                    append(folder / _MANIFEST, json.dumps(records[-1]).encode() + b"\n")
    return Store(
        _ragged({n: _map(folder / n, *size) for n, size in _sizes(records).items()}), records
    )


def _is_complete(records: Sequence[Record]) -> bool:
    return bool(records) and records[-1]["end"] is None


def _records(folder: pathlib.Path) -> list[Record]:
    """The lines of a manifest; none if there is no manifest."""
    path = folder / _MANIFEST
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return list(map(json.loads, lines))  # after the last break, a line is not whole


def _sizes(records: Sequence[Record]) -> dict[str, tuple[str, int]]:
    """Dtype and number of elements of each file after these parts."""
    return dict(records[-1]["sizes"]) if records else {}


def _flat(
    arrays: Arrays, records: Sequence[Record]
) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, int]]]:
    """What a part appends to each file, and the sizes of the files with it."""
    sizes, flat = _sizes(records), {}
    for name, array in arrays.items():
        values = f"{name}.values"
        if array.offsets is not None:
            flat[f"{name}.starts"] = array.offsets + sizes.get(values, ("", 0))[1]
        flat[values] = np.asarray(array.values)
    for name, numbers in flat.items():
        sizes[name] = numbers.dtype.str, sizes.get(name, ("", 0))[1] + numbers.size
    return flat, sizes


def _ragged(flat: Mapping[str, np.ndarray]) -> dict[str, RaggedArray]:
    return {
        name.removesuffix(".values"): RaggedArray(
            values, flat.get(name.replace(".values", ".starts"))
        )
        for name, values in flat.items()
        if name.endswith(".values")
    }


def _cut(folder: pathlib.Path, records: Sequence[Record]) -> None:
    """Cuts off what is not in the manifest."""
    sizes, manifest = _sizes(records), folder / _MANIFEST
    for path in (*folder.glob("*.values"), *folder.glob("*.starts")):
        dtype, count = sizes.get(path.name, ("u1", 0))
        os.truncate(path, np.dtype(dtype).itemsize * count)
    if manifest.exists():
        os.truncate(manifest, manifest.read_bytes().rfind(b"\n") + 1)


def _map(path: pathlib.Path, dtype: str, count: int) -> np.ndarray:
    if not count:  # nothing to map
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r", shape=(count,))
