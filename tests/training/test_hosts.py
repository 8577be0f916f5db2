import json

import jax
import numpy as np
import pytest

from jaxformer.errors import ConfigError, TrainingError
from jaxformer.training.parallel import hosts, make_runner


@pytest.fixture
def job(monkeypatch):
    """Sets what the processes of a job gather, this being the given one of them."""

    def of(process, *texts):
        monkeypatch.setattr(jax, "process_count", lambda: len(texts))
        monkeypatch.setattr(jax, "process_index", lambda: process)
        monkeypatch.setattr(hosts, "gather_texts", lambda text: list(texts))

    return of


@pytest.mark.parametrize("kind", ["pmap", "single"])
def test_runners_of_one_host_are_refused_on_several(monkeypatch, kind):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ConfigError, match=f"training.runner='{kind}' is for one host.*'mesh'"):
        make_runner(kind)


def test_texts_of_unequal_length_are_gathered(monkeypatch):
    """Each process pads its own to the longest."""
    texts = ["", "größer"]

    def gather(value):
        if value.ndim == 0:
            return np.array([len(text.encode()) for text in texts])
        width = value.size
        rows = [np.frombuffer(text.encode(), np.uint8) for text in texts]
        return np.stack([np.pad(row, (0, width - row.size)) for row in rows])

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(hosts.multihost_utils, "process_allgather", gather)
    for text in texts:
        assert hosts.gather_texts(text) == texts


def test_differences_between_processes_are_named_with_who_has_what(job):
    values = [("a", {"jax": "1", "seed": "0"}), ("b", {"jax": "1"}), ("c", {"jax": "2"})]
    job(0, *(json.dumps({"host": host, "values": of_host}) for host, of_host in values))
    with pytest.raises(ConfigError) as raised:
        hosts.require_same("settings", {})
    assert str(raised.value).startswith(
        "all hosts must have the same settings: jax is 1 on process 0 (a), 2 on process 2 (c); "
        "seed is 0 on process 0 (a), not set on process 1 (b); "
    )


def test_what_the_first_process_cannot_do_is_an_error_of_all(job):
    def fail():
        raise PermissionError("no right")

    job(0, "no right (PermissionError)", "")
    with pytest.raises(PermissionError, match="no right"):
        hosts.in_first_process("begin", fail)
    job(1, "no right (PermissionError)", "")
    with pytest.raises(TrainingError, match=r"^process 0 cannot begin: no right \(Perm"):
        hosts.in_first_process("begin", fail)
    job(1, "", "")
    hosts.in_first_process("begin", fail)
