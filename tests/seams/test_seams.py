"""Runs read, write, print and start from what they did when golden.json was recorded."""

import pytest

from tests.seams.cases import CASES
from tests.seams.seams import golden


def test_every_case_is_recorded():
    assert golden().keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_run_starts_as_recorded(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert CASES[name]() == golden()[name]
