"""Checkpoints that are damaged: found, named, passed over, and never in the way."""

import os
import pathlib
import shutil
import time

import numpy as np
import pytest

from jaxformer.errors import CheckpointError, CheckpointWarning, StorageError
from jaxformer.storage import read_manifest
from jaxformer.training import Checkpoints
from jaxformer.training.checkpoints import checkpoint_damage, manifest
from jaxformer.training.checkpoints import folder as checkpoints
from tests.training import saved


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Checkpoints of steps 1 to 3, of which 2 is the best."""
    folder = tmp_path_factory.mktemp("made") / "checkpoints"
    saved.save(folder, 1, 2, 3, losses=(3.0, 1.0, 2.0))
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return pathlib.Path(shutil.copytree(made, tmp_path / "checkpoints"))


def restore(folder, step=None):
    with Checkpoints(folder, read_only=True) as opened:
        return opened.restore_params(saved.state(0).params, step)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def exchange(one, two):
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)


DAMAGES = {
    "flipped bit": (lambda c: saved.flip(saved.data_file(c)), "params/.* is not the file"),
    "truncated": (lambda c: truncate(c / "params/_METADATA"), "params/_METADATA is not the file"),
    "missing": (lambda c: saved.data_file(c).unlink(), "params/.* is missing"),
    "exchanged": (
        lambda c: exchange(saved.data_file(c), saved.data_file(c.parent / "1")),
        "params/.* is not the file",
    ),
    "surplus": (lambda c: (c / "params/_extra").touch(), "params/_extra does not belong to it"),
    "surplus item": (lambda c: (c / "metrics").mkdir() or (c / "metrics/m").touch(), "metrics/m"),
    "link to a file": (
        lambda c: (
            (c / "meta/_METADATA").unlink() or (c / "meta/_METADATA").symlink_to("/etc/hosts")
        ),
        "meta/_METADATA is a link",
    ),
    "link to a folder": (
        lambda c: (
            shutil.move(c / "params", c.parent / "p") and (c / "params").symlink_to(c.parent / "p")
        ),
        "params is a link",
    ),
    "whole a link": (
        lambda c: shutil.move(c, c.parent / "other") and c.symlink_to(c.parent / "other"),
        "must be a folder, got a link",
    ),
    "whole a file": (lambda c: shutil.rmtree(c) or c.touch(), "must be a folder"),
    "of another step": (
        lambda c: shutil.rmtree(c) or shutil.copytree(c.parent / "1", c),
        "its manifest belongs to step 1",
    ),
    "no manifest": (lambda c: (c / "manifest.json").unlink(), "no manifest.json, like checkpoints"),
    "manifest": (lambda c: saved.flip(c / "manifest.json"), "manifest.json is damaged"),
    "deep manifest": (lambda c: (c / "manifest.json").write_text("[" * 10**5), "manifest.json"),
    "other layout": (
        lambda c: saved.sign(c, layout=9, jaxformer="7.1"),
        "jaxformer 7.1 wrote it in layout 9, but jaxformer .* reads layout 1",
    ),
    "loss": (lambda c: saved.sign(c, validation_loss="1"), "manifest has no validation_loss"),
    "handlers": (
        lambda c: saved.change_json(c / "_CHECKPOINT_METADATA", item_handlers={"params": "other"}),
        "_CHECKPOINT_METADATA is damaged: it does not describe a checkpoint",
    ),
    "times": (
        lambda c: saved.change_json(c / "_CHECKPOINT_METADATA", commit_timestamp_nsecs=1e300),
        "_CHECKPOINT_METADATA is damaged: it does not describe a checkpoint",
    ),
    "no metadata": (lambda c: (c / "_CHECKPOINT_METADATA").unlink(), "_CHECKPOINT_METADATA"),
}


@pytest.mark.parametrize(("damage", "named"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_checkpoint_is_named_passed_over_and_refused(folder, damage, named):
    damage(folder / "2")
    with pytest.warns(CheckpointWarning, match=rf"2 is damaged \(.*{named}.*\); it is ignored"):
        found = restore(folder)
    saved.assert_same(found, saved.state(3).params)
    with pytest.raises(CheckpointError, match=rf"2 is damaged \(.*{named}.*\); choose one of"):
        restore(folder, 2)


def test_refusal_names_the_good_ones_only(folder):
    for step in "23":
        saved.flip(saved.data_file(folder / step))
    with pytest.raises(CheckpointError, match=r"3 is damaged .*; choose one of the steps \[1\]"):
        restore(folder, 3)
    saved.assert_same(restore(folder, 1), saved.state(1).params)


def test_damaged_checkpoints_are_set_aside_and_saved_again(folder):
    saved.flip(saved.data_file(folder / "3"))
    (folder / "3.damaged").mkdir()
    with (
        pytest.warns(CheckpointWarning, match="3 is damaged .* it was renamed to 3.damaged-2"),
        Checkpoints(folder) as opened,
    ):
        assert opened.step_to_resume(5) == 2
        saved.assert_same(opened.restore(saved.state(0)), saved.state(2))
        opened.save(saved.state(3))
        opened.wait()
    assert checkpoint_damage(folder / "3") is None
    assert saved.data_file(folder / "3.damaged-2")
    saved.assert_same(restore(folder, 3), saved.state(3).params)


def test_damaged_checkpoint_that_cannot_be_renamed_is_an_error(folder, monkeypatch):
    def fail(*_):
        raise OSError(30, "Read-only file system")

    saved.flip(saved.data_file(folder / "3"))
    monkeypatch.setattr(pathlib.Path, "rename", fail)
    with pytest.raises(StorageError, match="3 is damaged and cannot be renamed: .*Read-only"):
        Checkpoints(folder)


def test_checkpoint_that_cannot_be_removed_stays(folder, monkeypatch):
    """And the ones that are kept are the same, so that a later save removes no more."""
    rename = os.rename

    def fail(source, target, **options):
        if str(target).endswith("1.old.orbax-checkpoint-tmp"):
            raise OSError(1, "Operation not permitted")
        rename(source, target, **options)

    monkeypatch.setattr(os, "rename", fail)
    with Checkpoints(folder, keep=2) as opened:
        opened.save(saved.state(4), 5.0)
        opened.wait()
    assert saved.steps(folder) == ["1", "2", "3", "4"] and checkpoint_damage(folder / "1") is None


def test_reading_only_changes_nothing(folder):
    saved.flip(saved.data_file(folder / "3"))
    before = saved.contents(folder)
    with Checkpoints(folder, read_only=True) as opened:
        assert (opened.latest_step, opened.best_step, opened.step_to_resume(5)) == (2, 2, 2)
    assert saved.contents(folder) == before


def test_all_damaged_is_an_error_and_no_fresh_start(folder):
    for step in "123":
        saved.flip(folder / step / "manifest.json")
    before = saved.steps(folder)
    with pytest.raises(CheckpointError, match=r"every checkpoint in .* is damaged \(step 3: "):
        Checkpoints(folder)
    with Checkpoints(folder, read_only=True) as opened:
        for ask in (lambda: opened.step_to_resume(9), opened.require_step):
            with pytest.raises(CheckpointError, match="every checkpoint in .* is damaged"):
                ask()
    assert saved.steps(folder) == before


def test_damaged_checkpoints_do_not_count_among_those_kept(folder):
    """Kept are the newest 2 that are good, the last of which is the best here."""
    with Checkpoints(folder, keep=2) as opened:
        saved.flip(folder / "3" / "manifest.json")
        opened.save(saved.state(4), 0.5)
        opened.wait()
        assert (opened.latest_step, opened.best_step) == (4, 4)
    assert saved.steps(folder) == ["2", "3", "4"]
    saved.flip(saved.data_file(folder / "4"))
    with pytest.warns(CheckpointWarning), Checkpoints(folder, keep=1) as opened:
        assert opened.latest_step == 2
        opened.save(saved.state(4), 5.0)
        opened.wait()
    assert saved.steps(folder) == ["2", "3.damaged", "4", "4.damaged"]


def test_manifest_is_complete_before_a_checkpoint_gets_its_name(tmp_path, monkeypatch):
    """Orbax changes nothing after the manifest is written but its own two files."""
    seen = []

    def write(folder, *about):
        manifest.write_checkpoint_manifest(folder, *about)
        seen.append((folder, sorted(os.listdir(tmp_path)), saved.contents(folder)))

    (tmp_path / "5.orbax-checkpoint-tmp").mkdir()  # of a killed process
    monkeypatch.setattr(checkpoints, "write_checkpoint_manifest", write)
    saved.save(tmp_path, 6, losses=(0.5,))
    ((folder, beside, before),) = seen
    assert folder == tmp_path / "6.orbax-checkpoint-tmp" and "6" not in beside
    after = saved.contents(tmp_path / "6")
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed == {"_CHECKPOINT_METADATA", "commit_success.txt"}
    about = read_manifest(tmp_path / "6" / "manifest.json").about
    assert (about["step"], about["validation_loss"], about["layout"]) == (6, 0.5, 1)


def test_checkpoint_whose_manifest_cannot_be_written_is_none(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    with Checkpoints(tmp_path) as opened:
        opened.save(saved.state(1))
        opened.wait()
        opened.raise_if_failed()
        monkeypatch.setattr(checkpoints, "write_checkpoint_manifest", fail)
        opened.save(saved.state(2))
        with pytest.raises(StorageError, match=r"No space left.*; free space"):
            saved.ask_until_failed(opened)
        assert opened.latest_step == 1
    assert saved.steps(tmp_path) == ["1"]


def test_failure_surfaces_at_the_end_too(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_checkpoint_manifest", fail)
    with pytest.raises(StorageError, match="No space left.*; free space"):
        saved_state = saved.state(1)
        with Checkpoints(tmp_path) as opened:
            opened.save(saved_state)


def test_what_a_crash_leaves_of_a_removed_checkpoint_is_no_damage(folder, monkeypatch):
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with Checkpoints(folder, keep=1) as opened:
        opened.save(saved.state(4))
        opened.wait()
    monkeypatch.undo()
    assert "1.old.orbax-checkpoint-tmp" in saved.steps(folder)
    saved.save(folder, 5)
    assert saved.steps(folder) == ["2", "4", "5"]


HUGE = 7 * 2**40


def huge(old, new):
    """Change of a header of the parameters, to terabytes."""
    return lambda c: saved.change_header(c / "params", "kernel", old, new % HUGE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: (c / "params/_METADATA").write_text("[" * 10**5), "cannot be read"),
        (lambda c: (c / "params/_METADATA").write_text("{}"), "cannot be read|params is empty"),
        (huge(b'"chunk_shape":[7]', b'"chunk_shape":[%d]'), rf"its chunks have \({HUGE},\)"),
        (huge(b'"shape":[7]', b'"shape":[%d]'), rf"kernel is \(\({HUGE},\), .* expects \(\(7,\)"),
        (lambda c: (c / "params/_sharding").write_bytes(b" " * (2**26 + 1)), "more than 67,108,"),
    ],
)
def test_headers_of_strangers_are_refused_before_anything_is_loaded(folder, change, message):
    change(folder / "2")
    saved.sign(folder / "2")
    with pytest.raises(CheckpointError, match=message):
        restore(folder, 2)


def test_larger_arrays_than_expected_are_refused(folder):
    with Checkpoints(folder) as opened:
        opened.save(saved.state(4, size=11))
        opened.wait()
    with pytest.raises(CheckpointError, match=r"kernel is \(\(11,\), 'float32'\), the model"):
        restore(folder, 4)


def test_asking_for_a_failure_takes_microseconds(tmp_path):
    with Checkpoints(tmp_path) as opened:
        opened.save(saved.state(1))
        taken = []
        for _ in range(2000):
            start = time.perf_counter()
            opened.raise_if_failed()
            taken.append(time.perf_counter() - start)
    assert np.median(taken) < 1e-3


def test_save_of_a_link_is_refused(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    for read_only in (False, True):
        with pytest.raises(CheckpointError, match="link is a link"):
            Checkpoints(tmp_path / "link", read_only=read_only)
