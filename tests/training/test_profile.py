"""Traces of training steps: which steps, what is read of them, and what is refused."""

import functools
import re
import signal

import jax
import numpy as np
import optax
import pytest

from jaxformer.config import LoopConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.training import (
    Checkpoints,
    PmapRunner,
    SingleRunner,
    TrainingData,
    Trial,
    fit,
    language_model_loss,
    read_profile,
)
from tests.training import tiny

PARTS = {"attention", "feed-forward", "norms", "logits and loss", "optimizer"}


def train(folder, profile, *, runner=None, steps=6, batches=None):
    batches = batches or [tiny.batch(step) for step in range(steps)]
    data = TrainingData(batches, lambda: [tiny.batch(99)])
    trial = Trial(language_model_loss(tiny.model()), tiny.init_params, optax.adam(1e-3))
    loop = LoopConfig(steps=steps, log_every=3, eval_every=4, checkpoint_every=3)
    return fit(trial, data, folder, loop, runner=runner or SingleRunner(), profile=profile)


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, train(folder, range(2, 6))


def check(profile):
    assert profile.steps == 4
    assert PARTS < set(profile.device_seconds)
    assert {"waiting for data", "saving", "evaluating"} == set(profile.host_seconds)
    seconds = list(profile.device_seconds.values())
    assert seconds == sorted(seconds, reverse=True) and min(seconds) > 0
    # Validation, once after step 4, is of another program.
    assert profile.device_seconds["other programs"] > 0


@pytest.mark.thorough
def test_profile_has_the_steps_the_parts_of_the_model_and_the_work_of_the_host(traced):
    check(read_profile(traced[0]))


def test_profile_of_several_devices_is_that_of_one(tmp_path):
    train(tmp_path, range(2, 6), runner=PmapRunner(jax.local_devices()[:2]))
    check(read_profile(tmp_path))


@pytest.mark.thorough
def test_profile_changes_no_bit_of_the_training(traced, tmp_path):
    plain = train(tmp_path, None)
    jax.tree.map(np.testing.assert_array_equal, plain.params, traced[1].params)
    assert not (tmp_path / "profile").exists()


@pytest.mark.parametrize("profile", [range(0, 2), range(5, 8), range(3, 3), range(1, 6, 2)])
def test_steps_that_a_training_does_not_have_are_refused(tmp_path, profile):
    message = f"must be consecutive and in 1 .. 6, got {profile}; try 2:7"
    with pytest.raises(ConfigError, match=re.escape(message)):
        train(tmp_path, profile)
    assert not (tmp_path / "profile").exists()


def test_the_command_of_a_run_that_was_stopped_traces_the_steps_that_are_left(tmp_path):
    train(tmp_path, None, steps=3)
    train(tmp_path, range(3, 6))
    assert read_profile(tmp_path).steps == 2
    train(tmp_path, range(3, 6))  # has none left
    assert read_profile(tmp_path).steps == 2


class Failing:
    """Batches that fail at step 4."""

    def __init__(self, fail):
        self._fail = fail

    def __getitem__(self, step):
        if step == 3:
            self._fail()
        return tiny.batch(step)


def test_an_error_or_a_signal_within_the_traced_steps_ends_the_trace_and_is_not_hidden(tmp_path):
    def error():
        raise RuntimeError("no batch")

    with pytest.raises(RuntimeError, match="no batch"):
        train(tmp_path / "error", range(2, 6), batches=Failing(error))
    assert read_profile(tmp_path / "error").steps == 2
    stop = functools.partial(signal.raise_signal, signal.SIGTERM)
    result = train(tmp_path / "signal", range(2, 6), batches=Failing(stop))
    assert result.stop_signal == signal.SIGTERM and result.step == 4
    assert read_profile(tmp_path / "signal").steps == 3
    with Checkpoints(tmp_path / "signal" / "checkpoints", read_only=True) as checkpoints:
        assert checkpoints.latest_step == 4


def test_profile_needs_a_folder():
    with pytest.raises(ConfigError, match="needs a run folder to write to, got folder=None"):
        train(None, range(2, 4))


def test_a_run_without_a_trace_says_how_to_take_one(tmp_path):
    with pytest.raises(DataError, match="has no trace of steps; train with --profile 20:25"):
        read_profile(tmp_path)
