"""Run folders that are damaged, of something else, or of another run."""

import os
import pathlib
import shutil
import threading

import pytest

from jaxformer.cli import main
from jaxformer.storage.lock import run_lock
from jaxformer.training import read_metrics
from tests.cli.commands import one_line, output, truncate, write_config
from tests.training import saved


@pytest.mark.parametrize("name", ["thesis.txt", "data.json", "tokenizer.json", "validation.json"])
def test_folder_of_something_else_is_left_alone_whatever_its_files_are_called(
    tmp_path, capsys, name
):
    config = write_config(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("years of work")
    error = one_line(capsys, "train", config)
    assert "not a run folder" in error and name in error
    assert [path.name for path in (tmp_path / "run").iterdir()] == [name]
    assert (tmp_path / "run" / name).read_text() == "years of work"


def test_folder_that_is_no_run_cannot_be_used_or_resumed(tmp_path, capsys, monkeypatch):
    for command in ("evaluate", "verify"):
        assert "is not a run folder: it has no config.toml" in one_line(capsys, command, tmp_path)
    error = one_line(capsys, "train", tmp_path)
    assert "is a folder, but not a run: it has no config.toml" in error
    assert f"jaxformer train CONFIG --init-from {tmp_path}" in error
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()  # the built-in config is still meant
    error = one_line(capsys, "train", "quickstart", "--seed", "x")
    assert "flags: seed must be an integer" in error


def test_second_training_is_refused_before_it_reads_data(tmp_path, capsys):
    config, held, end = write_config(tmp_path), threading.Event(), threading.Event()
    (tmp_path / "text.txt").unlink()

    def hold():
        with run_lock(tmp_path / "run"):
            held.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(10)
        assert f"is being trained by process {os.getpid()} on" in one_line(capsys, "train", config)
    finally:
        end.set()
        thread.join()
    assert "text.txt" in one_line(capsys, "train", config)
    assert not (tmp_path / "run").exists()


def test_run_of_another_config_is_left_alone(trained, capsys):
    folder = trained[0]
    before = (folder / "run" / "config.toml").read_bytes()
    error = one_line(capsys, "train", folder / "tiny.toml", "--optimizer.learning-rate", "0.1")
    assert "optimizer.learning_rate: 0.03 there, 0.1 now" in error
    assert f"NEW: from scratch, or from its weights with --init-from {folder / 'run'}" in error
    assert (folder / "run" / "config.toml").read_bytes() == before


def test_refused_command_changes_no_file(trained, capsys):
    folder = trained[0] / "run"
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    config = trained[0] / "tiny.toml"
    error = one_line(capsys, "train", config, "--training.steps", "4")
    assert "already been trained to step 20, got steps=4" in error
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


@pytest.fixture
def run(trained, tmp_path):
    """A copy of a run with checkpoints of steps 10 and 20, of which that of step 20 is the best."""
    return pathlib.Path(shutil.copytree(trained[0] / "run", tmp_path / "run"))


def test_verify_names_all_that_is_damaged(run, capsys):
    assert output(capsys, "verify", run).out == (
        "run folder: good\ncheckpoints/10: good\ncheckpoints/20: good\n"
    )
    saved.flip(saved.data_file(run / "checkpoints" / "10"))
    truncate(run / "tokenizer.json")
    with pytest.raises(SystemExit) as stopped:
        main(["verify", str(run)])
    assert stopped.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("run folder: damaged: tokenizer.json is not the file that was wri")
    assert lines[1].startswith("checkpoints/10: damaged: params/d/")
    assert lines[2] == "checkpoints/20: good"


@pytest.mark.essential
def test_damaged_checkpoint_is_passed_over_with_a_line(run, capsys):
    saved.flip(saved.data_file(run / "checkpoints" / "20"))
    printed = output(capsys, "generate", run, "the c", "--max-new-tokens", "2")
    assert printed.out.startswith("the c")
    assert printed.err.count("\n") == 1
    assert "checkpoints/20 is damaged" in printed.err and "using step 10 instead" in printed.err
    refused = one_line(capsys, "generate", run, "the c", "--step", "20")
    assert "choose one of the steps [10]" in refused


def test_training_goes_on_from_the_newest_good_checkpoint(trained, run, capsys):
    before = {record["step"]: record for record in read_metrics(run) if "grad_norm" in record}
    saved.flip(saved.data_file(run / "checkpoints" / "20"))
    printed = output(capsys, "train", run)  # which has been moved
    assert "resuming at step 10 of 20" in printed.out
    assert printed.err.count("\n") == 1 and "using step 10 instead" in printed.err
    after = {record["step"]: record for record in read_metrics(run) if "grad_norm" in record}
    assert sorted(after) == [5, 10, 15, 20]
    assert all(after[step]["loss"] == before[step]["loss"] for step in after)
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert names == ["10", "20"]
