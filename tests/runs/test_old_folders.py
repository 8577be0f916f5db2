"""Run folders of an earlier version are opened, gone on with and converted."""

import json
import pathlib
import zipfile

import pytest

from jaxformer.runs import convert, open_run
from tests.runs.old_folders import ARCHIVE, KINDS, LOSSES, train


@pytest.fixture(params=KINDS)
def kind(request, tmp_path, monkeypatch):
    """A kind, whose folder is "run" in the current folder."""
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(ARCHIVE) as archive:
        wanted = f"{request.param}/", "model/"  # the base of what is adapted
        archive.extractall(
            tmp_path, [name for name in archive.namelist() if name.startswith(wanted)]
        )
    pathlib.Path(request.param).rename("run")
    return request.param


def test_an_old_folder_is_opened_measured_and_resumed(kind):
    with zipfile.ZipFile(ARCHIVE) as archive:
        expected = json.loads(archive.read(LOSSES))[kind]
    lines = pathlib.Path("run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    last = [one for one in map(json.loads, lines) if "validation_loss" in one][-1]
    found = open_run("run", step=2).evaluate().loss
    assert found == pytest.approx(last["validation_loss"], rel=1e-5)
    assert train(kind, 3) == pytest.approx(expected, rel=1e-5)


def test_an_old_folder_is_converted(kind):
    assert "wrote the parameters to" in convert("run", "params.safetensors")
