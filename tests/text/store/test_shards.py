"""Shards that are damaged are named, whatever they hold."""

import json
import os

import numpy as np
import pytest

from jaxformer.errors import DataError, StorageError
from jaxformer.text.store.ragged import RaggedArray
from jaxformer.text.store.shards import filled_store, remembered

ROWS = [np.arange(size, dtype=np.uint16) for size in (40, 3, 9)]
ARRAYS = {
    "tokens": RaggedArray.of(ROWS),
    "lengths": RaggedArray.of([np.int32(row.size) for row in ROWS]),
}


def shards(records):
    """The shards after those with these records, of three."""
    for index in range(len(records), 3):
        yield ARRAYS, {"end": None if index == 2 else index}


def of_another_folder(path):
    path.write_text(json.dumps({**json.loads(path.read_text()), "folder": "other"}))


def test_arrays_of_all_shards_are_read_as_one(tmp_path):
    store = filled_store(tmp_path / "cache", shards)
    assert [record["end"] for record in store.records] == [0, 1, None]
    for index, row in enumerate(3 * ROWS):
        np.testing.assert_array_equal(store.arrays["tokens"][index], row)
        assert store.arrays["lengths"][index] == row.size


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("00001.tokens.npy", os.unlink, r"00001.tokens.npy' cannot be read \(.*\); remove that"),
        ("00001.tokens.npy", lambda path: os.truncate(path, 140), "tokens.npy' cannot be read"),
        ("00001.lengths.npy", lambda path: os.truncate(path, 130), "lengths.npy' cannot be read"),
        (
            "00000.tokens.starts.npy",
            lambda path: np.save(path, np.arange(99)),
            r"must have 3 numbers, got \(99,\);",
        ),
        (
            "00000.lengths.npy",
            lambda path: np.save(path, np.arange(11)),
            r"must have 3 numbers, got \(11,\);",
        ),
        (
            "00000.tokens.npy",
            lambda path: np.save(path, np.arange(1)),
            r"must have 52 numbers, got \(1,\);",
        ),
        ("00001.json", lambda path: path.write_text("{"), "00001.json' is damaged: .*; remove"),
        ("00001.json", of_another_folder, "00001.json' belongs to other text or another tokenizer"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, damage, message):
    folder = tmp_path / "cache"
    filled_store(folder, shards)
    damage(folder / name)
    with pytest.raises(DataError, match=message):
        filled_store(folder, shards)


@pytest.mark.parametrize("moment", [0, 4, 7, 11])
def test_two_may_write_at_once(tmp_path, monkeypatch, moment):
    """The other process does all of its work right before a file of the first is put in place."""
    replace, targets = os.replace, []

    def interleaved(source, target):
        targets.append(target)
        if len(targets) == moment + 1:
            filled_store(tmp_path, shards)
        replace(source, target)

    monkeypatch.setattr(os, "replace", interleaved)
    store = filled_store(tmp_path, shards)
    assert len(targets) > len(set(targets)) == len(list(tmp_path.iterdir()))
    for index, row in enumerate(3 * ROWS):
        np.testing.assert_array_equal(store.arrays["tokens"][index], row)


def value(stem, make=lambda: ROWS[0]):
    return remembered(
        stem, make, lambda row: ({"row": RaggedArray(row)}, {"n": 3}),
        lambda arrays, record: arrays["row"].values[: record["n"] + 99],
    )  # fmt: skip


def flip(data, index):
    return data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]


@pytest.mark.parametrize("name", ["a.row.npy", "a.json"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:5],
        lambda data: data[:-1],
        lambda data: b"PK\x03\x04" + data,
        lambda data: flip(data, 15),
        lambda data: flip(data, -2),
        lambda data: bytes(len(data)),
    ],
)
def test_what_is_remembered_is_made_again_if_it_is_damaged(tmp_path, name, damage):
    value(tmp_path / "a")
    np.testing.assert_array_equal(value(tmp_path / "a", make=None), ROWS[0])
    intact = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(damage(intact))
    np.testing.assert_array_equal(value(tmp_path / "a"), ROWS[0])
    assert (tmp_path / name).read_bytes() == intact


@pytest.mark.parametrize("calls_before", [0, 1])
def test_full_disk_leaves_nothing_that_is_remembered(tmp_path, monkeypatch, calls_before):
    calls, sync = [], os.fsync

    def full(file):
        calls.append(file)
        if len(calls) > calls_before:
            raise OSError(28, "No space left on device")
        sync(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="cannot be written: No space left on device; free"):
        value(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
