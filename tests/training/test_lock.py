import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading

import optax
import pytest

from jaxformer.config import LoopConfig
from jaxformer.errors import CheckpointError, StorageError
from jaxformer.storage import lock
from jaxformer.storage.lock import LOCK, run_lock
from jaxformer.training import SingleRunner, TrainingData, Trial, fit

HOLDER = """
import pathlib, sys, time
from jaxformer.storage.lock import run_lock
with run_lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def holder(tmp_path_factory):
    """Another process that holds the lock of a folder."""
    folder = tmp_path_factory.mktemp("held") / "run"
    process = subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process, folder
    process.kill()
    process.communicate()


def refused(folder):
    """The message of an attempt to train in a folder."""
    with pytest.raises(CheckpointError) as raised, run_lock(folder):
        pass
    return str(raised.value)


def test_second_process_is_told_who_trains_and_changes_nothing(holder):
    process, folder = holder
    before = (folder / LOCK).read_bytes()
    message = refused(folder)
    assert f"is being trained by process {process.pid} on {os.uname().nodename}, since 2" in message
    assert "wait until it ends, stop it with kill" in message
    assert (folder / LOCK).read_bytes() == before


def test_fit_takes_the_lock_before_it_asks_for_a_batch(holder):
    class Batches:
        def __getitem__(self, step):
            raise AssertionError("asked for a batch")

    with pytest.raises(CheckpointError, match="is being trained by process"):
        fit(
            Trial(lambda *_: (0.0, 1), lambda rng: {}, optax.sgd(0.1)), TrainingData(Batches()),
            holder[1], LoopConfig(steps=1), runner=SingleRunner(),
        )  # fmt: skip


def test_lock_dies_with_its_process(holder):
    process, folder = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    with run_lock(folder):
        assert (folder / LOCK).read_text().startswith(f"process {os.getpid()} on ")
    assert (folder / LOCK).exists() is False  # it was all there was in the folder


def test_a_system_without_flock_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(StorageError, match="run cannot be locked, because Windows has no flock"):
        with run_lock(tmp_path / "run"):
            pass
    assert not (tmp_path / "run").exists()


def test_other_thread_is_refused_and_the_same_one_is_not(tmp_path):
    (tmp_path / "file").touch()
    said = []
    with run_lock(tmp_path):
        with run_lock(tmp_path):
            pass
        thread = threading.Thread(target=lambda: said.append(refused(tmp_path)))
        thread.start()
        thread.join()
        assert f"by process {os.getpid()} on" in said[0]
    with run_lock(tmp_path):
        pass
    assert (tmp_path / LOCK).read_bytes() == b""


def test_path_through_a_link_is_the_same_lock(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    said = []
    with run_lock(tmp_path / "link"):
        thread = threading.Thread(target=lambda: said.append(refused(tmp_path / "run")))
        thread.start()
        thread.join()
    assert len(said) == 1


def test_folder_of_a_run_that_never_came_to_be_goes_away(tmp_path):
    with pytest.raises(RuntimeError), run_lock(tmp_path / "new"):
        assert (tmp_path / "new" / LOCK).exists()
        raise RuntimeError
    assert not (tmp_path / "new").exists()
    with run_lock(tmp_path):  # which was there before
        pass
    assert list(tmp_path.iterdir()) == []


def test_file_of_that_name_that_is_no_lock_is_left_alone(tmp_path):
    (tmp_path / LOCK).write_text("years of work")
    assert "must be the lock of a run folder" in refused(tmp_path)
    assert (tmp_path / LOCK).read_text() == "years of work"


def test_link_in_place_of_the_lock_is_not_followed(tmp_path, monkeypatch):
    open_, opened = os.open, []

    def counted(path, *options):
        opened.append(path)
        assert len(opened) < 9, "opened again and again"  # as a lock that another has removed is
        return open_(path, *options)

    (tmp_path / "target").write_text("")
    (tmp_path / LOCK).symlink_to(tmp_path / "target")
    monkeypatch.setattr(os, "open", counted)
    with pytest.raises(ValueError, match="cannot be written"), run_lock(tmp_path):
        pass
    assert (tmp_path / "target").read_text() == ""


def test_lock_that_is_removed_while_it_is_taken_is_taken_anew(tmp_path, monkeypatch):
    """As by a process that ends just then."""
    take = lock._take

    def taken_too_late(descriptor, folder):
        monkeypatch.setattr(lock, "_take", take)
        (folder / LOCK).unlink()
        take(descriptor, folder)

    monkeypatch.setattr(lock, "_take", taken_too_late)
    with run_lock(tmp_path):
        assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} on ")


def test_disk_that_fails_while_a_lock_is_taken_is_an_error(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StorageError, match="lock cannot be locked: Input/output error"):
        with run_lock(tmp_path):
            pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_without_locks_on_the_file_system_one_line_says_so(tmp_path, monkeypatch, capsys, number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with run_lock(tmp_path):
        pass
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "is on a file system without locks" in said
