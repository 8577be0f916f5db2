import re
import threading
import warnings

import jax
import pytest

from jaxformer.errors import ConfigError, StorageError
from jaxformer.stopping import StopSignals
from jaxformer.training.parallel import make_runner
from jaxformer.training.parallel.hosts import agreement, launch, messages, watch
from jaxformer.training.parallel.hosts.agreement import StopAgreement

SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_PROCID": "0",
         "SLURM_LOCALID": "0"}  # fmt: skip


class Store:
    """The key-value store of a job, within one process."""

    def __init__(self):
        self.values = {}

    def key_value_set(self, key, value, allow_overwrite=False):
        assert allow_overwrite or key not in self.values
        self.values[key] = value

    def key_value_dir_get(self, key):
        return [(name, value) for name, value in self.values.items() if name.startswith(key)]

    def blocking_key_value_get(self, key, _):
        return self.values[key]


@pytest.fixture
def store(monkeypatch):
    made = Store()
    for module in (agreement, messages):
        monkeypatch.setattr(module, "store", lambda: made)
    return made


@pytest.mark.parametrize(("ahead", "number"), [(0, 15), (1, 15), (1, 0)])
def test_all_stop_at_the_first_place_that_none_has_passed(store, ahead, number):
    """After a signal of one process, or where its callback asks for it."""
    signals = [StopSignals(), StopSignals()]
    both = [StopAgreement(signals[process], process, 2, "key") for process in range(2)]
    asked = [[both[process].reached() for _ in range(3 + 2 * (process == ahead))]
             for process in range(2)]  # fmt: skip
    assert not any(map(any, asked))
    if number:
        signals[0].received = number
    else:
        both[0].request()
    for one in both:
        one._thread.join(10)
    places = []
    for process in range(2):
        place = len(asked[process]) + 1
        while (reached := both[process].reached()) is None:
            place += 1
        places.append((place, reached))
    assert places == [(6, number)] * 2
    for one in both:
        one.close()


def test_nobody_waits_for_a_process_that_has_taken_its_last_step(store):
    signals = [StopSignals(), StopSignals()]
    both = [StopAgreement(signals[process], process, 2, "key") for process in range(2)]
    for _ in range(4):
        assert both[0].reached() is None
    both[0].close()
    signals[1].received = 15
    both[1]._thread.join(10)
    assert not both[1]._thread.is_alive()
    assert [both[1].reached() for _ in range(4)] == [None] * 4  # as many as the other took
    both[1].close()


def test_a_process_alone_stops_at_once():
    signals = StopSignals()
    alone = StopAgreement(signals, 0, 1, "key")
    assert alone.reached() is None
    signals.received = 15
    assert alone.reached() == 15


@pytest.mark.parametrize(
    ("variables", "size"),
    [
        ({}, 1),
        ({**SLURM, "SLURM_NTASKS": "1"}, 1),
        ({**SLURM, "SLURM_NTASKS": "16"}, 16),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "16"}, 1),  # a batch script without srun
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, 1),  # a pod, but not of an indexed job
    ],
)
def test_a_job_of_several_processes_is_found_by_its_variables(monkeypatch, variables, size):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launch._cluster_size() == size


def test_an_unreadable_cluster_is_an_error_that_names_the_flags(monkeypatch):
    for name, value in {**SLURM, "SLURM_NTASKS": "many"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="SlurmCluster.* pass --coordinator"):
        launch.start_hosts(launch.Launch())


@pytest.mark.parametrize("kind", ["pmap", "single"])
def test_runners_of_one_host_are_refused_on_several(monkeypatch, kind):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ConfigError, match=f"training.runner='{kind}' is for one host.*'mesh'"):
        make_runner(kind)


def test_differences_between_processes_are_named_with_who_has_what(monkeypatch, store):
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    texts = ['{"host": "a", "values": {"jax": "1", "seed": "0"}}',
             '{"host": "b", "values": {"jax": "1"}}',
             '{"host": "c", "values": {"jax": "2"}}']  # fmt: skip
    monkeypatch.setattr(messages, "gather_texts", lambda name, text: texts)
    with pytest.raises(ConfigError) as raised:
        messages.require_same("settings", {})
    assert str(raised.value).startswith(
        "all hosts must have the same settings: jax is 1 on process 0 (a), 1 (b), 2 on process "
        "2 (c); seed is 0 on process 0 (a), not set on process 1 (b), 2 (c); "
    )


@pytest.mark.parametrize(
    ("error", "of_others", "said"),
    [
        (ConfigError("the disk is too small"), ConfigError, "the disk is too small"),
        (PermissionError(13, "no right", "gs://abc/run"), StorageError, "gs://abc/run: no right"),
    ],
)
def test_what_the_first_process_cannot_do_is_the_error_of_all(
    monkeypatch, store, error, of_others, said
):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(messages, "_calls", type(messages._calls)())

    def fail():
        raise error

    with pytest.raises(type(error), match=re.escape(str(error))):
        messages.in_first_process("begin", fail)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(messages, "_calls", type(messages._calls)())
    with pytest.raises(of_others, match=f"^process 0 cannot begin: {said}"):
        messages.in_first_process("begin", fail)


def test_process_says_why_another_has_ended_before_the_first_may_go(monkeypatch, store):
    """The store is the first one's; when that is gone, JAX aborts the process."""
    said, heard = [], watch.HostWatch.__new__(watch.HostWatch)
    heard._own, heard._count, heard._leaving = 1, 2, threading.Event()
    heard._note = lambda: "no step of the run is saved"
    monkeypatch.setattr(watch, "_GRACE", 0.01)
    monkeypatch.setattr(watch, "store", lambda: store)
    key = f"{watch._KEY}/heard/1"
    monkeypatch.setattr(watch, "write_line", lambda line: said.append((line, key in store.values)))

    def exit_now(status):
        raise SystemExit(status if key in store.values else "not heard")

    monkeypatch.setattr(watch, "exit_now", exit_now)
    failure = {"status": 2, "host": "a", "why": "the disk is full"}
    with pytest.raises(SystemExit) as ended:
        heard._follow(0, failure)
    assert ended.value.code == 2
    ((line, was_heard),) = said
    assert "process 0 of 2, on a, has ended: the disk is full; no step" in line and not was_heard
    heard._leaving.set()  # ends for a reason of its own, which it says itself
    heard._follow(0, failure)
    assert len(said) == 1
