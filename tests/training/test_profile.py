"""Traces of training steps: which steps, what is read of them, and what is refused."""

import re

import jax
import numpy as np
import optax
import pytest

from jaxformer.config import LoopConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.training import (
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


def train(folder, profile, *, runner=None, steps=6):
    data = TrainingData([tiny.batch(step) for step in range(steps)], lambda: [tiny.batch(99)])
    trial = Trial(language_model_loss(tiny.model()), tiny.init_params, optax.adam(1e-3))
    loop = LoopConfig(steps=steps, log_every=3, eval_every=4, checkpoint_every=3)
    return fit(trial, data, folder, loop, runner=runner or SingleRunner(), profile=profile)


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, train(folder, range(2, 6))


def check(found):
    assert found.steps == 4
    assert PARTS < set(found.device)
    assert {"waiting for data", "saving", "evaluating"} == set(found.host)
    seconds = list(found.device.values())
    assert seconds == sorted(seconds, reverse=True) and min(seconds) > 0
    # Validation, once after step 4, is of another program.
    assert found.device["other programs"] > 0


def test_profile_has_the_steps_the_parts_of_the_model_and_the_work_of_the_host(traced):
    check(read_profile(traced[0]))


def test_profile_of_several_devices_is_that_of_one(tmp_path):
    train(tmp_path, range(2, 6), runner=PmapRunner(jax.local_devices()[:2]))
    check(read_profile(tmp_path))


def test_profile_changes_no_bit_of_the_training(traced, tmp_path):
    plain = train(tmp_path, None)
    jax.tree.map(np.testing.assert_array_equal, plain.params, traced[1].params)
    assert not (tmp_path / "profile").exists()


def test_profile_of_the_last_step_ends_with_it(tmp_path):
    train(tmp_path, range(6, 7))
    found = read_profile(tmp_path)
    assert found.steps == 1 and "saving" not in found.host


@pytest.mark.parametrize("profile", [range(0, 2), range(5, 8), range(3, 3), range(1, 6, 2)])
def test_steps_that_will_not_be_taken_are_refused(tmp_path, profile):
    wanted = f"steps between 1 and 6, one after the other, got {profile.start}:{profile.stop}"
    with pytest.raises(ConfigError, match=re.escape(wanted)):
        train(tmp_path, profile)
    assert not (tmp_path / "profile").exists()


def test_steps_of_a_resumed_run_are_those_that_are_left(tmp_path):
    train(tmp_path, None, steps=3)
    with pytest.raises(ConfigError, match="steps between 4 and 6, .* got 3:5; 4:7 traces"):
        train(tmp_path, range(3, 5))


def test_profile_needs_a_folder():
    with pytest.raises(ConfigError, match="written to the run folder, got folder=None"):
        train(None, range(2, 4))


def test_a_trace_that_is_being_taken_is_not_disturbed(tmp_path):
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # much faster
    with jax.profiler.trace(tmp_path / "own", profiler_options=options):
        with pytest.raises(ConfigError, match="while another trace is taken"):
            train(tmp_path / "run", range(2, 4))
    assert list((tmp_path / "own").rglob("*.xplane.pb"))


def test_a_run_without_a_trace_says_how_to_take_one(tmp_path):
    with pytest.raises(DataError, match="has no trace of steps; take one with --profile 20:25"):
        read_profile(tmp_path)


def test_a_trace_of_something_else_is_refused(tmp_path):
    with jax.profiler.trace(tmp_path / "profile"):
        jax.numpy.ones(3).sum().block_until_ready()
    with pytest.raises(DataError, match="has no training step"):
        read_profile(tmp_path)
