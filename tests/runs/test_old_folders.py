"""Run folders of an earlier version are opened, gone on with and converted."""

import json
import pathlib
import zipfile

import pytest

from jaxformer import runs
from jaxformer.runs import convert, open_run
from jaxformer.runs.tasks import old_splits
from jaxformer.text.sources.holdout import text_draws
from tests.runs.old_folders import ARCHIVE, KINDS, LOSSES, train
from tests.seams.cases import TEXTS, experiment


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


@pytest.mark.parametrize("kind", ["language model", "translation"], indirect=True)
def test_much_data_of_an_old_folder_keeps_the_split_by_hashes(kind, monkeypatch):
    """It had no exact share: a text was for validation where its number is below the fraction."""
    monkeypatch.setattr(old_splits, "_MUCH", 0)
    task = runs.prepare_task(experiment(*KINDS[kind]), folder=pathlib.Path("run"))
    if kind == "language model":
        files = [path.read_text() for path in sorted(pathlib.Path().glob("one*.txt"))]
        held_out = [one for one in (*files, *TEXTS[20:]) if text_draws(one.encode())[0] < 0.2]
        assert task.validation[""].num_bytes == sum(map(len, held_out)) > 0
        return
    held_out = {one for one in TEXTS if text_draws(one.encode())[0] < 0.2}
    stored = {source for source, _ in json.loads(pathlib.Path("run/validation.json").read_text())}
    assert set(task.validation.rows.sources) == stored
    trained = {task.model.decode(one["source_tokens"]) for one in task.train.examples}
    fit = {one for one in TEXTS if len(one.encode()) < task.max_len}
    assert trained == fit - held_out - stored
