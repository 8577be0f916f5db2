"""The cache: values that are made once, and stores that go on after a crash."""

import os
import threading

import numpy as np
import pytest

from jaxformer.errors import StorageError
from jaxformer.text.store.ragged import RaggedArray
from jaxformer.text.store.store import filled_store, remembered

ROWS = [np.arange(size, dtype=np.uint16) for size in (40, 3, 9)]
ARRAYS = {
    "tokens": RaggedArray.of(ROWS),
    "lengths": RaggedArray.of([np.int32(row.size) for row in ROWS]),
    "empty": RaggedArray.of([np.zeros(0, np.int16)]),
}


def parts(records):
    """The parts after those with these records, of three."""
    for index in range(len(records), 3):
        yield ARRAYS if index else {}, {"end": None if index == 2 else index}


def assert_whole(store):
    assert [record["end"] for record in store.records] == [0, 1, None]
    assert len(store.arrays["tokens"]) == 6 and len(store.arrays["empty"]) == 2
    for index, row in enumerate(2 * ROWS):
        np.testing.assert_array_equal(store.arrays["tokens"][index], row, strict=True)
        assert store.arrays["lengths"][index] == row.size


def test_arrays_of_all_parts_are_one_in_a_folder_and_in_memory(tmp_path):
    for folder in (tmp_path, tmp_path, None):
        store = filled_store(folder, parts)
        assert_whole(store)
        assert isinstance(store.arrays["tokens"].values, np.memmap) == (folder is not None)


@pytest.mark.parametrize("name", ["tokens.values", "tokens.starts", "parts.jsonl"])
def test_what_an_ended_process_left_is_cut_off(tmp_path, name):
    def ended(records):
        yield next(parts(records))
        yield ARRAYS, {"end": 1}
        with (tmp_path / name).open("ab") as file:
            file.write(b'{"end')
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        filled_store(tmp_path, ended)
    assert_whole(filled_store(tmp_path, parts))


def test_full_disk_loses_the_part_in_progress_alone(tmp_path, monkeypatch):
    writes = []

    def full(descriptor, write=os.fsync):
        writes.append(descriptor)
        if len(writes) == 7:
            raise OSError(28, "No space left on device")
        write(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        filled_store(tmp_path, parts)
    assert len((tmp_path / "parts.jsonl").read_text().splitlines()) == 2
    assert_whole(filled_store(tmp_path, parts))


def test_processes_fill_a_folder_once(tmp_path):
    filled, stores = [], []

    def slow(records):
        for part in parts(records):
            filled.append(part)
            threading.Event().wait(0.02)
            yield part

    threads = [
        threading.Thread(target=lambda: stores.append(filled_store(tmp_path, slow)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(filled) == 3
    for store in stores:
        assert_whole(store)


def test_value_is_made_once_and_a_full_disk_leaves_nothing_of_it(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match="cannot be written: No space left on device; free"):
            remembered(tmp_path / "a", lambda: [3, 5])
    assert list(tmp_path.iterdir()) == []
    for make in (lambda: [3, 5], None):
        assert remembered(tmp_path / "a", make) == [3, 5]
