"""Sweeps of configs: each run is a run folder like any other, and the run trained alone."""

import dataclasses
import itertools

import chex
import numpy as np
import pytest

from jaxformer.config import AdamWConfig, LoraConfig, SgdConfig, load_config
from jaxformer.errors import CheckpointError, ConfigError, DataError
from jaxformer.runs import LanguageModelTask, open_run, train_run
from jaxformer.sweeps import sweep_table, train_sweep
from jaxformer.training import read_metrics
from tests.runs.tiny import change, config

RATES = {"optimizer.learning_rate": [1e-2, 3e-2], "seed": [0, 1]}


def experiment(folder, **changes):
    (folder / "text.txt").write_text("the cat sat on the mat; the dog sat on the log. " * 40)
    data = {"source": "files", "paths": (str(folder / "text.txt"),), "validation_fraction": 0.3}
    base = config(folder, architecture="decoder", data=data)
    return change(base, training={"steps": 10, **changes})


def losses(folder):
    names = ("loss", "validation_loss")
    return [record[name] for record in read_metrics(folder) for name in names if name in record]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("swept")
    base = experiment(folder)
    return base, train_sweep(base, RATES), folder / "run"


@pytest.mark.thorough
def test_runs_have_the_losses_of_runs_trained_alone(swept, tmp_path):
    base, runs, folder = swept
    alone = dataclasses.replace(base, out=str(tmp_path / "alone"), seed=1)
    train_run(change(alone, optimizer={"learning_rate": 3e-2}))
    expected = losses(tmp_path / "alone")
    np.testing.assert_allclose(losses(folder / runs[3].name), expected, rtol=1e-6)


@pytest.mark.thorough
def test_runs_are_opened_and_resumed_alone(swept):
    _, runs, folder = swept
    run = open_run(folder / runs[2].name)
    assert run.generate("the c", max_new_tokens=2)
    assert run.config.optimizer.learning_rate == 3e-2 and run.config.seed == 0
    longer = change(run.config, training={"steps": 12})
    assert train_run(longer).step == 12


@pytest.mark.thorough
def test_the_table_has_a_row_for_each_value_over_seeds(swept):
    _, runs, folder = swept
    table = sweep_table(str(folder))
    assert table.keys == ("optimizer.learning_rate",) and table.metrics[0] == "validation_loss"
    expected = [
        np.mean([losses(folder / run.name)[-1] for run in pair]) for pair in (runs[:2], runs[2:])
    ]
    actual = [np.mean(results[0]) for _, results in table.rows]
    np.testing.assert_allclose(actual, expected)
    shown = [line.split()[:2] for line in table.as_text().splitlines()[1:]]
    assert shown == [["0.01", f"{expected[0]:.4f}"], ["0.03", f"{expected[1]:.4f}"]]
    deviation = np.std([losses(folder / run.name)[-1] for run in runs[:2]], ddof=1)
    (low, _, first_deviation), (high, _, _) = table.curves(0)[""]
    assert first_deviation == pytest.approx(deviation) and (low, high) == (1e-2, 3e-2)


def test_kinds_and_shapes_make_programs_of_their_own(tmp_path):
    values = {
        "optimizer": [AdamWConfig(learning_rate=1e-2), SgdConfig(learning_rate=1e-2)],
        "optimizer.learning_rate": [1e-2, 1e30],
    }
    base = experiment(tmp_path, steps=6, log_every=1)
    runs = train_sweep(base, values)
    assert [run.name for run in runs] == [
        f"learning_rate={rate},optimizer={name}" for name in ("adamw", "sgd")
        for rate in ("0.01", "1e+30")
    ]  # fmt: skip
    assert [run.failure is not None for run in runs] == [False, True, False, True]
    table = sweep_table(tmp_path / "run")
    assert "learning_rate=1e+30,optimizer=sgd: loss or" in table.as_text()
    assert table.rows[3][1][0] == () and " -" in table.as_text()


