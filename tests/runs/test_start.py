"""Runs that start from the weights and tokenizers of others: fine-tuning."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.config import AdamWConfig, LearnedConfig
from jaxformer.errors import CheckpointError, ConfigError
from tests.runs import test_classification, test_translation, tiny

OWN = [f"the {animal} sat on the {place}" for animal in ("cat", "dog") for place in ("mat", "log")]
OTHER = [
    f"the {animal} ran to the {place}" for animal in ("cow", "dog") for place in ("mat", "log")
]


def config(folder, lines=OWN, **changes):
    """A decoder whose vocabulary is larger than its tokenizer's."""
    paths = (tiny.write(folder / "text.txt", lines * 9),)
    data = {"source": "files", "paths": paths}
    changes["model"] = {"vocab_size": 17, "dropout_rate": 0.0} | changes.get("model", {})
    changes["training"] = {"steps": 4, "checkpoint_every": 2} | changes.get("training", {})
    return tiny.config(folder, architecture="decoder", data=data, **changes)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The folder of a finished run of a decoder."""
    made = config(tmp_path_factory.mktemp("source"))
    runs.train_run(made)
    return made.out


def starting(made, source, **changes):
    """A config that starts from a run, and says nothing of its own about the vocabulary."""
    made = tiny.change(made, model={"vocab_size": None})
    return dataclasses.replace(made, init_from=str(source), **changes)


def standing_still(made):
    """A config that takes one step, which changes next to nothing."""
    made = tiny.change(made, training={"steps": 1})
    return dataclasses.replace(made, optimizer=AdamWConfig(learning_rate=1e-30))


def assert_same_params(one, two):
    # A step of 1e-30 moves even a zero.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-20), one, two)


def test_run_starts_from_weights_and_tokenizer_of_another(source, tmp_path):
    """On the same data its first loss is the last of the other."""
    before = runs.open_run(source)
    # What changes no parameter may be another: dropout, and the context of rotary positions.
    made = config(tmp_path, model={"dropout_rate": 0.1, "layer_execution": "scan"})
    reports = []
    made = standing_still(starting(made, source))
    result = runs.train_run(made, on_start=lambda task: reports.extend(task.report))
    assert result.evaluation.loss == pytest.approx(before.evaluate().loss, rel=1e-6)
    assert_same_params(result.params, before.params)
    assert reports[0] == f"starting from the weights and tokenizers of {source} at step 4"
    run = runs.open_run(made.out)
    assert run.config.init_from == f"{source}@4" and run.config.model.vocab_size == 17
    assert run.task.tokenizer.words == before.task.tokenizer.words


def test_start_is_resumed_bitwise_and_without_its_source(source, tmp_path):
    copy = tmp_path / "source"
    shutil.copytree(source, copy)
    made = starting(config(tmp_path, OTHER), copy)
    whole = runs.train_run(dataclasses.replace(made, out=str(tmp_path / "whole")))
    assert whole.step == 4
    runs.train_run(tiny.change(made, training={"steps": 2}))
    shutil.rmtree(copy)
    result = runs.train_run(made)
    jax.tree.map(np.testing.assert_array_equal, result.params, whole.params)
    for init_from in (None, str(source), f"{copy}@2"):
        with pytest.raises(CheckpointError, match=r"init_from: '\S+@4' there, .* now"):
            runs.train_run(dataclasses.replace(made, init_from=init_from))


def test_chosen_step_is_started_from(source, tmp_path):
    made = standing_still(starting(config(tmp_path), f"{source}@2"))
    assert_same_params(runs.train_run(made).params, runs.open_run(source, 2).params)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"d_model": 8}}, "got model.d_model: 16 there, 8 here; set them as in"),
        ({"model": {"vocab_size": 18}}, "got model.vocab_size: 17 there, 18 here"),
        ({"model": {"positions": LearnedConfig(), "max_len": 9}}, "model.max_len: 12 there, 9"),
        ({"tokenizer": {"kind": "byte"}}, "got tokenizer.kind: 'word' there, 'byte' here"),
    ],
)
def test_start_from_another_model_is_refused(source, tmp_path, change, message):
    made = dataclasses.replace(tiny.change(config(tmp_path), **change), init_from=source)
    with pytest.raises(ConfigError, match=message):
        runs.train_run(made)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("init_from", "error", "message"),
    [
        ("{source}@3", CheckpointError, r"has no checkpoint of step 3, only \[2, 4\]"),
        ("{folder}/absent", CheckpointError, "absent is not a run folder: there is no such"),
        ("{folder}/run", ConfigError, "init_from must be another run than out, got .*/run for"),
        ("{translator}", ConfigError, "which holds an encoder-decoder, which translates, for a la"),
    ],
)
def test_start_from_what_is_no_such_run_is_refused(
    source, translation_run, tmp_path, init_from, error, message
):
    path = init_from.format(source=source, folder=tmp_path, translator=translation_run[0])
    with pytest.raises(error, match=message):
        runs.train_run(starting(config(tmp_path), path))
    assert not (tmp_path / "run").exists()


def test_translator_starts_with_both_tokenizers_and_its_vectors(translation_run, tmp_path):
    """Whose files are gone: all is in the run."""
    made = runs.read_run_config(translation_run[0])
    paths = (tiny.write(tmp_path / "pairs.tsv", test_translation.LINES),)
    made = dataclasses.replace(made, out=str(tmp_path / "run"), init_from=str(translation_run[0]))
    made = standing_still(tiny.change(made, data={"paths": paths}))
    result, before = runs.train_run(made), runs.open_run(translation_run[0])
    assert_same_params(result.params, before.params)
    assert result.evaluation.loss == pytest.approx(before.evaluate().loss, rel=1e-6)


def test_classifier_starts_from_a_masked_language_model(masked_run, tmp_path):
    """The encoder's weights are those of the masked language model; the classes' are drawn."""
    before = runs.open_run(masked_run[0])
    made = dataclasses.replace(
        test_classification.config(tmp_path), tokenizer=before.config.tokenizer,
        model=dataclasses.replace(before.config.model, vocab_size=None),
        init_from=str(masked_run[0]),
    )  # fmt: skip
    result = runs.train_run(standing_still(made))
    assert_same_params(
        result.params["encoder"],
        {name: before.params["encoder"][name] for name in result.params["encoder"]},
    )
    assert runs.open_run(made.out).task.tokenizer.words == before.task.tokenizer.words
    # And a classifier starts from that, with the scores of its classes if they are the same.
    again = dataclasses.replace(made, init_from=made.out, out=str(tmp_path / "again"))
    assert_same_params(runs.train_run(standing_still(again)).params, result.params)
    lines = [line.replace("\tsky", "\theaven") for line in test_classification.LINES]
    (tmp_path / "other").mkdir()
    other = test_classification.config(tmp_path / "other", lines)
    other = dataclasses.replace(again, data=other.data, out=other.out)
    reports = []
    runs.train_run(standing_still(other), on_start=lambda task: reports.extend(task.report))
    assert reports[0].endswith("; the scores of the classes start anew")
    with pytest.raises(ConfigError, match="which holds a classifier, .*, for a masked language"):
        runs.train_run(starting(before.config, made.out, out=str(tmp_path / "masked")))
