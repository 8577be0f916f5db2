"""The lock of a run folder in a bucket: one holder at a time, also when that does not answer."""

import json
import time

import pytest

from jaxformer.errors import CheckpointError, ConfigError, StorageError
from jaxformer.storage import (
    DRAFT,
    LOCK,
    append,
    as_path,
    discard_draft,
    file_systems,
    lease,
    lock_holder,
    open_to_append,
    remove_tree,
    run_lock,
    write_whole,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Leases of a second."""
    for name, seconds in {"LEASE": 1.0, "RENEWAL": 0.2, "_POLL": 0.05, "_TIMEOUT": 2.0}.items():
        monkeypatch.setattr(lease, name, seconds)


def taken(folder):
    """A held lease, as of another process."""
    other = lease.Lease(folder, LOCK)
    other.take()
    return other


def test_a_second_holder_is_refused_as_long_as_the_first_renews(bucket, capsys):
    with run_lock(bucket):
        holder = lock_holder(bucket)
        assert holder.startswith("process ") and " on " in holder
        time.sleep(1.5)  # longer than a lease
        with pytest.raises(CheckpointError) as info:
            taken(bucket)
    assert f"is being trained by {holder}; wait until it ends" in str(info.value)
    assert "waiting up to 1 seconds for a sign of it" in capsys.readouterr().err


def test_the_thread_that_holds_it_takes_it_again_and_it_is_free_afterwards(bucket):
    with run_lock(bucket):
        with run_lock(bucket):
            pass
        assert lock_holder(bucket)
    assert bucket.files() == {} and not lock_holder(bucket)
    taken(bucket).release()
    assert bucket.files() == {}


def append_and_flush(file):
    append(file, b"line")
    file.flush()


CHANGES = {
    "write": lambda folder, _: write_whole(folder / "deep" / "file", b"of the first"),
    "append": lambda _, file: append_and_flush(file),
    "unlink": lambda folder, _: (folder / "deep" / "file").unlink(),
    "remove": lambda folder, _: remove_tree(folder / "deep"),
    "rename": lambda folder, _: (folder / "deep").rename(folder / "other"),
    "discard": lambda folder, _: discard_draft(folder, last="config.toml"),
}


def test_a_lease_that_nobody_renews_is_taken_over_and_its_holder_changes_nothing(bucket):
    write_whole(bucket / DRAFT / "moves.json", b'["deep"]')
    with run_lock(bucket):
        file = open_to_append(bucket / "log")
        (held,) = (require.__self__ for require in file_systems.locks.values())
        held._lost_to = "nobody yet"  # ends its renewals, as if its process were stopped
        time.sleep(0.3)
        held._lost_to = None
        other = taken(bucket)
        bucket.system.pipe_file(f"{bucket.key}/deep/file", b"of the second")
        stored = {name: found for name, found in bucket.files().items() if name != LOCK}
        for name, change in CHANGES.items():
            with pytest.raises(StorageError) as info:
                change(bucket, file)
            assert f"is now being trained by {other._holder}" in str(info.value), name
        assert {name: one for name, one in bucket.files().items() if name != LOCK} == stored
        with pytest.raises(StorageError):
            file.close()
    assert lock_holder(bucket) == other._holder  # the first did not release what it had lost
    other.release()


def test_a_renewal_whose_answer_is_lost_is_no_loss_of_the_lock(bucket):
    held = taken(bucket)
    before = held._generation
    held.renew()
    held._generation = before  # as if no answer to the renewal had come
    held.renew()
    assert held._lost_to is None
    held.release()
    assert bucket.files() == {}


def test_a_lock_that_was_left_long_ago_is_taken_at_once(bucket, capsys):
    taken(bucket)
    record = json.loads((bucket / LOCK).read_bytes())
    (bucket / LOCK).write_bytes(json.dumps(record | {"ends": time.time() - 100}).encode())
    taken(bucket).release()
    assert capsys.readouterr().err == ""


def test_a_bucket_that_is_gone_for_longer_than_a_lease_is_waited_for(bucket, emulator):
    with run_lock(bucket):
        gone_until = time.monotonic() + 2.5
        emulator.fault = lambda *_: 503 if time.monotonic() < gone_until else None
        time.sleep(1.2)  # the lease has ended
        write_whole(bucket / "file", b"content")
        assert time.monotonic() > gone_until
    assert (bucket / "file").read_bytes() == b"content"


def test_a_bucket_that_stays_gone_is_waited_for_once(bucket, emulator, monkeypatch):
    monkeypatch.setattr(lease, "PATIENCE", 4.0)
    with run_lock(bucket):
        monkeypatch.setattr(lease, "_TIMEOUT", 0.3)
        emulator.fault = lambda *_: 503
        time.sleep(1.2)  # the lease has ended
        times = [time.monotonic()]
        for _ in range(2):
            with pytest.raises(StorageError, match="lock cannot be written"):
                bucket.require_lock()
            times.append(time.monotonic())
        emulator.fault = lambda *_: None
    assert times[2] - times[1] < 3  # one try, and perhaps one of the thread that renews
    assert file_systems.given_up.is_set()  # so that files are not waited for again, either
    assert not (bucket / "file").exists() and not file_systems.given_up.is_set()


def test_a_lock_that_may_no_longer_be_written_is_not_waited_for(bucket, emulator):
    with run_lock(bucket):
        emulator.fault = lambda *_: 403
        time.sleep(1.2)  # the lease has ended
        began = time.monotonic()
        with pytest.raises(StorageError, match="lock cannot be written"):
            bucket.require_lock()
        emulator.fault = lambda *_: None
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("name", ["gs://Ab/run", "gs://a/run"])
def test_impossible_name_of_a_bucket_is_refused(name):
    with pytest.raises(CheckpointError, match="the name of a bucket must have 3 or more of a-z"):
        taken(as_path(name))


def test_locks_of_copies_of_a_folder_do_not_count(bucket, tmp_path):
    """Neither in a bucket nor on a disk."""
    for text in (b"", b"process 1 on host, since 2026-01-01"):
        (bucket / LOCK).write_bytes(text)
        held = taken(bucket)
        (tmp_path / LOCK).write_bytes((bucket / LOCK).read_bytes())
        held.release()
        with run_lock(tmp_path):
            assert lock_holder(tmp_path).startswith("process ")


def test_another_file_of_that_name_is_left_alone(bucket):
    (bucket / LOCK).write_bytes(b"my own")
    with pytest.raises(CheckpointError, match="another program, or a damaged lock"):
        taken(bucket)
    assert (bucket / LOCK).read_bytes() == b"my own"


def test_only_buckets_that_checkpoints_can_be_in_are_locked():
    with pytest.raises(ConfigError, match="must be on a disk or in a bucket gs://, got s3://b/run"):
        taken(as_path("s3://b/run"))


def test_missing_bucket_is_one_line(bucket):
    with pytest.raises(StorageError, match="there is no bucket gs://no-such-bucket;") as info:
        taken(as_path("gs://no-such-bucket/run"))
    assert "\n" not in str(info.value)
