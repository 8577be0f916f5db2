"""Where the wall time of a training goes: the clock, its metrics, and its line."""

import dataclasses
import re
import time
import types

import jax
import numpy as np
import optax
import pytest

from jaxformer import accelerators
from jaxformer.accelerators import ACCELERATORS, accelerator_of
from jaxformer.config import LoopConfig
from jaxformer.training import PmapRunner, SingleRunner, TrainingData, Trial, fit, read_metrics
from jaxformer.training.parallel import Runner
from jaxformer.training.records import METERS, Activity, WallClock, clock
from tests.records import CPU_METERS

ROWS, D_IN, D_OUT = 10, 7, 3


def loss(params, batch, rng):
    return ((batch["x"] @ params) ** 2).sum(), batch["x"].shape[0]


def batch(step):
    return {"x": np.random.default_rng(step).normal(size=(ROWS, D_IN)).astype(np.float32)}


class Slow:
    """Batches that take a while."""

    def __getitem__(self, step):
        time.sleep(0.2)  # longer than a step, which runs meanwhile
        return batch(step)


def train(folder=None, batches=None, validation=None, steps=4, runner=None, **options):
    data = TrainingData(batches or [batch(step) for step in range(9)], validation, unit="row")
    trial = Trial(loss, np.ones((D_IN, D_OUT), np.float32), optax.sgd(1e-3))
    loop = LoopConfig(steps=steps, log_every=2, eval_every=2, checkpoint_every=2)
    return fit(trial, data, folder, loop, runner=runner or SingleRunner(), **options)


def test_clock_counts_the_innermost_activity_and_loses_no_time(monkeypatch):
    times = iter([0.0, 1.0, 3.0, 6.0, 10.0, 15.0])
    monkeypatch.setattr(clock, "time", types.SimpleNamespace(monotonic=times.__next__))
    watch = WallClock()  # 0 to 1: other
    with watch.during(Activity.STEPS):  # 1 to 3 and 6 to 10
        with pytest.raises(RuntimeError), watch.during(Activity.SAVING):  # 3 to 6
            raise RuntimeError
    assert watch.summary() == (  # 10 to 15: other
        "wall time 15.0 s: other 6.0 s (40%), steps 6.0 s (40%), saving 3.0 s (20%)"
    )


@pytest.mark.essential
def test_records_say_where_the_time_went_and_the_last_line_sums_it_up(tmp_path, capsys):
    def validation():
        time.sleep(0.2)
        return [batch(99)]

    began = time.monotonic()
    train(tmp_path, Slow(), validation)
    wall = time.monotonic() - began
    first, second = (record for record in read_metrics(tmp_path) if "loss" in record)
    assert set(METERS) & set(first) == set(CPU_METERS)
    # The first record has no validation behind it, and the second no compiling.
    assert first["seconds_compiling"] > 0 == first["seconds_evaluating"]
    assert second["seconds_evaluating"] >= 0.2 > second["seconds_compiling"] == 0
    for record in (first, second):
        assert record["seconds_waiting_for_data"] >= 0.4
        assert record["rows_per_second"] * record["seconds_per_step"] == pytest.approx(ROWS)
        assert 0.2 <= record["seconds_per_step"]
    # Neither compiling nor validation is of the two steps, which wait for data 0.2 seconds each.
    assert first["seconds_per_step"] < 0.2 + max(0.1, first["seconds_compiling"] / 2)  # if cached
    assert second["seconds_per_step"] < 0.2 + second["seconds_evaluating"] / 2
    *_, summary = capsys.readouterr().out.splitlines()
    parts = {name: float(spent) for name, spent in re.findall(r"([a-z ]+) (\d+\.\d) s \(", summary)}
    assert set(parts) == {" " + activity for activity in Activity}
    total = float(re.match(r"wall time (\d+\.\d) s: ", summary)[1])
    assert total == pytest.approx(sum(parts.values()), abs=0.31)
    assert total <= wall + 0.1
    assert parts[" waiting for data"] >= 0.8 and parts[" evaluating"] >= 0.4


@pytest.mark.parametrize("runner", [SingleRunner, PmapRunner])
def test_utilization_is_that_of_the_model_on_all_devices(tmp_path, monkeypatch, capsys, runner):
    """Three products: forward, and of the gradient only that of the parameters."""
    device = dataclasses.replace(ACCELERATORS["H100"], bfloat16=1e5)
    monkeypatch.setattr(Runner, "accelerator", device)
    monkeypatch.setattr(Runner, "peak_memory", 3 * 2**30)
    runner = runner() if runner is SingleRunner else runner(jax.local_devices()[:2])
    train(tmp_path, runner=runner)
    record = read_metrics(tmp_path)[-1]
    flops = 2 * (2 * ROWS * D_IN * D_OUT)
    achieved = flops / record["seconds_per_step"] / runner.num_devices
    assert record["flops_utilization"] == pytest.approx(achieved / 1e5)
    assert record["peak_memory_bytes"] == 3 * 2**30
    share = f"{record['flops_utilization']:.0%} model FLOPs utilization  3 GiB peak memory"
    assert re.search(rf"rows/s  \S+ s/step  {re.escape(share)}  0 s left", capsys.readouterr().out)


def test_data_that_is_loaded_while_a_step_is_computed_is_not_waited_for(monkeypatch):
    times = iter([0.0, 1.0, 3.0, 6.0])
    monkeypatch.setattr(clock, "time", types.SimpleNamespace(monotonic=times.__next__))
    watch = WallClock()
    with watch.during(Activity.DATA, counts=lambda: False):
        pass
    assert watch.seconds()[Activity.DATA] == 0 and watch._spent[Activity.OTHER] == 6


def test_a_loss_whose_products_cannot_be_counted_trains_without_utilization(tmp_path, monkeypatch):
    def looped(params, batch, rng):
        def go_on(carry):
            return jax.numpy.abs(carry).max() > 1e9

        y = jax.lax.while_loop(go_on, lambda y: y @ (params @ params.T), batch["x"])
        return (jax.lax.stop_gradient(y).sum() + (batch["x"] @ params).sum()), ROWS

    monkeypatch.setattr(Runner, "accelerator", ACCELERATORS["H100"])
    data = TrainingData([batch(step) for step in range(4)], unit="row")
    trial = Trial(looped, np.ones((D_IN, D_OUT), np.float32), optax.sgd(1e-3))
    fit(trial, data, tmp_path, LoopConfig(steps=4, log_every=2), runner=SingleRunner())
    assert "flops_utilization" not in read_metrics(tmp_path)[-1]


def test_devices_are_known_by_the_names_that_jax_gives_them():
    assert {*accelerators._KINDS.values()} == {*ACCELERATORS}
    kinds = {"NVIDIA H100 80GB HBM3": "H100", "TPU v5 lite": "v5e", "TPU v5": "v5p"}
    for kind, name in kinds.items():
        device = types.SimpleNamespace(device_kind=kind)
        assert accelerator_of(device) is ACCELERATORS[name]
    assert accelerator_of(jax.local_devices()[0]) is None
    assert SingleRunner().accelerator is None and SingleRunner().peak_memory is None
