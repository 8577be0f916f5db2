"""Classifiers of Hugging Face folders."""

import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.cli import main
from jaxformer.errors import ConfigError, DataError
from jaxformer.models import SequenceClassifier
from tests.runs import pretrained_folders, tiny

TEXT = pretrained_folders.TEXT
ids_of = pretrained_folders.ids_of


def test_classifier_has_the_names_of_its_classes(folders):
    folder, config, params = folders("bert", 3)
    ((best, *_),) = runs.open_run(folder).classify([TEXT], 3)
    ids = np.array(ids_of(folder, TEXT))
    logits = SequenceClassifier(config).apply({"params": params}, ids[None]).logits[0]
    assert best.name == ("bad", "good", "so-so")[int(logits.argmax())]
    np.testing.assert_allclose(best.probability, jax.nn.softmax(logits).max(), rtol=1e-5)


def with_problem_type(folders, tmp_path, kind):
    """A classifier of three classes whose scores are read in another way."""
    return pretrained_folders.with_settings(
        folders("bert", 3)[0], tmp_path / "model", problem_type=kind
    )


def test_probabilities_of_several_labels_are_each_for_itself(folders, tmp_path):
    folder = with_problem_type(folders, tmp_path, "multi_label_classification")
    runs.convert(folder, tmp_path / "run")
    runs.convert(tmp_path / "run", tmp_path / "again")
    (scores,) = runs.open_run(folders("bert", 3)[0]).score([TEXT])
    expected = dict(zip(("bad", "good", "so-so"), 1 / (1 + np.exp(-scores)), strict=True))
    for path in (folder, tmp_path / "run", tmp_path / "again"):
        (best,) = runs.open_run(path).classify([TEXT], 3)
        assert dict(best) == pytest.approx(expected)
        assert [c.name for c in best] == sorted(expected, key=expected.__getitem__)[::-1]
    labels = tiny.write(tmp_path / "labels.tsv", [f"{TEXT}\tgood"])
    with pytest.raises(ConfigError, match="gives each text one label, got one of problem_type"):
        runs.open_run(tmp_path / "run").evaluate([labels])


def test_model_of_scores_gives_them_as_they_are(folders, tmp_path, capsys):
    folder = with_problem_type(folders, tmp_path, "regression")
    runs.convert(folder, tmp_path / "run")
    run, ids = runs.open_run(tmp_path / "run"), np.array(ids_of(folder, TEXT))
    logits = run.module.apply({"params": run.params}, ids[None]).logits[0]
    (scores,) = run.score([TEXT])
    np.testing.assert_allclose(scores, logits, rtol=1e-5)
    with pytest.raises(ConfigError, match="no probabilities of classes; call score instead"):
        run.classify([TEXT])
    main(["predict", str(folder), TEXT])
    lines = [f"{score:.4f}\t{name}\n" for score, name in zip(scores, run.classes, strict=True)]
    assert capsys.readouterr().out == "".join(lines) + "\n"
    shown = run.sample(TEXT)
    assert shown.startswith(f"{TEXT}\nbad {scores[0]:.4f}, good ")
    with pytest.raises(DataError, match="text 1: a text must have 1 to"):
        run.score([TEXT, " "])
