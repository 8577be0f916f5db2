"""Bad numbers in training: what they come from, and how many are skipped."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxformer.config import LoopConfig
from jaxformer.errors import TrainingError
from jaxformer.training import (
    PmapRunner,
    SingleRunner,
    TrainState,
    make_train_step,
    read_metrics,
)
from tests.training import saved, test_fit

RUNNERS = {1: SingleRunner, 2: lambda: PmapRunner(jax.local_devices()[:2])}
OPTIMIZER = optax.adam(0.1)


def loss(params, batch, rng):
    """Squared error of rows with "x"."""
    error = batch["x"] * params["first"] + params["second"] - 1
    return (error**2).sum(), jnp.float32(error.size)


def start():
    return {"first": jnp.ones((1, 3)), "second": jnp.zeros((1, 3))}


def batch(step, bad=()):
    x = np.random.default_rng(step).normal(size=(8, 3)).astype(np.float32)
    x[list(bad), 1] = np.nan
    return {"x": x}


class Batches:
    """Batches by step, some rows of which are NaN."""

    def __init__(self, bad):
        self.bad = bad

    def __getitem__(self, step):
        return batch(step, self.bad.get(step, ()))


def train(folder, bad, *, steps=6, skip=0, devices=1, **options):
    loop = LoopConfig(
        steps=steps, log_every=2, eval_every=2, checkpoint_every=2, skip_bad_steps=skip
    )
    return test_fit.train(
        folder, loop=loop, batches=Batches(bad), loss=loss, init_params=start(),
        optimizer=OPTIMIZER, runner=RUNNERS[devices](), **options,
    )  # fmt: skip


def restored(folder, devices=1):
    return saved.restored(folder, start(), OPTIMIZER, RUNNERS[devices]())


@pytest.mark.parametrize("devices", [1, 2])
def test_a_bad_step_ends_the_run_and_names_the_learning_rate(tmp_path, devices):
    with pytest.raises(TrainingError) as raised:
        train(tmp_path, {2: (5,)}, devices=devices, learning_rate=lambda step: 1000.0 * (step + 5))
    assert str(raised.value) == (
        "loss or gradient is not finite at step 3; the run is saved up to step 2; unless the batch "
        "is bad, the likeliest cause is the learning rate, 7000 at this step: lower it, or the "
        "norm to which gradients are clipped, and choose another folder"
    )


def test_skipped_steps_change_nothing_and_are_counted():
    runner = SingleRunner()
    step = runner.compile_train(make_train_step(loss, OPTIMIZER, seed=0, skip_bad_steps=2))
    state, counts = runner.place(TrainState.create(start(), OPTIMIZER)), []
    before = jax.device_get(step(state, batch(0))[0])
    state = runner.place(before)
    for bad in (True, True, True, False):
        state, metrics = step(state, batch(1, (0,) if bad else ()))
        counts.append([int(x) for x in (state.step, state.skipped_steps, state.bad_step)])
        assert [int(metrics[name]) for name in ("skipped_steps", "bad_step")] == counts[-1][1:]
    assert counts == [[2, 1, -1], [3, 2, -1], [3, 2, 3], [3, 2, 3]]
    for name in ("params", "opt_state"):
        saved.assert_same(getattr(state, name), getattr(before, name))


@pytest.mark.parametrize("devices", [1, 2])
def test_a_run_with_skipped_steps_resumes_bitwise(tmp_path, devices, capsys):
    bad, rate = {1: (2,), 4: (0, 1)}, lambda step: 0.1 / (1 + step)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = {"skip": 2, "devices": devices, "learning_rate": rate}
    train(whole, bad, steps=7, **options)
    lines = re.findall(r"^step \d: loss or gradient .*", capsys.readouterr().out, re.MULTILINE)
    assert lines == [
        "step 2: loss or gradient is not finite; skipped its batch, 1 of at most 2",
        "step 5: loss or gradient is not finite; skipped its batch, 2 of at most 2",
    ]
    for steps in (3, 7):
        train(parts, bad, steps=steps, **options)
    saved.assert_same(restored(parts, devices), restored(whole, devices))
    records = {record["step"]: record for record in read_metrics(whole)}
    assert [records[step]["skipped_steps"] for step in (2, 4, 6, 7)] == [1, 1, 2, 2]
    # The rate that the optimizer's own count has come to, which knows no skipped steps.
    assert [records[step]["learning_rate"] for step in (2, 4, 6)] == [rate(0), rate(2), rate(3)]
    clean = {step: r["loss"] for step, r in records.items()}
    assert all(np.isfinite(list(clean.values())))


@pytest.mark.essential
def test_one_bad_step_too_many_stops_and_may_be_allowed_on_resume(tmp_path):
    bad = {1: (4,), 2: (3,)}
    with pytest.raises(TrainingError, match="at step 3; 1 such steps before it were skipped"):
        train(tmp_path, bad, skip=1)
    assert int(restored(tmp_path).skipped_steps) == 1
    assert train(tmp_path, bad, skip=2).step == 6


def test_a_log_of_skipped_steps_alone_has_no_loss(tmp_path):
    train(tmp_path, {2: (1,), 3: (1,)}, skip=2, steps=4)
    (record,) = [r for r in read_metrics(tmp_path) if r["step"] == 4]
    assert record["skipped_steps"] == 2 and not {"loss", "grad_norm"} & record.keys()
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()


def test_a_bad_validation_loss_ends_the_run(tmp_path):
    batches = [batch(100), batch(101, (3,))]
    message = "validation loss is not finite at step 2; the run is saved up to step 0; unless"
    with pytest.raises(TrainingError, match=message):
        train(tmp_path, {}, validation=lambda: batches)
