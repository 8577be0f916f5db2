"""What every task has: a user's own, and what runs can and cannot do."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.config import TrainingConfig
from jaxformer.errors import DataError
from jaxformer.models import Decoder
from jaxformer.text import Corpus, Labelled
from tests.runs import tiny

COLOURS = ("red", "green", "blue")


class ColourModel(runs.Classifier):
    """The built-in classifier under another name."""

    kind = "a model of colours"


class Colours(runs.ClassificationTask):
    """The built-in task with a model and a data source of its own."""

    text_model = ColourModel

    @classmethod
    def read(cls, config):
        texts = tuple(f"{colour} no {i}" for i in range(12) for colour in COLOURS)
        labelled = Labelled(texts, tuple(text.split()[0] for text in texts))
        return runs.Split(Corpus.of(labelled.take(range(27))), labelled.take(range(27, 36)))


def config(folder, steps=20):
    run_config = tiny.config(folder, architecture="encoder", data={"source": "labelled"})
    training = TrainingConfig(steps=steps, batch_tokens=96, devices=2, eval_every=10)
    return dataclasses.replace(run_config, training=training)


@pytest.fixture(scope="module")
def colour_run(tmp_path_factory):
    """The folder of a run of an own task, and how its training ended."""
    folder = tmp_path_factory.mktemp("own")
    return folder / "run", runs.train_run(config(folder), task=Colours)


@pytest.mark.thorough
def test_own_source_is_trained_evaluated_and_opened_as_the_built_in_ones(colour_run):
    folder, result = colour_run
    run = runs.open_run(folder, 20, task=Colours)
    assert repr(run) == f"<ColourModel of {folder}, step 20>"
    assert type(run) is ColourModel and run.classes == tuple(sorted(COLOURS))
    jax.tree.map(np.testing.assert_array_equal, run.params, result.params)
    evaluation = run.evaluate()
    assert evaluation.loss == pytest.approx(result.evaluation.loss, rel=1e-5)
    assert evaluation.predicted == 9 and set(evaluation.scores) == {"accuracy"}
    assert run.classify(["blue no 1"])[0][0].name in COLOURS


@pytest.mark.thorough
def test_own_source_is_resumed_and_trained_anew(colour_run, tmp_path):
    parts = config(tmp_path, steps=10)
    runs.train_run(parts, task=Colours)
    result = runs.train_run(tiny.change(parts, training={"steps": 20}), task=Colours)
    jax.tree.map(np.testing.assert_array_equal, result.params, colour_run[1].params)
    result = runs.train_run(config(tmp_path, steps=1), task=Colours, restart=True)
    assert result.step == 1
    assert runs.read_run_config(tmp_path / "run").training.steps == 1


def test_model_is_made_in_one_place(tmp_path):
    calls = []

    class Narrow(Decoder):
        """A user's own model."""

        def hidden_states(self, *arguments, **options):
            calls.append(type(self))
            return super().hidden_states(*arguments, **options)

    class NarrowModel(runs.LanguageModel):
        @property
        def module(self):
            return Narrow(self.config.model)

    class Changed(runs.LanguageModelTask):
        text_model = NarrowModel

    path = tiny.write(tmp_path / "text.txt", ["one two one two"] * 9)
    run_config = tiny.config(
        tmp_path, architecture="decoder", data={"source": "files", "paths": (path,)}
    )
    task = Changed.prepare(run_config)
    assert isinstance(task.model.module, Narrow)
    params = jax.jit(task.model.initializer)(jax.random.key(0))
    model = dataclasses.replace(task.model, params=params)
    model.log_likelihood(["one two"])
    model.hidden_states(["one two"])
    assert len(calls) >= 2 and set(calls) == {Narrow}


@pytest.mark.thorough
def test_other_data_is_read_as_the_configs_is(colour_run, tmp_path):
    run = runs.open_run(colour_run[0], task=Colours)
    lines = ["red no 1\tred", "blue no 2\tred", "blue", "green " * 13 + "\tgreen"]
    path = tiny.write(tmp_path / "others.tsv", lines)
    result = run.evaluate([path])
    assert result.predicted == 2
    assert result.details == (
        "4 texts read, 2 kept; 1 misaligned (line 3), 1 too long (line 4)",
    )  # fmt: skip
    names = [best[0].name for best in run.classify(["red no 1", "blue no 2"])]
    assert result.scores["accuracy"] == np.mean([name == "red" for name in names])
    with pytest.raises(DataError, match="absent.tsv"):
        run.evaluate([tmp_path / "absent.tsv"])
    with pytest.raises(DataError, match="one of the classes.*got 'pink' in line 1"):
        run.evaluate([tiny.write(tmp_path / "pink.tsv", ["rose\tpink"])])
