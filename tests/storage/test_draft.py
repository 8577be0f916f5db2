import errno
import os

import pytest

from jaxformer.errors import CheckpointError, StorageError
from jaxformer.runs.folder import files
from jaxformer.storage.draft import DRAFT, discard_draft, drafted


def fill(folder, *, fail_at=None, monkeypatch=None):
    """Fills a folder with three files; dies as by SIGKILL before a move, where that is given."""

    class Killed(BaseException):
        pass

    rename, moved = os.rename, []

    def dying(source, target):
        if len(moved) == fail_at:
            # What `finally` clauses do must not happen either.
            monkeypatch.setattr("jaxformer.storage.draft.discard_draft", lambda *_, **__: None)
            raise Killed
        moved.append(target.name)
        rename(source, target)

    if monkeypatch is not None:
        monkeypatch.setattr(os, "rename", dying)
    try:
        with drafted(folder, last="config.toml") as draft:
            for name in ("config.toml", "data.json", "tokenizer.json"):
                (draft / name).write_text(name)
            (draft / "more").mkdir()
            (draft / "more" / "file").write_text("more")
    except Killed:
        pass
    finally:
        if monkeypatch is not None:
            monkeypatch.undo()
    return moved


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_all_files_move_and_the_last_one_last(tmp_path, monkeypatch):
    moved = fill(tmp_path, monkeypatch=monkeypatch)
    assert sorted(moved) == names(tmp_path)
    assert moved[-1] == "config.toml" and len(moved) == 4


@pytest.mark.parametrize("killed_before", range(4))
def test_start_that_was_killed_is_taken_back(tmp_path, monkeypatch, killed_before):
    fill(tmp_path, fail_at=killed_before, monkeypatch=monkeypatch)
    assert len(names(tmp_path)) == 1 + killed_before and not files.is_run(tmp_path)
    files.require_free(tmp_path)  # what is there is ours
    discard_draft(tmp_path, last="config.toml")
    assert names(tmp_path) == []


def test_killed_behind_the_last_move_the_folder_is_whole(tmp_path):
    fill(tmp_path)
    (tmp_path / DRAFT).mkdir()
    (tmp_path / DRAFT / "moves.json").write_text('["data.json", "config.toml"]')
    files.tidy(tmp_path)
    assert names(tmp_path) == ["config.toml", "data.json", "more", "tokenizer.json"]


def test_files_of_others_stay(tmp_path, monkeypatch):
    fill(tmp_path, fail_at=2, monkeypatch=monkeypatch)
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"it has thesis\.txt"):
        files.require_free(tmp_path)
    files.tidy(tmp_path)
    assert names(tmp_path) == ["thesis.txt"]


@pytest.mark.parametrize("listed", ['["../beside.txt"]', '[".."]', '{"a": 1}', "[1]", "[" * 10**5])
def test_list_of_moves_names_nothing_outside_of_the_folder(tmp_path, listed):
    (tmp_path / "beside.txt").write_text("mine")
    folder = tmp_path / "run"
    (folder / DRAFT).mkdir(parents=True)
    (folder / DRAFT / "moves.json").write_text(listed)
    (folder / "a").write_text("mine")  # which a list of names alone could take for ours
    files.tidy(folder)
    assert names(tmp_path) == ["beside.txt", "run"] and names(folder) == ["a"]


def test_exception_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), drafted(tmp_path, last="config.toml") as draft:
        (draft / "data.json").touch()
        raise RuntimeError
    assert names(tmp_path) == []


def test_all_is_on_disk_before_anything_moves(tmp_path, monkeypatch):
    """And every move before the last one, whatever a power cut leaves."""
    done, fsync, rename = [], os.fsync, os.rename

    def syncing(descriptor):
        fsync(descriptor)
        done.append(os.stat(descriptor).st_ino)

    def moving(source, target):
        done.append(target.name)
        rename(source, target)

    with drafted(tmp_path, last="config.toml") as draft:
        (draft / "more").mkdir()
        for name in ("config.toml", "data.json", "more/file"):
            (draft / name).write_text(name)
        made = {path.stat().st_ino for path in (draft, *draft.rglob("*"))}
        monkeypatch.setattr(os, "fsync", syncing)
        monkeypatch.setattr(os, "rename", moving)
    moves = [index for index, what in enumerate(done) if isinstance(what, str)]
    assert [done[index] for index in moves] == ["data.json", "more", "config.toml"]
    assert made <= set(done[: moves[0]])
    folder = tmp_path.stat().st_ino
    assert done[moves[-1] - 1] == folder == done[-1] and moves[-1] == len(done) - 2


def test_file_that_cannot_be_put_on_disk_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(StorageError, match="Input/output error"):
        with drafted(tmp_path, last="config.toml") as draft:
            (draft / "config.toml").touch()
            unsound, fsync = (draft / "config.toml").stat().st_ino, os.fsync

            def failing(descriptor):
                if os.stat(descriptor).st_ino == unsound:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                fsync(descriptor)

            monkeypatch.setattr(os, "fsync", failing)
    assert names(tmp_path) == []
