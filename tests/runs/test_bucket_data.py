"""Runs on data in buckets: prepared and resumed as runs on the same files of a disk."""

import numpy as np
import pytest

from jaxformer import runs
from jaxformer.config import MixtureSourceConfig
from tests.runs import tiny

TEXTS = tiny.TEXTS


@pytest.fixture
def folders(tmp_path, bucket):
    """A folder with two files, and one in a bucket with the same."""
    (tmp_path / "deep").mkdir()
    tiny.write_bodies(tmp_path / "a.jsonl", TEXTS[:30])
    tiny.write_bodies(tmp_path / "deep" / "b.jsonl", TEXTS[30:])
    for name in ("a.jsonl", "deep/b.jsonl"):
        (bucket / name).write_bytes((tmp_path / name).read_bytes())
    return tmp_path, bucket


def experiment(folder, data, **changes):
    return tiny.config_of_text(folder, {"field": "body"} | data, **changes)


def mixture(place):
    named = {"one": f"{place}/*.jsonl", "two": f"{place}/deep/b.jsonl"}
    return tuple(
        MixtureSourceConfig(name=name, paths=(path,), weight=1.0, field="body")
        for name, path in named.items()
    )


DATA = {
    "pattern": lambda place: {"paths": (f"{place}/**/*.jsonl",)},
    "validation": lambda place: {
        "paths": (f"{place}/a.jsonl",), "validation_paths": (f"{place}/deep/*.jsonl",),
    },
    "mixture": lambda place: {"mixture": mixture(place), "field": "text"},
}  # fmt: skip


@pytest.mark.parametrize("kind", DATA)
def test_data_are_those_of_a_disk(folders, kind):
    here, there = (
        runs.prepare_task(experiment(folders[0], DATA[kind](place))) for place in folders
    )
    assert there.summary == here.summary
    for name, stream in here.train.items():
        np.testing.assert_array_equal(there.train[name].tokens, stream.tokens)
    for name, stream in here.validation.items():
        np.testing.assert_array_equal(there.validation[name].tokens, stream.tokens)
