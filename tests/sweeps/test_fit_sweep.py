"""`fit_sweep`: runs in one program are the runs that `fit` trains alone."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxformer.config import LoopConfig
from jaxformer.errors import CheckpointError, ConfigError, DataError
from jaxformer.sweeps import fit as fits
from jaxformer.sweeps import fit_sweep
from jaxformer.sweeps.runs import name_runs
from jaxformer.training import (
    SingleRunner,
    TrainingData,
    Trial,
    fit,
    read_metrics,
)
from jaxformer.training.parallel import TogetherRunner
from tests.records import without_meters
from tests.training.test_fit import batch

LOOP = LoopConfig(steps=6, log_every=2, eval_every=3, checkpoint_every=3)


DATA = TrainingData([batch(i) for i in range(6)], lambda: [batch(98), batch(99)], unit="row")


def loss(params, batch, dropout_rng):
    error = batch["x"] @ params["kernel"] - batch["y"]
    if dropout_rng is not None:
        error *= jax.random.bernoulli(dropout_rng, 0.9, error.shape)
    return (error**2).sum(), error.shape[0]


def draw(rng):
    return {"kernel": jax.random.normal(rng, (3, 1))}


def make(learning_rate, weight_decay=0.0):
    return Trial(loss, draw, optax.adamw(learning_rate, weight_decay=weight_decay))


def sweep(folder, values=None, **options):
    values = {"learning_rate": [0.1, 0.3], "seed": [0, 1, 2]} if values is None else values
    options = {"make": make, "data": DATA, "loop": LOOP} | options
    return fit_sweep(options.pop("make"), values, options.pop("data"), folder, **options)


def alone(optimizer, data=DATA, folder=None, init_params=draw, loop=LOOP, seed=0):
    trial = Trial(loss, init_params, optimizer)
    return fit(trial, data, folder, loop, seed=seed, runner=SingleRunner())


def assert_same_records(records, expected):
    for record, other in zip(without_meters(records), without_meters(expected), strict=True):
        assert record == pytest.approx(other, rel=1e-6)


def test_every_run_is_the_run_trained_alone(tmp_path):
    runs = sweep(tmp_path)
    names = [run.name for run in runs]
    assert names[:2] == ["learning_rate=0.1,seed=0", "learning_rate=0.1,seed=1"]
    assert sorted(json.loads((tmp_path / "sweep.json").read_text())["runs"]) == sorted(names)
    for run in runs:
        rate, seed = run.values["learning_rate"], run.values["seed"]
        expected = alone(optax.adamw(rate, weight_decay=0), seed=seed)
        assert_same_records(run.result.records, expected.records)
        assert run.result.evaluation.loss == pytest.approx(expected.evaluation.loss, rel=1e-6)
        np.testing.assert_allclose(
            run.result.params["kernel"], expected.params["kernel"], rtol=1e-6, atol=1e-7
        )
        assert read_metrics(tmp_path / run.name) == list(run.result.records)


def steps_of(records):
    return [record for record in records if "loss" in record]


def test_a_resumed_sweep_is_the_uninterrupted_one(tmp_path):
    """Also if its runs were saved at different steps, as by a kill between two saves, or alone."""
    values = {"learning_rate": [0.1, 0.3], "seed": [0, 1]}
    whole = sweep(None, values)
    sweep(tmp_path, values, loop=LoopConfig(steps=2, log_every=2))
    alone(
        optax.adamw(0.3, weight_decay=0), folder=tmp_path / whole[3].name, seed=1,
        loop=LoopConfig(steps=4, log_every=2),
    )  # fmt: skip
    for run, expected in zip(sweep(tmp_path, values), whole, strict=True):
        np.testing.assert_allclose(
            run.result.params["kernel"], expected.result.params["kernel"], rtol=1e-6
        )
        records = read_metrics(tmp_path / run.name)
        assert_same_records(steps_of(records), steps_of(expected.result.records))


def test_a_run_that_diverges_leaves_alone(tmp_path, capsys):
    runs = sweep(tmp_path, {"learning_rate": [0.1, np.inf], "seed": [0, 1]})
    assert [run.failure for run in runs] == [
        None, None, *["loss or gradient is not finite at step 2"] * 2
    ]  # fmt: skip
    assert [run.result.step for run in runs] == [6, 6, 1, 1]
    assert "learning_rate=inf,seed=1: loss or gradient is not finite" in capsys.readouterr().out
    assert not (tmp_path / runs[2].name / "checkpoints" / "3").exists()
    np.testing.assert_array_equal(
        runs[0].result.params["kernel"], sweep(None)[0].result.params["kernel"]
    )
    again = sweep(tmp_path, {"learning_rate": [0.1, np.inf], "seed": [0, 1]})
    assert again[2].failure == runs[2].failure and again[0].result.step == 6


def test_what_is_not_a_number_is_compiled_in(tmp_path):
    def make(learning_rate, name, width):
        def draw(rng):
            return {"kernel": jnp.zeros((3, width))}

        return Trial(loss, draw, getattr(optax, name)(learning_rate))

    values = {"name": ["sgd", "adam"], "width": [1], "learning_rate": [0.1, 1]}
    runs = sweep(tmp_path, values, make=make)
    assert [run.name for run in runs][::3] == [
        "learning_rate=0.1,name=sgd,width=1", "learning_rate=1,name=adam,width=1"
    ]  # fmt: skip
    expected = alone(optax.adam(1.0), init_params={"kernel": jnp.zeros((3, 1))})
    assert_same_records(runs[3].result.records, expected.records)


def test_what_only_the_data_takes_shares_a_program(monkeypatch):
    calls = []

    def make():
        calls.append(1)
        return Trial(loss, draw, optax.sgd(0.1))

    def data(rows, seed):
        return TrainingData([batch(rows)] * 6, unit="row")

    runs = sweep(None, {"rows": [1, 2], "seed": [0, 1]}, make=make, data=data)
    counts = len(calls)
    expected = alone(optax.sgd(0.1), data(2, 1), seed=1)
    assert_same_records(runs[3].result.records, expected.records)
    calls.clear()
    sweep(None, {"rows": [1], "seed": [0, 1]}, make=make, data=data)
    assert counts == len(calls) + 2  # calls of one program, and one for each run more
    with pytest.raises(ConfigError, match="got 'rows', which no function takes; rename"):
        sweep(None, {"rows": [1]}, make=make)


def test_runs_may_have_batches_of_their_own(tmp_path):
    def data(seed, **_):
        batches = [batch(10 * seed + step) for step in range(6)]
        return TrainingData(batches, lambda: {"a": [batch(seed)], "b": [batch(9)]}, unit="row")

    runs = sweep(tmp_path, {"learning_rate": [0.1], "seed": [1, 2]}, data=data)
    expected = alone(optax.adamw(0.1, weight_decay=0), data(2), seed=2)
    assert_same_records(runs[1].result.records, expected.records)
    assert "loss b" in runs[1].result.records[-1]


def test_names_tell_values_apart_and_are_short():
    values = [0.1, 0.1 + 1e-9, 1e-4, np.float32(0.2), "a/b", draw, None, (), (0.9, 1)]
    names = name_runs([{"table.key": value} for value in values])
    assert names == [
        "key=0.1", "key=0.100000001", "key=0.0001", "key=0.2", "key=a_b", "key=draw",
        "key=None", "key=_", "key=_0.9_1_",
    ]  # fmt: skip


def test_devices_share_the_runs(monkeypatch):
    assert jax.local_device_count() >= 4
    used = []
    monkeypatch.setattr(
        fits, "TogetherRunner", lambda *args, **options: used.append(
            TogetherRunner(*args, **options)
        ) or used[-1],
    )  # fmt: skip
    runs = sweep(None, {"learning_rate": [0.1, 0.2, 0.25, 0.3], "seed": [0]})
    assert used[0].num_devices == 4
    expected = alone(optax.adamw(0.3, weight_decay=0))
    assert_same_records(runs[3].result.records, expected.records)


@pytest.mark.parametrize(
    ("values", "options", "error", "message"),
    [
        ({"learning_rate": []}, {}, ConfigError, "at least one value of each name, got none: lea"),
        ({"learning_rate": [0.1, 0.1]}, {}, ConfigError, "must differ, got learning_rate=0.1 tw"),
        ({"rate": [0.1], "seed": [0]}, {}, ConfigError, "parameters of make, got 'rate'"),
        (None, {"data": TrainingData([batch(0)])}, DataError, "each of the 6 steps, got 1"),
        (
            {"seed": [0]}, {"make": lambda: make(0.1)._replace(frozen={}, combine=dict)},
            ConfigError, "a sweep trains all parameters, got frozen ones",
        ),
    ],
)  # fmt: skip
def test_mistakes_get_one_line(values, options, error, message):
    with pytest.raises(error, match=message):
        sweep(None, values, **options)


def test_a_folder_of_another_sweep_is_refused(tmp_path):
    sweep(tmp_path, {"learning_rate": [np.float32(0.25)]}, loop=LoopConfig(steps=1))
    runs = json.loads((tmp_path / "sweep.json").read_text())["runs"]
    assert runs == {"learning_rate=0.25": {"learning_rate": 0.25}}
    with pytest.raises(CheckpointError, match="is a sweep of learning_rate, got learning_rate, se"):
        sweep(tmp_path, {"learning_rate": [0.1], "seed": [0]})
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(CheckpointError, match="not the folder of a sweep"):
        sweep(tmp_path, {"learning_rate": [0.1]})
