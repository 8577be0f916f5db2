"""Bad numbers in training: what they come from, and how many are skipped."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxformer.config import LoopConfig
from jaxformer.errors import ConfigError, TrainingError
from jaxformer.training import (
    Checkpoints,
    PmapRunner,
    SingleRunner,
    TrainingData,
    TrainState,
    Trial,
    fit,
    make_train_step,
    read_metrics,
)
from jaxformer.training.records.diagnosis import bad_rows
from jaxformer.training.trial import Recipe, RunSpec

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


def train(folder, bad, *, steps=6, skip=0, devices=1, validation=None, **options):
    data = TrainingData(Batches(bad), validation=validation, unit="row")
    loop = LoopConfig(
        steps=steps, log_every=2, eval_every=2, checkpoint_every=2, skip_bad_steps=skip,
        accumulate_steps=options.pop("accumulate_steps", 1),
    )  # fmt: skip
    trial = Trial(
        options.pop("loss", loss), start(), OPTIMIZER,
        learning_rate=options.pop("learning_rate", None),
    )  # fmt: skip
    return fit(trial, data, folder, loop, runner=RUNNERS[devices](), **options)


def saved(folder, devices=1):
    with Checkpoints(folder / "checkpoints") as checkpoints:
        template = RUNNERS[devices]().place(TrainState.create(start(), OPTIMIZER))
        return jax.device_get(checkpoints.restore(template))


@pytest.mark.parametrize("devices", [1, 2])
def test_a_bad_step_names_its_rows_and_the_first_leaf(tmp_path, devices, capsys):
    with pytest.raises(TrainingError) as raised:
        train(tmp_path, {2: (5,)}, devices=devices)
    assert str(raised.value) == (
        "loss or gradient is not finite at step 3; the run is saved up to step 2; bad rows of the "
        "8 of its batch: 5; first bad gradient: first; unless the data is bad, the likeliest cause "
        "is the learning rate: lower it, or the norm to which gradients are clipped, and choose "
        "another folder"
    )
    assert "step 3 is not finite; computing it again" in capsys.readouterr().out


def test_learning_rate_that_is_too_high_is_named_with_its_value(tmp_path):
    with pytest.raises(TrainingError, match=r"likeliest cause is the learning rate, 7000 at this"):
        train(tmp_path, {2: (5,)}, learning_rate=lambda step: 1000.0 * (step + 5))


def examine(loss_function, params, rows, devices=1, accumulate_steps=1, **options):
    runner, step = RUNNERS[devices](), options.pop("step", 0)
    spec = RunSpec(
        Recipe.of(Trial(loss_function, params, OPTIMIZER), options.pop("seed", 0)),
        TrainingData([rows] * (step + 1)),
        LoopConfig(steps=1, accumulate_steps=accumulate_steps),
    )
    return bad_rows(spec, runner, step, runner.place(jax.tree.map(jnp.asarray, params)))


def total(params, batch, rng):
    return (params["scale"] * batch["x"]).sum() + 0 * params["other"].sum(), jnp.float32(1)


PARAMS = {"other": jnp.zeros(2), "scale": jnp.float32(1)}


@pytest.mark.parametrize(
    ("x", "params", "message"),
    [
        ([1, np.inf, 3, np.nan], PARAMS,
         "bad rows of the 4 of its batch: 1, 3; first bad gradient: scale"),
        ([np.nan] * 12, PARAMS, "of the 12 of its batch: 0, 1, 2, 3, 4, 5, 6, 7 and more; first"),
        ([1, 2], PARAMS | {"other": jnp.float32([0, np.inf])}, "first bad parameter: other"),
        ([3e38, 1, 3e38], PARAMS,
         "bad rows of the 3 of its batch: none alone; first bad gradient: none"),
    ],
    ids=["two", "many", "parameter", "sum"],
)  # fmt: skip
def test_diagnosis_tells_rows_and_leaf(x, params, message):
    assert message in examine(total, params, {"x": np.float32(x)})


def test_a_loss_alone_that_is_not_finite_is_told_from_its_gradient():
    def constant(params, batch, rng):
        return params.sum() + jax.lax.stop_gradient(jnp.log(batch["x"]).sum()), jnp.float32(1)

    text = examine(constant, jnp.ones(2), {"x": np.float32([1, 0])})
    assert text == "bad rows of the 2 of its batch: 1; first bad gradient: none"


@pytest.mark.parametrize(("devices", "accumulate_steps"), [(1, 4), (2, 2)])
def test_rows_are_given_the_dropout_keys_of_the_step(devices, accumulate_steps):
    """The loss is bad for the keys below a half, which are those of whole micro-batches."""

    def draw(params, batch, rng):
        value = jax.random.uniform(rng)
        return params * jnp.where(value < 0.5, jnp.nan, value), jnp.float32(1)

    def draws(seed, step):
        key = jax.random.fold_in(jax.random.key(seed), step)
        keys = [jax.random.fold_in(key, d) for d in range(devices)]
        keys = [jax.random.fold_in(k, m) for k in keys for m in range(accumulate_steps)]
        return [float(jax.random.uniform(key)) for key in keys]

    step, seed = 3, 0
    while not 1 <= sum(draw < 0.5 for draw in draws(seed, step)) < 4:  # so that rows differ
        seed += 1
    per_device = 8 // devices
    places = [(row // per_device, row % per_device % accumulate_steps) for row in range(8)]
    uniforms = draws(seed, step)
    bad = [row for row, (d, m) in enumerate(places) if uniforms[d * accumulate_steps + m] < 0.5]
    text = examine(
        draw, jnp.float32(1), {"x": np.zeros(8)}, devices, accumulate_steps, seed=seed, step=step
    )
    assert f"bad rows of the 8 of its batch: {', '.join(map(str, bad))};" in text


def test_a_loss_that_takes_no_single_row_still_ends_in_the_message(tmp_path):
    def of_many(params, batch, rng):
        if batch["x"].shape[0] == 1:
            raise RuntimeError("needs negatives\nin the batch")
        return loss(params, batch, rng)

    with pytest.raises(TrainingError, match=r"one by one \(needs negatives\); unless the"):
        train(tmp_path, {0: (5,)}, loss=of_many)


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
        jax.tree.map(np.testing.assert_array_equal, getattr(state, name), getattr(before, name))


@pytest.mark.parametrize("devices", [1, 2])
def test_a_run_with_skipped_steps_resumes_bitwise(tmp_path, devices, capsys):
    bad, rate = {1: (2,), 4: (0, 1)}, lambda step: 0.1 / (1 + step)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = {"skip": 2, "devices": devices, "learning_rate": rate}
    train(whole, bad, steps=7, **options)
    lines = re.findall(r"step \d: loss or gradient .*", capsys.readouterr().out)
    assert lines == [
        "step 2: loss or gradient is not finite; skipped its batch, 1 of at most 2",
        "step 5: loss or gradient is not finite; skipped its batch, 2 of at most 2",
    ]
    for steps in (3, 7):
        train(parts, bad, steps=steps, **options)
    jax.tree.map(np.testing.assert_array_equal, saved(parts, devices), saved(whole, devices))
    records = {record["step"]: record for record in read_metrics(whole)}
    assert [records[step]["skipped_steps"] for step in (2, 4, 6, 7)] == [1, 1, 2, 2]
    # The rate that the optimizer's own count has come to, which knows no skipped steps.
    assert [records[step]["learning_rate"] for step in (2, 4, 6)] == [rate(0), rate(2), rate(3)]
    clean = {step: r["loss"] for step, r in records.items()}
    assert all(np.isfinite(list(clean.values())))


def test_the_skipped_run_equals_one_that_never_had_these_batches(tmp_path):
    class Without:
        def __getitem__(self, step):
            return batch([0, 2, 3][step])

    skipped = train(tmp_path / "skipped", {1: (4,)}, steps=4, skip=1)
    data = TrainingData(Without())
    loop = LoopConfig(steps=3)
    trial = Trial(loss, start(), OPTIMIZER)
    clean = fit(trial, data, tmp_path / "clean", loop, runner=SingleRunner())
    jax.tree.map(np.testing.assert_array_equal, skipped.params, clean.params)


@pytest.mark.essential
def test_one_bad_step_too_many_stops_and_may_be_allowed_on_resume(tmp_path):
    bad = {1: (4,), 2: (3,)}
    with pytest.raises(TrainingError, match=r"at step 3; .*; 1 such steps before it were skipped"):
        train(tmp_path, bad, skip=1)
    assert int(saved(tmp_path).skipped_steps) == 1
    assert train(tmp_path, bad, skip=2).step == 6


def test_a_log_of_skipped_steps_alone_has_no_loss(tmp_path):
    train(tmp_path, {2: (1,), 3: (1,)}, skip=2, steps=4)
    (record,) = [r for r in read_metrics(tmp_path) if r["step"] == 4]
    assert record["skipped_steps"] == 2 and not {"loss", "grad_norm"} & record.keys()
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()


@pytest.mark.parametrize("value", [-1, 2**31, 1.5, True, "2"])
def test_impossible_numbers_of_bad_steps_are_refused(value):
    with pytest.raises(ConfigError, match="skip_bad_steps must be"):
        LoopConfig(steps=1, skip_bad_steps=value)


def test_a_bad_validation_loss_names_its_batch(tmp_path):
    batches = [batch(100), batch(101), batch(102, (3,)), batch(103, (3,))]
    with pytest.raises(
        TrainingError,
        match=r"validation loss is not finite at step 2; the run is saved up to step 0; the first "
        r"bad validation batch is number 2, counted from 0; unless",
    ):
        train(tmp_path, {}, validation=lambda: batches)