def test_the_data_of_a_seed_decides_the_sizes_of_its_run(tmp_path):
    class BySeed(LanguageModelTask):
        @classmethod
        def read(cls, config):
            path = config.data.paths[0].replace("text.txt", f"text{config.seed}.txt")
            return super().read(change(config, data={"paths": (path,)}))

    base = experiment(tmp_path, steps=2)
    (tmp_path / "text0.txt").write_text("the cat sat. " * 40)
    (tmp_path / "text1.txt").write_text("a dog and another dog ran on and on. " * 40)
    runs = train_sweep(base, {"seed": [0, 1]}, task=BySeed)
    alone = dataclasses.replace(base, out=str(tmp_path / "alone"), seed=1)
    train_run(alone, task=BySeed)
    sizes = [
        load_config(tmp_path / "run" / run.name / "config.toml").model.vocab_size for run in runs
    ]
    assert sizes[0] < sizes[1]
    np.testing.assert_allclose(
        losses(tmp_path / "run" / runs[1].name), losses(tmp_path / "alone"), rtol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("num_buckets", [1, 2])
def test_translators_of_several_seeds_train_at_once_if_their_batches_have_one_shape(
    tmp_path, capsys, num_buckets
):
    numbers = ["one", "two", "three"]
    rows = [f"{' '.join(pair)}\t{' '.join(pair[::-1])}" for pair in itertools.permutations(numbers)]
    rows += [f"{number}\t{' '.join([number] * 9)}" for number in numbers]
    (tmp_path / "rows.tsv").write_text("\n".join(rows * 9))
    data = {"source": "pairs", "paths": (str(tmp_path / "rows.tsv"),), "num_buckets": num_buckets}
    base = config(tmp_path, architecture="encoder_decoder", data=data)
    base = change(base, training={"steps": 2, "log_every": 2, "eval_every": 2})
    runs = train_sweep(base, {"seed": [0, 1]})
    assert ("in 2 runs" in capsys.readouterr().out) == (num_buckets == 1)
    alone = dataclasses.replace(base, out=str(tmp_path / "alone"), seed=1)
    train_run(alone)
    expected = losses(tmp_path / "alone")
    np.testing.assert_allclose(losses(tmp_path / "run" / runs[1].name), expected, rtol=1e-6)


@pytest.mark.thorough
def test_a_sweep_starts_from_a_run(swept, tmp_path):
    base, runs, folder = swept
    source = folder / runs[0].name
    tuned = dataclasses.replace(base, out=str(tmp_path / "tuned"), init_from=str(source))
    rates = {"optimizer.learning_rate": [1e-9, 2e-9]}
    for run in train_sweep(change(tuned, training={"steps": 1}), rates):
        start = open_run(source).params
        chex.assert_trees_all_close(run.result.params, start, rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"optimizer.lerning_rate": [1]}, "unknown key optimizer.lerning_rate; did you mean"),
        ({"optimizer.learning_rate": [1e-3, -1.0]}, "learning_rate"),
        ({"lora": [LoraConfig()], "init_from": ["x"]}, "got lora; remove it"),
        ({"training.runner": ["mesh"]}, "got a mesh; remove it"),
        ({"training.runner": ["pmap"], "training.devices": [99]}, "devices=99, but this machine"),
    ],
)
def test_mistakes_get_one_line(tmp_path, values, message):
    base = experiment(tmp_path)
    with pytest.raises(ConfigError, match=message):
        train_sweep(base, values)


def test_a_sweep_needs_a_folder(tmp_path):
    with pytest.raises(ConfigError, match="out, the folder of the sweep, must be set"):
        train_sweep(dataclasses.replace(experiment(tmp_path), out=None), RATES)


@pytest.mark.thorough
def test_folders_of_something_else_are_refused(swept, tmp_path):
    base, runs, folder = swept
    with pytest.raises(CheckpointError, match="is a run folder; choose another for the sweep"):
        train_sweep(dataclasses.replace(base, out=str(folder / runs[0].name)), RATES)
    with pytest.raises(CheckpointError, match="not the folder of a sweep"):
        sweep_table(tmp_path)
    (tmp_path / "sweep.json").write_text('{"runs": {"a": {"seed": 0}}, "failures": {}}')
    with pytest.raises(DataError, match="no metrics yet"):
        sweep_table(tmp_path)
