import os
import signal
import subprocess
import sys
import threading

import optax
import pytest

from jaxformer.config import LoopConfig
from jaxformer.errors import CheckpointError
from jaxformer.storage import HOLDER, LOCK, lock_holder, run_lock
from jaxformer.training import SingleRunner, TrainingData, Trial, fit
from tests.training import saved

PROGRAM = """
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
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, folder], stdout=subprocess.PIPE)
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
    before = saved.contents(folder)
    message = refused(folder)
    assert f"is being trained by process {process.pid} on {os.uname().nodename}, since 2" in message
    assert "wait until it ends, stop it with kill" in message
    assert saved.contents(folder) == before


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
        assert lock_holder(folder).startswith(f"process {os.getpid()} on ")
    assert not lock_holder(folder)


def test_other_thread_is_refused_also_through_a_link(tmp_path):
    run, messages = tmp_path / "run", []
    run.mkdir()
    (run / "file").touch()
    (tmp_path / "link").symlink_to(run)
    for folder in (run, tmp_path / "link"):
        with run_lock(folder):
            thread = threading.Thread(target=lambda: messages.append(refused(run)))
            thread.start()
            thread.join()
    assert len(messages) == 2 and f"by process {os.getpid()} on" in messages[0]
    assert (run / LOCK).read_bytes() == b"" and not (run / HOLDER).exists()


def test_folder_of_a_run_that_never_came_to_be_goes_away(tmp_path):
    with pytest.raises(RuntimeError), run_lock(tmp_path / "new"):
        assert (tmp_path / "new" / LOCK).exists()
        raise RuntimeError
    assert not (tmp_path / "new").exists()
