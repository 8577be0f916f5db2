"""Configs and files that nobody means: each ends within seconds, with a line."""

import contextlib
import gzip
import os
import signal

import pytest

from jaxformer.errors import ConfigError
from tests.cli.commands import CONFIG, one_line, write_config

SECONDS = 60  # far more than any takes on a quiet machine
# What is replaced in a config, or the config; and what is said.
CONFIGS = {
    "empty": ("", "missing key model.max_len"),
    "5000 digits": ("seed = " + "9" * 5000, "not a TOML file"),
    "10,000 layers": (CONFIG + "[[model.layers]]\n" * 10_000, "num_layers=2; remove some"),
    "FIFO as text": (CONFIG.replace("{text}", "fifo"), "it is a FIFO"),
    "device as text": (CONFIG.replace("{text}", "/dev/zero"), "/dev/zero"),
    "folder as text": (CONFIG.replace("{text}", "."), "."),
    "gzip bomb as text": (CONFIG.replace("{text}", "bomb.gz"), "text must be UTF-8, got 0x00"),
    "nothing but spaces": (CONFIG.replace("{text}", "spaces.txt"), "got an empty training side"),
}  # fmt: skip
# Keys whose bounds or estimates refuse what would take all memory or time.
SIZES = [
    ("model.d_model", "1000000000"), ("model.d_model", "16777216"), ("model.d_model", "100000"),
    ("model.max_len", "1000000000000"), ("model.max_len", "2147483647"),
    ("model.vocab_size", "2147483647"), ("model.head_dim", "2000000000"),
    ("training.steps", "2147483648"),
    ("training.devices", "1000000000"), ("training.cpu_devices", "1000000"),
    ("training.accumulate_steps", "2147483647"), ("samples.max_new_tokens", "1000000000000"),
    ("schedule.decay_steps", "1" + "0" * 30), ("data.num_buckets", "1000000000"),
]  # fmt: skip


@contextlib.contextmanager
def limited():
    """Stops what takes too long."""

    def stop(*_):
        raise BaseException("took too long")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A config beside files that hang or explode; training ends before its first step."""

    def fit_run(*_, **__):
        raise ConfigError("enough")

    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(2**26), 9))
    (tmp_path / "spaces.txt").write_bytes(b" \n" * 1000)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jaxformer.runs.train.fit_run", fit_run)
    monkeypatch.setattr("jaxformer.memory.host_memory", lambda: 2**36)
    return write_config(tmp_path)


@pytest.mark.parametrize("name", CONFIGS)
def test_configs_end_well(config, capsys, name):
    text, message = CONFIGS[name]
    config.write_text(text.replace("{out}", "run").replace("{text}", "text.txt"), "utf-8")
    with limited():
        assert message in one_line(capsys, "train", config)
    assert not (config.parent / "run").exists()


def test_sizes_that_do_not_fit_are_refused_before_they_are_allocated(config, capsys):
    for key, value in SIZES:
        with limited():
            assert "enough" not in one_line(capsys, "train", config, f"--{key}={value}")
        assert not (config.parent / "run").exists(), key
