"""The cache: values that are made once, and folders of arrays that are whole or made again."""

import os
import threading

import numpy as np
import pytest

from jaxformer.text.store.arrays import RaggedArray
from jaxformer.text.store.store import filled_store, remembered

ROWS = [np.arange(size, dtype=np.uint16) for size in (40, 3, 9)]
ARRAYS = {
    "tokens": RaggedArray.of(ROWS),
    "lengths": RaggedArray.of([np.int32(row.size) for row in ROWS]),
    "empty": RaggedArray.of([np.zeros(0, np.int16)]),
}


def fill(append):
    for arrays in ({}, ARRAYS, ARRAYS):
        append(arrays)
    return {"bytes": 7}


def assert_whole(store):
    arrays, record = store
    assert record == {"bytes": 7}
    assert len(arrays["tokens"]) == 6 and len(arrays["empty"]) == 2
    for index, row in enumerate(2 * ROWS):
        np.testing.assert_array_equal(arrays["tokens"][index], row, strict=True)
        assert arrays["lengths"][index] == row.size


def test_arrays_that_are_appended_are_one_in_a_folder_and_in_memory(tmp_path):
    for folder, function in ((tmp_path, fill), (tmp_path, None), (None, fill)):
        store = filled_store(folder, function)
        assert_whole(store)
        assert isinstance(store[0]["tokens"].values, np.memmap) == (folder is not None)


def test_what_an_ended_process_left_is_made_again(tmp_path):
    def ended(append):
        append(ARRAYS)
        raise KeyboardInterrupt

    draft = tmp_path / ".run.draft"
    draft.mkdir()
    (draft / "tokens.values").write_bytes(b"of a killed process")
    with pytest.raises(KeyboardInterrupt):
        filled_store(tmp_path, ended)
    assert_whole(filled_store(tmp_path, fill))
    assert not draft.exists()


def test_processes_fill_a_folder_once(tmp_path):
    fills, stores = [], []

    def slow(append):
        fills.append(1)
        threading.Event().wait(0.05)
        return fill(append)

    threads = [
        threading.Thread(target=lambda: stores.append(filled_store(tmp_path, slow)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fills) == 1
    for store in stores:
        assert_whole(store)


def test_value_is_made_once_and_a_full_disk_leaves_nothing_of_it(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device"):
            remembered(tmp_path / "a", lambda: [3, 5])
    assert list(tmp_path.iterdir()) == []
    for make in (lambda: [3, 5], None):
        assert remembered(tmp_path / "a", make) == [3, 5]
