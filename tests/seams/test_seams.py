"""Runs read, write, print and start from what they did when golden.json was recorded."""

import pytest

from tests.seams.cases import CASES
from tests.seams.seams import golden


def test_every_case_is_recorded():
    assert golden().keys() == CASES.keys()


@pytest.mark.essential
@pytest.mark.parametrize("name", CASES)
def test_a_run_starts_as_recorded(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert CASES[name]() == golden()[name]


def test_where_data_is_changes_nothing_that_is_trained():
    """A run on much data has the batches and parameters of one whose data is in memory."""
    cases = golden()
    large = [name for name in cases if name.endswith(", on_disk")]
    for name in large:
        small = cases[name.replace("on_disk", "fresh")]
        assert {**cases[name], "printed": ()} == {**small, "printed": ()}
    assert len(large) == 11
