"""Checkpoints and metrics at any path, and on disks that are full."""

import contextlib
import logging
import os
import pathlib
import subprocess
import time

import jax
import numpy as np
import pytest

from jaxformer.errors import CheckpointError, StorageError
from jaxformer.training import Checkpoints, MetricsWriter, read_metrics
from jaxformer.training.checkpoints import checkpoint_damage, orbax
from jaxformer.training.checkpoints import folder as checkpoints
from tests.training import saved

ODD = {
    "brackets": "a[1] [b",
    "backslash": "a\\b\\",
    "quotes": 'it\'s "so"',
    "glob": "*?{a,b}",
    "spaces": "  a  b ",
    "newline": "a\nb",
    "non-ASCII": "ನಡೆ é 猫",
    "not UTF-8": os.fsdecode(b"caf\xe9 \xff"),
    "URL": "s3:%2F#x?y=z&~",
}


@pytest.fixture(autouse=True)
def _no_links_are_left(tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    yield
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_any_path_can_be_saved_to_and_loaded_from(tmp_path, name):
    folder = tmp_path / name / "checkpoints"
    saved.save(folder, 1, 2, losses=(1.0, 2.0), keep=1)
    saved.save(folder, 3, losses=(3.0,), keep=1)
    assert saved.steps(folder) == ["1", "3"]
    assert [path.name for path in tmp_path.iterdir() if path.name != "temporary"] == [name]
    with Checkpoints(folder, read_only=True) as opened:
        saved.assert_same(opened.restore(saved.state(0)), saved.state(3))
        saved.assert_same(opened.restore_params(saved.state(0).params), saved.state(1).params)


def test_folder_above_may_be_a_link(tmp_path):
    (tmp_path / "real [1]").mkdir()
    (tmp_path / "link").symlink_to("real [1]")
    saved.save(tmp_path / "link" / "checkpoints", 1)
    assert checkpoint_damage(tmp_path / "real [1]" / "checkpoints" / "1") is None


@pytest.mark.parametrize("temporary", ["", "{}/odd [dir]", "{}/missing", "relative"])
def test_odd_folder_for_temporary_files_is_not_needed(tmp_path, monkeypatch, temporary):
    (tmp_path / "odd [dir]" / "relative").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "odd [dir]")
    monkeypatch.setenv("TMPDIR", temporary.format(tmp_path))
    saved.save(tmp_path / "a [b]", 1)
    with Checkpoints(tmp_path / "a [b]", read_only=True) as opened:
        saved.assert_same(opened.restore(saved.state(0)), saved.state(1))


def test_no_folder_for_temporary_files_is_one_clear_error(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.mkdtemp", fail)
    with pytest.raises(StorageError, match="link to it in a temporary folder.*Read-only.*TMPDIR"):
        Checkpoints(tmp_path / "a [b]")


def test_files_of_a_run_are_not_written_through_links(tmp_path):
    """And not read through them either."""
    target = tmp_path / "precious"
    target.write_text("kept")
    for name in ("metrics.jsonl", "metrics.superseded.jsonl"):
        run = tmp_path / f"run of {name}"
        run.mkdir()
        if name == "metrics.superseded.jsonl":
            (run / "metrics.jsonl").write_text('{"step": 3}\n')
        (run / name).symlink_to(target)
        with pytest.raises((CheckpointError, StorageError), match="is a link"):
            MetricsWriter(run, start_step=1)
    assert target.read_text() == "kept"


@contextlib.contextmanager
def disk(folder, size):
    """Mounts a disk of so many bytes."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder, leave):
    """Fills a disk but for some bytes."""
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    (folder / "filler").write_bytes(bytes(max(free - leave, 0)))


@pytest.mark.parametrize("check", ["before", "while writing"])
def test_full_disk_is_one_line_at_once_and_the_run_goes_on(tmp_path, monkeypatch, caplog, check):
    size = 2**18  # numbers: a megabyte
    with disk(tmp_path / "disk", 9 * 2**20) as mounted:
        folder = mounted / "checkpoints"
        with Checkpoints(folder, keep=5) as opened:
            opened.save(random_state(1, size))
            opened.wait()
        fill(mounted, leave=2**20)
        if check == "while writing":
            monkeypatch.setattr(Checkpoints, "_require_room", lambda *_: None)
        reason = "it needs .* and the disk has" if check == "before" else "No space left"
        start = time.monotonic()
        with pytest.raises(
            StorageError, match=f"2: the checkpoint cannot be saved .*{reason}"
        ) as e:
            with Checkpoints(folder, keep=5) as opened:
                opened.save(random_state(2, size))
                saved.ask_until_failed(opened)
        # A thread of the save that failed may end after the others.
        logging.getLogger("absl").handle(orbax_warning())
        assert time.monotonic() - start < 10 and "; free space" in str(e.value)
        (mounted / "filler").unlink()
        with Checkpoints(folder, keep=5) as opened:
            assert opened.latest_step == 1
            saved.assert_same(opened.restore(random_state(0, size)), random_state(1, size))
            opened.save(random_state(2, size))
            opened.wait()
        assert saved.steps(folder) == ["1", "2"]
    # Orbax logs its tracebacks, which a terminal would show.
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_warnings_of_orbax_are_held_back_until_the_last_folder_is_closed(tmp_path, monkeypatch):
    held = orbax.OrbaxLog()
    monkeypatch.setattr(checkpoints, "orbax_log", held)
    saved.save(tmp_path / "checkpoints", 1)
    assert held.filter(orbax_warning())
    with Checkpoints(tmp_path / "checkpoints"):
        with Checkpoints(tmp_path / "checkpoints", read_only=True):
            assert not held.filter(orbax_warning())
        assert not held.filter(orbax_warning())
    assert held.filter(orbax_warning())
    logging.getLogger("absl").removeFilter(held)


def orbax_warning():
    where = "/orbax/checkpoint/utils.py", 1
    return logging.LogRecord("absl", logging.WARNING, *where, "Skipping", (), None)


def test_reason_is_named_behind_the_longest_path(tmp_path):
    with Checkpoints(tmp_path / "checkpoints") as opened:
        error = opened._failure(2, OSError(f'Error writing "{"a" * 4000}": No space left'))
    assert "(Error writing" in str(error) and '": No space left); free space' in str(error)


def random_state(step, size):
    numbers = jax.device_put(np.random.default_rng(step).normal(size=size).astype(np.float32))
    return saved.state(step)._replace(params={"kernel": numbers}, opt_state=(numbers,))


def test_metrics_on_a_full_disk_are_one_line_and_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no events
    with disk(tmp_path / "disk", 2**18) as folder:
        with MetricsWriter(folder) as writer:
            writer.write(1, loss=2.0)
            fill(folder, leave=0)
            with pytest.raises(StorageError, match="cannot be written: No space left.*free space"):
                for step in range(2, 9999):
                    writer.write(step, loss=2.0)
        assert read_metrics(folder)[0] == {"step": 1, "loss": 2.0}
        with pytest.raises(StorageError, match="No space left"):
            MetricsWriter(folder, start_step=1)
        (folder / "filler").unlink()
        before = read_metrics(folder)
        with MetricsWriter(folder, start_step=1) as writer:
            writer.write(2, loss=3.0)
        assert read_metrics(folder) == [before[0], {"step": 2, "loss": 3.0}]


def test_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file/checkpoints cannot be written: Not a directory"):
        Checkpoints(pathlib.Path(tmp_path, "file", "checkpoints"))
