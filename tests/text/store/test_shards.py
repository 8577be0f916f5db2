"""Shards that are damaged are named, whatever they hold."""

import json
import os

import numpy as np
import pytest

from jaxformer.errors import DataError
from jaxformer.text.store.ragged import RaggedArray
from jaxformer.text.store.shards import filled_store

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
