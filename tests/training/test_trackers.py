"""`log_to`: tools that get the metrics of a run, each here by a stand-in for its library."""

import dataclasses
import importlib.machinery
import json
import re
import sys
import types

import optax
import pytest

from jaxformer import runs
from jaxformer.config import LoopConfig
from jaxformer.errors import ConfigError, TrainingError
from jaxformer.sweeps import train_sweep
from jaxformer.training import read_metrics
from tests.runs import tiny
from tests.training.test_callbacks import LOOP, stopped_by


class Tool:
    """A stand-in for wandb, mlflow or trackio: what its runs get, by their ids."""

    def __init__(self, monkeypatch, name, **functions):
        self.opened, self.logged, self.ended = [], {}, []
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        for function, value in functions.items():
            setattr(module, function, value)
        monkeypatch.setitem(sys.modules, name, module)

    def open(self, run_id, **options):
        self.opened.append((run_id, options))
        records = self.logged.setdefault(run_id, [])
        return types.SimpleNamespace(
            id=run_id,
            log=lambda values, step: records.append({"step": step, **values}),
            finish=lambda exit_code=0: self.ended.append(exit_code),
        )


def wandb(monkeypatch):
    tool = Tool(monkeypatch, "wandb", init=lambda id, **options: tool.open(id, **options))
    return tool


def trackio(monkeypatch):
    def init(project, name, **options):
        assert project == "jaxformer"
        return tool.open(name, **options)

    tool = Tool(monkeypatch, "trackio", init=init)
    return tool


def mlflow(monkeypatch):
    """Its runs are within the active one, which functions without an id mean."""
    active = []

    def start_run(run_id, run_name, nested):
        assert not active, "a run would be within another one"
        active.append(tool.open(run_id or f"run {len(tool.opened)}", name=run_name, config={}))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=active[0].id))

    def end_run(status):
        assert status == "RUNNING" and active.pop()

    def log_metrics(values, step, run_id):
        assert not re.search(r"[^\w\-. :/]", "".join(values))
        tool.logged[run_id].append({"step": step, **values})

    def log_params(settings):
        assert active and len(settings) <= 100
        tool.opened[-1][1]["config"].update(settings)

    def client():
        def set_terminated(run_id, status):
            tool.ended.append({"FINISHED": 0, "FAILED": 1}[status])

        return types.SimpleNamespace(set_terminated=set_terminated)

    tool = Tool(
        monkeypatch, "mlflow", start_run=start_run, end_run=end_run, log_metrics=log_metrics,
        log_params=log_params, MlflowClient=client,
    )  # fmt: skip
    return tool


@pytest.mark.parametrize("make", [wandb, mlflow, trackio])
def test_tool_gets_every_record_and_a_resumed_run_goes_on(tmp_path, monkeypatch, make):
    tool, name = make(monkeypatch), make.__name__
    first = LoopConfig(steps=4, log_every=2, eval_every=1, checkpoint_every=4, log_to=(name,))
    stopped_by(tmp_path / "run", loop=first)
    stopped_by(tmp_path / "run", loop=dataclasses.replace(LOOP, log_to=(name,)))
    (run_id, opened), (resumed, _) = tool.opened
    assert run_id == resumed and "run" in (opened.get("name") or run_id)
    assert tool.logged == {run_id: read_metrics(tmp_path / "run")} and tool.ended == [0, 0]
    stopped_by(tmp_path / "another", loop=dataclasses.replace(LOOP, log_to=(name,)))
    assert tool.opened[-1][0] != run_id

    def fail(step, metrics):
        raise KeyError("of a callback")

    with pytest.raises(KeyError):
        stopped_by(tmp_path / "failed", fail, loop=dataclasses.replace(LOOP, log_to=(name,)))
    has_failed = 0 if make is trackio else 1  # trackio has no failed runs
    assert tool.ended[-1] == has_failed
    diverging = {"loop": dataclasses.replace(LOOP, log_to=(name,)), "optimizer": optax.sgd(1e38)}
    with pytest.raises(TrainingError, match="not finite"):
        stopped_by(tmp_path / "diverged", **diverging)
    assert tool.ended[3:] == [has_failed] * 2


@pytest.mark.parametrize("make", [wandb, mlflow, trackio])
def test_runs_of_a_sweep_that_train_at_once_are_runs_of_their_own(tmp_path, monkeypatch, make):
    tool = make(monkeypatch)
    config = tiny.config_of_sentences(tmp_path, training={"steps": 2, "log_to": (make.__name__,)})
    config = dataclasses.replace(config, out=str(tmp_path / "sweep"))
    train_sweep(config, {"optimizer.learning_rate": [1e-3, 1e36]})
    logged = [[record["step"] for record in records] for records in tool.logged.values()]
    assert logged == [[1, 2, 2], [1]]  # the second diverges
    assert sorted(tool.ended) == [0, 0 if make is trackio else 1]


def test_csv_has_every_record_once_also_after_a_kill(tmp_path):
    loop = dataclasses.replace(LOOP, log_to=("csv",))

    def kill(step, metrics):
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped_by(tmp_path, kill, loop=dataclasses.replace(loop, checkpoint_every=4))
    stopped_by(tmp_path, loop=loop)
    rows = [line.split(",") for line in (tmp_path / "metrics.csv").read_text().splitlines()]
    expected = [
        [str(record["step"]), name, str(record[name])]
        for record in read_metrics(tmp_path)
        for name in list(record)[1:]
    ]
    assert rows == [["step", "metric", "value"], *expected]


@pytest.mark.parametrize("make", [wandb, mlflow, trackio])
def test_run_gives_its_config_and_may_be_resumed_with_other_tools(tmp_path, monkeypatch, make):
    tool, name = make(monkeypatch), make.__name__
    config = tiny.config_of_sentences(tmp_path, training={"steps": 1, "log_to": (name, "csv")})
    runs.train_run(config)
    ((run_id, opened),), out = tool.opened, tmp_path / "run"
    model = opened["config"].get("model", {})
    width = opened["config"]["model.d_model"] if make is mlflow else model["d_model"]
    assert width == config.model.d_model
    assert json.loads((out / "trackers.json").read_text()) == {name: run_id}
    runs.train_run(tiny.change(config, training={"steps": 2, "log_to": ()}))
    assert not any(runs.verify_run(out).values()) and len(tool.opened) == 1
    runs.train_run(config, restart=True)
    assert tool.opened[1][0] != run_id  # another run of the tool, too


def test_what_cannot_be_tracked_is_refused_before_the_data_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxformer.runs.train.prepare_task", None)
    monkeypatch.setitem(sys.modules, "trackio", None)
    config = tiny.config_of_sentences(tmp_path, training={"log_to": ("trackio",)})
    monkeypatch.setattr("jaxformer.sweeps.train.prepare_task", None)
    missing = "log_to 'trackio' needs its package; pip install trackio"
    for train in (runs.train_run, lambda config: train_sweep(config, {"seed": [0, 1]})):
        with pytest.raises(ConfigError, match=missing):
            train(config)
    for folder in (None, "gs://bucket/run"):
        with pytest.raises(ConfigError, match=f"log_to needs a run folder on a disk, got {folder}"):
            stopped_by(folder, loop=dataclasses.replace(LOOP, log_to=("csv",)))
    with pytest.raises(ConfigError, match="must be one of wandb, .* got 'wand'; did you mean 'wa"):
        LoopConfig(steps=1, log_to=("wand",))
