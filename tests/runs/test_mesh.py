"""Runs whose model is split over a mesh."""

import dataclasses

import pytest

from jaxformer import runs
from jaxformer.config import MeshConfig
from jaxformer.training import read_metrics
from tests.runs import tiny


def experiment(folder, steps, mesh=None, **training):
    text = tiny.write(folder.parent / "text.txt", ["one two three four five six"] * 30)
    data = {"source": "files", "paths": (text,), "validation_fraction": 0.2}
    training = {"steps": steps, "log_every": 1, "eval_every": 4, "runner": "auto"} | training
    config = tiny.config(
        folder, architecture="decoder", data=data, model={"dropout_rate": 0.0}, training=training
    )
    return dataclasses.replace(config, mesh=mesh or MeshConfig())


def test_run_goes_on_from_a_mesh_to_one_device_as_if_it_had_been_there(tmp_path):
    single, split = tmp_path / "one", tmp_path / "other"
    tiny.train(experiment(single, 4, runner="single"))
    tiny.train(experiment(split, 2, MeshConfig(fsdp=2, tensor=2), eval_every=2))
    tiny.train(experiment(split, 4, runner="single", eval_every=2))
    losses = [
        [record["loss"] for record in read_metrics(folder / "run") if "loss" in record]
        for folder in (single, split)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    validation = [runs.open_run(folder / "run").evaluate().loss for folder in (single, split)]
    assert validation[0] == pytest.approx(validation[1], rel=1e-5)
