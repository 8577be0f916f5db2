"""Checkpoints that are damaged: found, named, passed over, and never in the way."""

import os
import pathlib
import shutil

import pytest

from jaxformer.errors import CheckpointError, CheckpointWarning
from jaxformer.storage import read_manifest
from jaxformer.training import Checkpoints
from jaxformer.training.checkpoints import checkpoint_damage, manifest
from jaxformer.training.checkpoints import folder as checkpoints
from tests.training import saved


@pytest.fixture(scope="module")
def three_checkpoints(tmp_path_factory):
    """Checkpoints of steps 1 to 3, of which 2 is the best."""
    folder = tmp_path_factory.mktemp("made") / "checkpoints"
    saved.save(folder, 1, 2, 3, losses=(3.0, 1.0, 2.0))
    return folder


@pytest.fixture
def folder(three_checkpoints, tmp_path):
    return pathlib.Path(shutil.copytree(three_checkpoints, tmp_path / "checkpoints"))


def restore(folder, step=None):
    with Checkpoints(folder, read_only=True) as opened:
        return opened.restore_params(saved.state(0).params, step)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def exchange(path, other):
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


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
    "of another step": (
        lambda c: shutil.rmtree(c) or shutil.copytree(c.parent / "1", c),
        "its manifest belongs to step 1",
    ),
    "no manifest": (lambda c: (c / "manifest.json").unlink(), "manifest.json cannot be read"),
    "manifest": (lambda c: saved.flip(c / "manifest.json"), "manifest.json is damaged"),
    "deep manifest": (lambda c: (c / "manifest.json").write_text("[" * 10**5), "manifest.json"),
}


@pytest.mark.parametrize(("damage", "named"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_checkpoint_is_named_passed_over_and_refused(folder, damage, named):
    damage(folder / "2")
    with pytest.warns(CheckpointWarning, match=rf"2 is damaged \(.*{named}.*\); using step 3"):
        params = restore(folder)
    saved.assert_same(params, saved.state(3).params)
    with pytest.raises(CheckpointError, match=rf"2 is damaged \(.*{named}.*\); choose one of"):
        restore(folder, 2)


def test_refusal_names_the_others(folder):
    saved.flip(folder / "2" / "manifest.json")
    saved.flip(saved.data_file(folder / "3"))
    with pytest.raises(CheckpointError, match=r"3 is damaged .*; choose one of the steps \[1\]"):
        restore(folder, 3)
    saved.assert_same(restore(folder, 1), saved.state(1).params)


def test_damaged_checkpoint_is_left_alone_until_its_step_is_saved_again(folder):
    saved.flip(saved.data_file(folder / "3"))
    before = saved.contents(folder)
    with (
        pytest.warns(CheckpointWarning, match="3 is damaged .* using step 2 instead"),
        Checkpoints(folder) as opened,
    ):
        assert opened.step_to_resume(5) == 2
        saved.assert_same(opened.restore(saved.state(0)), saved.state(2))
        assert saved.contents(folder) == before
        opened.save(saved.state(3))
        opened.wait()
    assert checkpoint_damage(folder / "3") is None
    saved.assert_same(restore(folder, 3), saved.state(3).params)


def test_reading_only_changes_nothing(folder):
    saved.flip(saved.data_file(folder / "3"))
    before = saved.contents(folder)
    with Checkpoints(folder, read_only=True) as opened:
        assert (opened.latest_step, opened.best_step) == (2, 2)
    assert saved.contents(folder) == before


def test_all_damaged_is_an_error_and_no_fresh_start(folder):
    for step in "123":
        saved.flip(folder / step / "manifest.json")
    before = saved.contents(folder)
    for read_only in (False, True):
        with Checkpoints(folder, read_only=read_only) as opened:
            for ask in (lambda: opened.step_to_resume(9), opened.require_step):
                with pytest.raises(CheckpointError, match=r"every checkpoint in .* \(step 1: "):
                    ask()
    assert saved.contents(folder) == before


def test_the_best_is_kept_although_another_is_damaged(folder):
    saved.flip(folder / "3" / "manifest.json")
    with pytest.warns(CheckpointWarning), Checkpoints(folder, keep=1) as opened:
        assert opened.step_to_resume(9) == 2
        opened.save(saved.state(4), 5.0)
        opened.wait()
        assert (opened.latest_step, opened.best_step) == (4, 2)
    assert saved.steps(folder) == ["2", "4"]


def test_manifest_is_complete_before_a_checkpoint_gets_its_name(tmp_path, monkeypatch):
    """Orbax changes nothing after the manifest is written but its own two files."""
    seen = []

    def write(folder, **about):
        manifest.write_checkpoint_manifest(folder, **about)
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
    assert (about["step"], about["validation_loss"]) == (6, 0.5)


def test_checkpoint_whose_manifest_cannot_be_written_is_none(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    with Checkpoints(tmp_path) as opened:
        opened.save(saved.state(1))
        opened.wait()
        monkeypatch.setattr(checkpoints, "write_checkpoint_manifest", fail)
        opened.save(saved.state(2))
        with pytest.raises(OSError, match="No space left"):
            opened.wait()
        assert opened.latest_step == 1
    with pytest.raises(OSError, match="No space left"):  # also at the end
        with Checkpoints(tmp_path) as opened:
            opened.save(saved.state(2))
    monkeypatch.undo()
    saved.save(tmp_path, 3)
    assert saved.steps(tmp_path) == ["1", "3"]
