"""Runs on data in buckets: prepared as runs on the same files of a disk."""

import numpy as np

from jaxformer import runs
from tests.runs import tiny

TEXTS = tiny.TEXTS


def test_data_are_those_of_a_disk(tmp_path, bucket):
    (tmp_path / "deep").mkdir()
    tiny.write_bodies(tmp_path / "a.jsonl", TEXTS[:30])
    tiny.write_bodies(tmp_path / "deep" / "b.jsonl", TEXTS[30:])
    for name in ("a.jsonl", "deep/b.jsonl"):
        (bucket / name).write_bytes((tmp_path / name).read_bytes())
    here, there = (
        runs.prepare_task(
            tiny.config_of_text(
                tmp_path,
                {
                    "paths": (f"{place}/deep/**/*.jsonl",), "field": "body",
                    "validation_paths": (f"{place}/a.jsonl",),
                },
            )
        )
        for place in (tmp_path, bucket)
    )  # fmt: skip
    assert there.summary == here.summary
    np.testing.assert_array_equal(there.train[""].tokens, here.train[""].tokens)
    np.testing.assert_array_equal(there.validation[""].tokens, here.validation[""].tokens)
