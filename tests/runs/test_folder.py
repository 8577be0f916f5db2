"""The files of a run folder besides its checkpoints: made whole, changed whole, verified."""

import dataclasses
import errno
import os

import pytest

from jaxformer import runs, storage
from jaxformer.errors import CheckpointError
from jaxformer.runs.folder import files
from jaxformer.runs.folder.files import DataSummary, folder_damage, read_run_config
from jaxformer.storage import write_json
from tests.runs import tiny


def config(folder):
    data = {"source": "files", "paths": (str(folder / "text.txt"),)}
    return tiny.config(folder, architecture="decoder", data=data)


def write(folder):
    write_json(folder / "validation.json", ["a text"])
    (folder / "parts").mkdir()
    (folder / "parts" / "own.bin").write_bytes(b"of a task of one's own")


def start(folder, name="run"):
    run_config = dataclasses.replace(config(folder), out=str(folder / name))
    files.start_folder(folder / name, run_config, DataSummary("abc", 3), write)
    return folder / name


@pytest.fixture
def run(tmp_path):
    return start(tmp_path)


def test_files_are_covered_and_what_grows_is_not(run, tmp_path):
    assert read_run_config(run) == config(tmp_path)
    assert set(storage.read_manifest(run / "manifest.json").files) == {
        "config.toml", "data.json", "validation.json", "parts/own.bin",
    }  # fmt: skip
    for name in ("metrics.jsonl", "samples.txt", "loss.png", "notes.txt"):
        (run / name).write_text("grows")
    (run / "tensorboard").mkdir()
    (run / "a link").symlink_to("/etc/hosts")
    assert folder_damage(run) is None


def test_a_run_is_removed_without_files_that_are_no_part_of_it(run):
    for name in ("lock", "metrics.jsonl", "notes.txt"):
        (run / name).write_text("")
    files.remove_run(run)
    assert sorted(path.name for path in run.iterdir()) == ["lock", "notes.txt"]


def link(path):
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda run: (run / "config.toml").write_text("steps = 1"),
            "config.toml is not the file .*settings of a run, use flags",
        ),
        (lambda run: (run / "data.json").write_text("{}"), "data.json is not .*restore that file"),
        (lambda run: link(run / "parts"), "parts/own.bin is missing"),
        (lambda run: (run / "manifest.json").unlink(), "manifest.json cannot be read: No such"),
    ],
)
def test_damaged_folder_is_one_clear_error(run, damage, message):
    damage(run)
    with pytest.raises(CheckpointError, match=f"run is damaged: .*{message}"):
        read_run_config(run)
    assert runs.verify_run(run)["run folder"] is not None


def longer(folder):
    return tiny.change(config(folder), training={"steps": 99})


@pytest.mark.parametrize("survived", [0, 1, 2])
def test_config_is_old_or_new_whenever_its_change_is_cut_off(run, tmp_path, monkeypatch, survived):
    replace, done = os.replace, []

    def cut_off(*paths):
        if len(done) == survived:
            raise OSError(errno.ENOSPC, "No space left on device")
        done.append(paths)
        replace(*paths)

    monkeypatch.setattr(os, "replace", cut_off)
    with pytest.raises(OSError, match="No space left on device"):
        files.update_config(run, longer(tmp_path))
    monkeypatch.undo()
    assert read_run_config(run).training.steps == (20 if survived < 2 else 99)
    files.update_config(run, longer(tmp_path))
    assert read_run_config(run).training.steps == 99
    assert len(storage.read_manifest(run / "manifest.json").files["config.toml"]) == 1
