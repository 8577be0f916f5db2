"""Stores: filled part by part, gone on with after a crash, and named if they are damaged."""

import json
import os
import threading

import numpy as np
import pytest

from jaxformer.errors import DataError, StorageError
from jaxformer.text.store import store as store_module
from jaxformer.text.store.ragged import RaggedArray
from jaxformer.text.store.remembered import remembered
from jaxformer.text.store.store import filled_store

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
    with pytest.raises(StorageError, match="cannot be written: No space left on device"):
        filled_store(tmp_path, parts)
    assert len((tmp_path / "parts.jsonl").read_text().splitlines()) == 2
    assert_whole(filled_store(tmp_path, parts))


def test_processes_fill_a_folder_once_and_say_that_they_wait(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(store_module, "_SILENT", 0.01)
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
    assert caplog.messages == 2 * [f"waiting for another process, which prepares {tmp_path}"]
    for store in stores:
        assert_whole(store)


def without_arrays(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({"end": line["end"]}) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("tokens.values", os.unlink, "tokens.values' cannot be read .*; remove that folder"),
        ("tokens.values", lambda path: os.truncate(path, 9), "must have 208 bytes, got 9; remove"),
        ("tokens.starts", lambda path: path.write_bytes(b"0" * 99), "must have 48 bytes, got 99;"),
        ("parts.jsonl", lambda path: path.write_text("{\n"), "parts.jsonl' is damaged: .*; rem"),
        ("parts.jsonl", without_arrays, "parts.jsonl' is damaged"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, damage, message):
    filled_store(tmp_path, parts)
    damage(tmp_path / name)
    with pytest.raises(DataError, match=message):
        filled_store(tmp_path, parts)


def value(stem, make=lambda: (3, 5)):
    return remembered(stem, make, list, tuple)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: bytes(len(data)),
        lambda data: b"\xff" + data,
    ],
)
def test_what_is_remembered_is_made_again_if_it_is_damaged(tmp_path, damage):
    assert value(tmp_path / "a") == value(tmp_path / "a", make=None) == (3, 5)
    intact = (tmp_path / "a.json").read_bytes()
    (tmp_path / "a.json").write_bytes(damage(intact))
    assert value(tmp_path / "a") == (3, 5)
    assert (tmp_path / "a.json").read_bytes() == intact


def test_full_disk_leaves_nothing_that_is_remembered(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="cannot be written: No space left on device; free"):
        value(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
