"""The cache: values of JSON, and folders of flat arrays. Each is complete, or made again."""

import collections
import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxformer.storage import append, drafted, make_folder, write_whole
from jaxformer.text.store.arrays import RaggedArray

Arrays = Mapping[str, RaggedArray]

_MANIFEST = "store.json"


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


def filled_store(
    folder: pathlib.Path | None, fill: Callable[[Callable[[Arrays], None]], Any]
) -> tuple[dict[str, RaggedArray], Any]:
    """Maps the arrays of a folder, by name; `fill` fills it once, with a function that appends.

    `fill` returns a value of JSON, which is stored, too. Of several processes, one fills a folder,
    and the others wait. None keeps the arrays in memory.
    """
    if folder is None:
        memory = collections.defaultdict[str, bytearray](bytearray)
        sizes, record = _filled(fill, lambda name, data: memory[name].extend(data))
        flat = {name: np.frombuffer(memory[name], dtype) for name, (dtype, _) in sizes.items()}
        return _ragged(flat), record
    if not (folder / _MANIFEST).exists():
        import filelock

        make_folder(folder)
        with filelock.FileLock(folder / "lock"):
            if not (folder / _MANIFEST).exists():  # another process may have filled it
                with drafted(folder, last=_MANIFEST) as draft:
                    contents = _filled(fill, lambda name, data: append(draft / name, data))
                    append(draft / _MANIFEST, json.dumps(contents).encode())
    sizes, record = json.loads((folder / _MANIFEST).read_bytes())
    return _ragged({name: _map(folder / name, *size) for name, size in sizes.items()}), record


def _filled(
    fill: Callable[[Callable[[Arrays], None]], Any], write: Callable[[str, bytes], None]
) -> tuple[dict[str, tuple[str, int]], Any]:
    """Dtype and number of elements of each flat array that was written, and the record."""
    sizes: dict[str, tuple[str, int]] = {}

    def write_flat(name: str, numbers: np.ndarray) -> None:
        write(name, numbers.tobytes())
        sizes[name] = numbers.dtype.str, sizes.get(name, ("", 0))[1] + numbers.size

    def append_arrays(arrays: Arrays) -> None:
        for name, array in arrays.items():
            values = f"{name}.values"
            if array.offsets is not None:
                write_flat(f"{name}.starts", array.offsets + sizes.get(values, ("", 0))[1])
            write_flat(values, np.asarray(array.values))

    record = fill(append_arrays)
    return sizes, record


def _ragged(flat: Mapping[str, np.ndarray]) -> dict[str, RaggedArray]:
    names = [name.removesuffix(".values") for name in flat if name.endswith(".values")]
    return {name: RaggedArray(flat[f"{name}.values"], flat.get(f"{name}.starts")) for name in names}


def _map(path: pathlib.Path, dtype: str, count: int) -> np.ndarray:
    if not count:  # nothing to map
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r", shape=(count,))
