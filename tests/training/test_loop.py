import os
import signal

import jax
import pytest

from jaxformer.config import (
    AdafactorConfig,
    AdamWConfig,
    LionConfig,
    LoopConfig,
    MuonConfig,
    ScheduleConfig,
    SgdConfig,
)
from jaxformer.errors import ConfigError
from jaxformer.training import (
    PmapRunner,
    TrainingData,
    Trial,
    fit,
    language_model_loss,
    make_optimizer,
    make_schedule,
    read_metrics,
)
from tests.records import without_meters
from tests.training import saved, tiny


class Batches:
    """Batches by step, and the steps that were asked for."""

    def __init__(self, at_step=lambda step: None):
        self.asked, self._at_step = [], at_step

    def __getitem__(self, step):
        self.asked.append(step)
        self._at_step(step)
        return tiny.batch(step)


ADAMW = AdamWConfig(learning_rate=1e-2)
SCHEDULE = ScheduleConfig(name="cosine", warmup_steps=1, decay_steps=8)


def train(folder, steps, batches=None, optimizer=ADAMW, devices=2):
    data = TrainingData(
        batches=batches or Batches(),
        validation=lambda: iter([tiny.batch(100), tiny.batch(101)]),
        validation_bytes=1000,
    )
    loss = language_model_loss(tiny.model(dropout_rate=0.3))
    trial = Trial(
        loss, tiny.init_params, make_optimizer(optimizer, SCHEDULE),
        learning_rate=make_schedule(optimizer.learning_rate, SCHEDULE),
    )  # fmt: skip
    loop = LoopConfig(steps=steps, log_every=2, eval_every=2, checkpoint_every=2)
    return fit(trial, data, folder, loop, runner=PmapRunner(jax.local_devices()[:devices]))


def final_state(folder, optimizer=ADAMW, devices=2):
    params, runner = tiny.init_params(jax.random.key(0)), PmapRunner(jax.local_devices()[:devices])
    return saved.restored(folder, params, make_optimizer(optimizer, SCHEDULE), runner)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    result = train(folder, 5)
    assert result.step == 5 and result.stop_signal is None
    return folder


@pytest.mark.thorough
def test_resumed_run_is_bitwise_the_uninterrupted_one(tmp_path, uninterrupted):
    """Dropout on: the rng is a function of the step, not of what ran before."""
    train(tmp_path, 2)
    batches = Batches()
    train(tmp_path, 5, batches)
    assert batches.asked == [2, 3, 4]
    saved.assert_same(final_state(tmp_path), final_state(uninterrupted))
    assert without_meters(read_metrics(tmp_path)) == without_meters(read_metrics(uninterrupted))


@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(SgdConfig(learning_rate=0.1, nesterov=True), marks=pytest.mark.slow),
        pytest.param(LionConfig(learning_rate=1e-3), marks=pytest.mark.slow),
        pytest.param(AdafactorConfig(learning_rate=0.1, momentum=0.5), marks=pytest.mark.slow),
        pytest.param(MuonConfig(learning_rate=1e-2), marks=pytest.mark.slow),
    ],
    ids=lambda optimizer: optimizer.name,
)
def test_resumed_run_of_another_optimizer_is_bitwise_the_uninterrupted_one(tmp_path, optimizer):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, 3, optimizer=optimizer, devices=1)
    for steps in (2, 3):
        train(parts, steps, optimizer=optimizer, devices=1)
    states = [final_state(folder, optimizer, devices=1) for folder in (whole, parts)]
    saved.assert_same(*states)
    start = tiny.init_params(jax.random.key(0))
    moved = jax.tree.map(lambda a, b: (a != b).any(), states[0].params, start)
    assert all(jax.tree.leaves(moved))


@pytest.mark.thorough
def test_run_stopped_by_a_signal_is_saved_and_goes_on_bitwise(tmp_path, uninterrupted):
    def interrupt(step):
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    result = train(tmp_path, 5, Batches(interrupt))
    assert result.stop_signal == signal.SIGTERM and result.step == 4
    assert signal.getsignal(signal.SIGTERM) is before
    assert [record["step"] for record in read_metrics(tmp_path)] == [2, 2, 4]
    train(tmp_path, 5)
    saved.assert_same(final_state(tmp_path), final_state(uninterrupted))
    assert without_meters(read_metrics(tmp_path)) == without_meters(read_metrics(uninterrupted))


@pytest.mark.thorough
def test_finished_run_trains_no_further(uninterrupted):
    batches = Batches()
    assert train(uninterrupted, 5, batches).step == 5
    assert batches.asked == []


@pytest.mark.thorough
def test_fewer_steps_than_trained_are_refused(uninterrupted):
    with pytest.raises(ConfigError, match=r"already been trained to step 5, got steps=3"):
        train(uninterrupted, 3)
