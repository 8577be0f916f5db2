"""Runs of an encoder that classifies texts: one tiny training."""

import json

import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.errors import ConfigError, DataError
from jaxformer.models import SequenceClassifier
from jaxformer.training import SingleRunner
from tests.runs import tiny

WORDS = {
    "animals": ["cat", "dog", "cow"],
    "food": ["rice", "soup", "bread"],
    "sky": ["sun", "moon"],
}


def labelled():
    """Texts of unequal lengths, each once, with the class that their words are of."""
    examples = []
    for label, words in WORDS.items():
        for i in range(20):
            text = " ".join(words[(i >> k) % len(words)] for k in range(2 + i % 4))
            examples.append((f"{text} {'a' * (i % 3)} no {i}", label))
    return examples


# Line 2 has no label, 4 is too long, 6 has two tabs.
LINES = [f"{text}\t{label}" for text, label in labelled()]
LINES[1:1] = ["cat\t"]
LINES[3:3] = ["cat " * 13 + "\tanimals"]
LINES[5:5] = ["cat\tdog\tanimals"]


TRAINING = {"steps": 40, "eval_every": 20, "label_smoothing": 0.1}


def config(folder, lines=LINES, **changes):
    paths = (tiny.write(folder / "texts.tsv", lines),)
    data = {"source": "labelled", "paths": paths, "validation_fraction": 0.25}
    data |= changes.pop("data", {})
    return tiny.config(folder, architecture="encoder", data=data, **changes)


@pytest.fixture(scope="module")
def trained(classification_run):
    """The folder that a finished run is in."""
    return classification_run[0].parent


@pytest.fixture(scope="module")
def run(trained):
    return runs.open_run(trained / "run")


@pytest.fixture(scope="module")
def validation(trained):
    rows = json.loads((trained / "run" / "validation.json").read_text(encoding="utf-8"))
    return tuple(zip(*rows, strict=True))


def test_evaluation_is_the_one_of_training_with_the_lowest_loss(trained, run, validation):
    result = tiny.evaluated_as_trained(trained, run, 1e-5)
    losses, shares = (tiny.figures(trained, name) for name in ("validation_loss", "accuracy"))
    assert list(losses) == list(shares) == [20, 40]
    assert result.scores == {"accuracy": pytest.approx(shares[run.step])}
    assert (result.predicted, result.unit, result.bits_per_byte) == (14, "text", None)
    assert result.scores["accuracy"] > 0.8
    best = [classes[0].name for classes in run.classify(validation[0])]
    share = np.mean([a == b for a, b in zip(best, validation[1], strict=True)])
    assert result.scores["accuracy"] == pytest.approx(share)
    # The loss is that of the probabilities, without the smoothing that it was trained with.
    nats = [
        -np.log(next(c.probability for c in classes if c.name == label))
        for classes, label in zip(run.classify(validation[0], 3), validation[1], strict=True)
    ]
    assert result.loss == pytest.approx(np.mean(nats), rel=1e-4)


@pytest.mark.essential
def test_probabilities_are_those_of_the_model_on_a_text_alone(run, validation):
    forward = jax.jit(SequenceClassifier(run.config.model).apply)
    for text, classes in zip(validation[0][:3], run.classify(validation[0][:3], 99), strict=True):
        logits = forward({"params": run.params}, run.encode(text)[None]).logits[0]
        expected = dict(zip(run.classes, jax.nn.softmax(logits).tolist(), strict=True))
        assert {c.name: c.probability for c in classes} == pytest.approx(expected, rel=1e-4)
        assert [c.name for c in classes] == sorted(expected, key=expected.__getitem__)[::-1]


@pytest.mark.parametrize(
    ("text", "num_best", "message"),
    [
        ("  ", 1, "must have 1 to max_len=12 tokens, got 0 for '  '; write some text"),
        ("cat " * 13, 1, r"got 13 for 'cat cat cat cat cat \.\.\.'; shorten it"),
    ],
)
def test_texts_that_cannot_be_classified_are_refused(run, text, num_best, message):
    with pytest.raises(DataError, match=message):
        run.classify(["dog", text], num_best)


def test_labels_must_be_the_classes(tmp_path):
    path = tiny.write(tmp_path / "validation.tsv", ["rain\tweather", "cat\tanimals"])
    for changes, error, message in (
        ({"model": {"num_classes": 4}}, ConfigError, r"3 \(animals, food, sky\), got 4; remove it"),
        ({"lines": ["a\tx", "b\tx", "c\tx"] * 3}, DataError, "at least 2 classes, got 1"),
        ({"data": {"validation_paths": (path,)}}, DataError, "weather"),
    ):
        with pytest.raises(error, match=message):
            runs.train_run(config(tmp_path, **changes))
        assert not (tmp_path / "run").exists()


def test_classes_are_listed_with_their_sizes(tmp_path):
    lines = ["phrase\tlabel", *LINES[6:], "a typing error\tsyk"]
    _, logged = tiny.logged_of_data(config(tmp_path, lines))
    assert logged[2].endswith("food (20), label (1), sky (20), syk (1)")


def test_label_smoothing_is_in_the_training_loss_alone(tmp_path, run):
    prepared = tiny.prepare(config(tmp_path, training={"label_smoothing": 0.3}))
    batch = next(prepared.training_data(SingleRunner()).validation())
    real = batch["labels"] >= 0
    model, inputs = SequenceClassifier(run.config.model), (batch["tokens"],)
    logits = jax.jit(
        lambda params: model.apply({"params": params}, *inputs, lengths=batch["lengths"]).logits
    )(run.params)
    surprise = -np.asarray(jax.nn.log_softmax(logits), np.float64)[real]
    nats = surprise[np.arange(real.sum()), batch["labels"][real]].sum()
    training = prepared.model.loss(0.3)
    total, count = jax.jit(lambda params: training(params, batch, None))(run.params)
    assert float(total) == pytest.approx(0.7 * nats + 0.3 * surprise.mean(-1).sum(), rel=1e-5)
    assert int(count) == real.sum() > 1
