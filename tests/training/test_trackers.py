"""`log_to`: tools that get the metrics of a run, each here by a stand-in for its library."""

import contextlib
import dataclasses
import importlib.machinery
import json
import sys
import types

import pytest

from jaxformer import runs
from jaxformer.config import LoopConfig
from jaxformer.errors import ConfigError
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
    @contextlib.contextmanager
    def start_run(run_id, run_name, nested):
        run = tool.open(run_id or "a run of MLflow", name=run_name, config={})
        try:
            yield types.SimpleNamespace(info=types.SimpleNamespace(run_id=run.id))
        except BaseException:
            run.finish(exit_code=1)
            raise
        run.finish()

    def log_metrics(values, step, run_id):
        tool.logged[run_id].append({"step": step, **values})

    def log_params(settings):
        tool.opened[-1][1]["config"].update(settings)

    tool = Tool(
        monkeypatch, "mlflow", start_run=start_run, log_metrics=log_metrics, log_params=log_params
    )
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
    if make is not mlflow:
        assert tool.opened[-1][0] != run_id

    def fail(step, metrics):
        raise KeyError("of a callback")

    with pytest.raises(KeyError):
        stopped_by(tmp_path / "failed", fail, loop=dataclasses.replace(LOOP, log_to=(name,)))
    assert tool.ended[-1] == (0 if make is trackio else 1)  # trackio has no failed runs


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


def test_run_gives_its_config_and_may_be_resumed_with_other_tools(tmp_path, monkeypatch):
    tool = wandb(monkeypatch)
    config = tiny.config_of_sentences(tmp_path, training={"steps": 1, "log_to": ("wandb", "csv")})
    runs.train_run(config)
    (_, opened), out = tool.opened[0], tmp_path / "run"
    assert opened["config"]["model"]["d_model"] == config.model.d_model
    assert opened["dir"] == str(out) and opened["name"] == "run"
    assert set(json.loads((out / "trackers.json").read_text())) == {"wandb"}
    runs.train_run(tiny.change(config, training={"steps": 2, "log_to": ()}))
    assert all(part.damage is None for part in runs.verify_run(out)) and len(tool.opened) == 1
    runs.train_run(config, restart=True)
    assert tool.opened[0][0] != tool.opened[1][0]  # another run of the tool, too


def test_mlflow_gets_all_settings_a_hundred_at_a_time(tmp_path, monkeypatch):
    tool, taken = mlflow(monkeypatch), []
    monkeypatch.setattr("mlflow.log_params", taken.append, raising=False)
    config = tiny.config_of_sentences(tmp_path, training={"steps": 1, "log_to": ("mlflow",)})
    runs.train_run(config)
    assert len(tool.opened) == 1 and max(map(len, taken)) == 100
    params = {name: value for part in taken for name, value in part.items()}
    assert params["model.d_model"] == config.model.d_model and params["training.steps"] == 1


def test_what_cannot_be_tracked_is_refused_before_the_data_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxformer.runs.train.prepare_task", None)
    monkeypatch.setitem(sys.modules, "trackio", None)
    config = tiny.config_of_sentences(tmp_path, training={"log_to": ("trackio",)})
    with pytest.raises(ConfigError, match="log_to 'trackio' needs its package; pip install track"):
        runs.train_run(config)
    with pytest.raises(ConfigError, match="log_to needs a run folder on a disk, got None"):
        stopped_by(None, loop=dataclasses.replace(LOOP, log_to=("csv",)))
    with pytest.raises(ConfigError, match="must be one of wandb, .* got 'wand'; did you mean 'wa"):
        LoopConfig(steps=1, log_to=("wand",))
