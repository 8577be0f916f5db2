"""The lock of a run folder in a bucket: one holder at a time, also when that does not answer."""

import contextlib
import pathlib
import time

import pytest

from jaxformer.errors import CheckpointError, ConfigError, StorageError
from jaxformer.storage import LOCK, files_below, lock, lock_holder, run_lock
from jaxformer.training import Checkpoints
from tests.training import saved


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Locks that are stale after a second."""
    for name, seconds in {"STALE": 1.0, "REFRESH": 0.2, "_POLL": 0.05}.items():
        monkeypatch.setattr(lock, name, seconds)


@contextlib.contextmanager
def held_without_a_sign(folder):
    """A lock whose holder does not refresh it, as a process that was stopped."""
    refresh = lock.REFRESH
    lock.REFRESH = 1e6
    with run_lock(folder) as require:
        lock.REFRESH = refresh
        yield require


@pytest.mark.essential
def test_a_second_holder_is_refused_as_long_as_the_first_refreshes(bucket, capsys):
    with run_lock(bucket) as require:
        holder = lock_holder(bucket)
        assert holder.startswith("process ") and " on " in holder
        time.sleep(1.5)  # longer than a lock without a sign
        with pytest.raises(CheckpointError) as info, run_lock(bucket):
            pass
        require()
    assert f"is being trained by {holder}; wait until it ends" in str(info.value)
    assert "waiting up to 1 seconds for a sign of it" in capsys.readouterr().err
    assert files_below(bucket) == [] and not lock_holder(bucket)
    with run_lock(bucket):
        pass


def test_a_holder_whose_lock_was_taken_saves_nothing_more(bucket):
    with held_without_a_sign(bucket) as require:
        with Checkpoints(bucket / "checkpoints", require_lock=require) as checkpoints:
            checkpoints.save(saved.state(1))
            checkpoints.wait()
            with run_lock(bucket):
                stored = files_below(bucket)
                with pytest.raises(StorageError, match="is now being trained by process"):
                    checkpoints.save(saved.state(2))
                assert files_below(bucket) == stored
            assert not lock_holder(bucket)


def test_a_lock_of_a_killed_process_is_taken_when_it_is_stale(bucket):
    (bucket / LOCK).write_bytes(b"process 1 on host")
    started = time.monotonic()
    with run_lock(bucket):
        assert 1.0 <= time.monotonic() - started < 10


def test_a_lock_in_no_bucket_that_checkpoints_can_be_in_is_refused():
    with pytest.raises(ConfigError, match="must be on a disk or in a bucket gs://, got s3:/b/run;"):
        with lock.bucket_lock(pathlib.PurePath("s3://b/run")):
            pass
