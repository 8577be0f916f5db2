"""Training on a CPU that the command splits into two devices by default."""

import pytest

from jaxformer.memory import usable_cores
from jaxformer.training import read_metrics
from tests.cli.commands import TEXT
from tests.cli.forks import Forks

CONFIG = """
[data]
source = "files"
paths = ["{text}"]
validation_fraction = 0.2
[tokenizer]
kind = "character"
[model]
max_len = 64
num_layers = 1
d_model = 64
num_heads = 2
[optimizer]
learning_rate = 1e-2
[schedule]
name = "constant"
[training]
steps = 6
batch_size = 96
accumulate_steps = 2
log_every = 1
eval_every = 2
checkpoint_every = 3
"""
SPLIT = "the CPU is split into 2 devices"
ONE = ("--training.cpu-devices", "1")


@pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")
def test_run_has_the_same_losses_on_one_device_and_two_also_if_resumed_on_the_other(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    text, config = tmp_path / "text.txt", tmp_path / "small.toml"
    text.write_text(TEXT * 12, encoding="utf-8")
    config.write_text(CONFIG.format(text=text.as_posix()), encoding="utf-8")

    def train(name, *flags):
        """Trains in a folder of this name; whether the output says that the CPU is split."""
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        status, _ = forks.run(
            "train", config, "--out", tmp_path / name, *flags, log=log, report=False
        )
        said = log.read_text(encoding="utf-8")
        assert status == 0, said
        return SPLIT in said

    half = ("--training.steps", "3")
    with Forks() as forks:
        assert not train("one", *ONE)
        assert not train("one_to_two", *half, *ONE) and train("one_to_two")
        assert train("two_to_one", *half) and not train("two_to_one", *ONE)
    expected = read_metrics(tmp_path / "one")
    assert {"loss", "validation_loss"} <= set().union(*expected)
    for name in ("one_to_two", "two_to_one"):
        found = {}
        for record in read_metrics(tmp_path / name):
            found.setdefault(record["step"], {}).update(record)
        for record in expected:
            for key in {"loss", "grad_norm", "validation_loss"} & set(record):
                assert found[record["step"]][key] == pytest.approx(record[key], rel=1e-5), name
