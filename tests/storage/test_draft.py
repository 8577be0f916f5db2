"""Folders that are filled from a draft, in an order."""

import os
import shutil

import pytest

from jaxformer.errors import CheckpointError
from jaxformer.runs.folder import files
from jaxformer.storage import DRAFT, Manifest, drafted, write_manifest


def fill(folder, monkeypatch, *, fail_at=None):
    """Fills a folder as a run is started; dies before a move, where that is given."""

    class Killed(BaseException):
        pass

    replace, moved = os.replace, []

    def dying(source, target):
        if len(moved) == fail_at:
            # What is done at the end must not happen either.
            monkeypatch.setattr(shutil, "rmtree", lambda path: None)
            raise Killed
        moved.append(target.name)
        replace(source, target)

    folder.mkdir(exist_ok=True)
    try:
        with drafted(folder, first="manifest.json", last="config.toml") as draft:
            for name in ("config.toml", "data.json", "tokenizer.json"):
                (draft / name).write_text(name)
            (draft / "more").mkdir()
            (draft / "more" / "file").write_text("more")
            write_manifest(draft / "manifest.json", Manifest.of(draft, {}))
            monkeypatch.setattr(os, "replace", dying)
    except Killed:
        pass
    monkeypatch.undo()
    return moved


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_all_files_move_in_order(tmp_path, monkeypatch):
    moved = fill(tmp_path, monkeypatch)
    assert sorted(moved) == names(tmp_path) and len(moved) == 5
    assert (moved[0], moved[-1]) == ("manifest.json", "config.toml")


@pytest.mark.parametrize("killed_before", range(5))
def test_start_that_was_killed_is_taken_back(tmp_path, monkeypatch, killed_before):
    fill(tmp_path / "run", monkeypatch, fail_at=killed_before)
    assert len(names(tmp_path / "run")) == 1 + killed_before and not files.is_run(tmp_path / "run")
    files.require_free(tmp_path / "run")  # what is there is ours
    files.tidy(tmp_path / "run")
    assert names(tmp_path / "run") == [DRAFT]  # which the next one replaces
    fill(tmp_path / "run", monkeypatch)
    assert files.is_run(tmp_path / "run") and DRAFT not in names(tmp_path / "run")


def test_files_of_others_stay(tmp_path, monkeypatch):
    fill(tmp_path, monkeypatch, fail_at=2)
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"it has thesis\.txt"):
        files.require_free(tmp_path)
    files.tidy(tmp_path)
    assert names(tmp_path) == [DRAFT, "thesis.txt"]


@pytest.mark.parametrize("path", ["../beside.txt", "..", "./a", ""])
def test_manifest_of_a_start_names_nothing_outside_of_the_folder(tmp_path, path):
    (tmp_path / "beside.txt").write_text("mine")
    (folder := tmp_path / "run").mkdir()
    write_manifest(folder / "manifest.json", Manifest({}, {path: ("",)}))
    files.tidy(folder)
    assert names(tmp_path) == ["beside.txt", "run"]


def test_exception_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), drafted(tmp_path, last="config.toml") as draft:
        (draft / "data.json").touch()
        raise RuntimeError
    assert names(tmp_path) == []
