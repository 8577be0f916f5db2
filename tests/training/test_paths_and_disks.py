"""Checkpoints and metrics at any path, and on disks that are full."""

import contextlib
import logging
import os
import subprocess
import time

import jax
import numpy as np
import pytest

from jaxformer.errors import ConfigError
from jaxformer.training import Checkpoints, read_metrics
from jaxformer.training.checkpoints.locked_folder import lock_folder
from jaxformer.training.records import MetricsWriter
from tests.training import saved

READABLE = {
    "quotes": 'it\'s "so"',
    "pattern": "*?{a,b}",
    "spaces": "  a  b ",
    "newline": "a\nb",
    "non-ASCII": "ನಡೆ é 猫",
    "URL": "s3:%2F#x?y=z&~",
}
UNREADABLE = {"brackets": "a[1]", "backslash": "a\\b", "not UTF-8": os.fsdecode(b"caf\xe9")}


@pytest.mark.parametrize("name", READABLE.values(), ids=READABLE)
def test_checkpoints_are_saved_to_and_loaded_from_odd_paths(tmp_path, name):
    folder = tmp_path / name / "checkpoints"
    saved.save(folder, 1, 2, losses=(1.0, 2.0), keep=1)
    saved.save(folder, 3, losses=(3.0,), keep=1)
    assert saved.steps(folder) == ["1", "3"]
    with Checkpoints(folder, read_only=True) as opened:
        saved.assert_same(opened.restore(saved.state(0)), saved.state(3))
        saved.assert_same(opened.restore_params(saved.state(0).params), saved.state(1).params)


@pytest.mark.parametrize("name", UNREADABLE.values(), ids=UNREADABLE)
def test_paths_that_orbax_cannot_read_are_refused_before_anything_is_written(tmp_path, name):
    with pytest.raises(ConfigError, match="which Orbax cannot read, got .* choose another folder"):
        with lock_folder(tmp_path / name, keep=1):
            pass
    assert list(tmp_path.iterdir()) == []


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


def test_full_disk_is_an_error_at_once_and_the_run_goes_on(tmp_path, caplog):
    size = 2**18  # numbers: a megabyte
    with disk(tmp_path / "disk", 9 * 2**20) as mounted:
        folder = mounted / "checkpoints"
        with Checkpoints(folder, keep=5) as opened:
            opened.save(random_state(1, size))
            opened.wait()
        fill(mounted, leave=2**20)
        start = time.monotonic()
        # ValueError for the files that TensorStore writes, OSError for those of Orbax.
        with pytest.raises((ValueError, OSError), match="No space left"):
            with Checkpoints(folder, keep=5) as opened:
                opened.save(random_state(2, size))
                opened.wait()
        assert time.monotonic() - start < 10
        (mounted / "filler").unlink()
        with Checkpoints(folder, keep=5) as opened:
            assert opened.latest_step == 1
            saved.assert_same(opened.restore(random_state(0, size)), random_state(1, size))
            opened.save(random_state(2, size))
            opened.wait()
        assert saved.steps(folder) == ["1", "2"]
    # Orbax logs its tracebacks, which a terminal would show.
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def random_state(step, size):
    numbers = jax.device_put(np.random.default_rng(step).normal(size=size).astype(np.float32))
    return saved.state(step)._replace(params={"kernel": numbers}, opt_state=(numbers,))


def test_metrics_on_a_full_disk_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no events
    with disk(tmp_path / "disk", 2**18) as folder:
        with MetricsWriter(folder) as writer:
            writer.write(1, loss=2.0)
            fill(folder, leave=0)
            with pytest.raises(OSError, match="No space left"):
                for step in range(2, 9999):
                    writer.write(step, loss=2.0)
        assert read_metrics(folder)[0] == {"step": 1, "loss": 2.0}
        with pytest.raises(OSError, match="No space left"):
            MetricsWriter(folder, start_step=1)
        (folder / "filler").unlink()
        before = read_metrics(folder)
        with MetricsWriter(folder, start_step=1) as writer:
            writer.write(2, loss=3.0)
        assert read_metrics(folder) == [before[0], {"step": 2, "loss": 3.0}]


def test_folder_that_cannot_be_written_to_is_an_error_before_orbax_waits(tmp_path, monkeypatch):
    with Checkpoints(tmp_path):
        pass
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # to root, all can be written
    with pytest.raises(PermissionError, match=f"Permission denied: '{tmp_path}'"):
        Checkpoints(tmp_path)
