"""Runs on a mixture of two sources, of which one is small."""

import dataclasses

import numpy as np
import pytest

from jaxformer import runs, text
from jaxformer.cli import main
from jaxformer.config import MixtureSourceConfig
from jaxformer.errors import DataError
from jaxformer.training import SingleRunner
from tests.runs import tiny

WORDS = {"web": ["cat", "dog", "sat", "on", "the", "mat"], "code": ["if", "for", "x", "y", "in"]}
COUNTS = {"web": 60, "code": 12}
RNG = np.random.default_rng(0)
TEXTS = {
    name: [" ".join(RNG.choice(words, 30)) + "." for _ in range(COUNTS[name])]
    for name, words in WORDS.items()
}


def source(name, paths, weight=1.0, **fields):
    return MixtureSourceConfig(name=name, paths=paths, weight=weight, **fields)


def sources(folder):
    """A mixture of three parts of the web and one of code."""
    code = folder / "code"
    code.mkdir(exist_ok=True)
    for index, document in enumerate(TEXTS["code"]):
        (code / f"{index}.py").write_text(document, encoding="utf-8")
    web = tiny.write_bodies(folder / "web.jsonl", TEXTS["web"])
    return (source("web", (web,), 3.0, field="body"), source("code", (f"{code}/*.py",)))


def experiment(folder, architecture="decoder", mixture=None, data=None, **changes):
    data = {"mixture": mixture or sources(folder)} | (data or {})
    return tiny.config_of_text(folder, data, architecture, **changes)


def test_run_on_a_mixture_is_trained_and_opened(tmp_path, capsys):
    config = experiment(tmp_path, data={"packing": "documents"})
    reports = tiny.train(config)
    web, code = reports[:2]
    task = runs.prepare_task(config)
    assert web.startswith("web: 75% of the sequences; 4") and code.startswith("code: 25% of")
    tokens = [stream.tokens.size for stream in task.train.values()]
    assert all(f" {n:,} tokens" in line for n, line in zip(tokens, (web, code), strict=True))
    # Four steps of eight rows of twelve tokens, a quarter of them code.
    assert f"{8 / -(-(tokens[1] - 1) // 12):.3g} epochs in 4 steps (training.steps)" in code
    assert task.summary.train_tokens == sum(tokens)

    run = runs.open_run(config.out)
    evaluation = run.evaluate()
    figures = tiny.metrics(tmp_path)[-1]
    assert evaluation.loss == pytest.approx(figures["validation_loss"], rel=1e-6)
    assert list(evaluation.scores) == ["loss web", "loss code"]
    for name, value in evaluation.scores.items():
        assert value == pytest.approx(figures[name], rel=1e-6)
    # Of all tokens, not the mean of the two.
    predicted = {
        name: sum(
            (batch["labels"] != text.IGNORE).sum()
            for batch in task.validation_batches(stream, run.runner).once()
        )
        for name, stream in tiny.validation_of(run).items()
    }
    assert evaluation.predicted == sum(predicted.values())
    mean = sum(evaluation.scores[f"loss {name}"] * n for name, n in predicted.items())
    assert evaluation.loss == pytest.approx(mean / evaluation.predicted, rel=1e-6)

    main(["evaluate", config.out])
    assert f"loss code {evaluation.scores['loss code']:.4g}, over" in capsys.readouterr().out


def test_validation_of_sources_begins_anew_each_time_and_adds_up_bytes(tmp_path):
    task, runner = runs.prepare_task(experiment(tmp_path)), SingleRunner()
    sizes = [task.num_bytes(stream) for stream in task.validation.values()]
    data = task.evaluation_data(task.validation, runner)
    assert data.validation_bytes == sum(sizes) > max(sizes) and data.unit == "token"
    for _ in range(2):
        for name, batches in data.validation().items():
            expected = task.validation_batches(task.validation[name], runner).once()
            np.testing.assert_equal([*batches], [*expected])
    unknown = dataclasses.replace(task.validation["code"], num_bytes=None)
    data = task.evaluation_data(task.validation | {"code": unknown}, runner)
    assert data.validation_bytes is None


def test_inspection_names_the_source_of_each_row(tmp_path):
    with tiny.logged() as lines:
        report = runs.inspect_data(experiment(tmp_path), step=4, rows=8)
    assert [row["source"] for row in report.rows] == ["web", "web", "web", "code"] * 2
    for row in report.rows:
        words = set(row["text"].replace("‹", " ").replace("›", " ").replace("‖", " ").split())
        assert len({word.strip(".") for word in words} & set(WORDS[row["source"]])) > 1
    assert report.steps_per_epoch is None and report.view.unit == "documents"
    assert lines[0].startswith("web: 75% of the sequences")
    documents = report.task.summary.documents + report.view.validation
    assert documents == sum(COUNTS.values()) + 2  # one of each is cut


def test_source_that_is_too_short_is_named_in_one_line(tmp_path):
    more = source("more", (tiny.write(tmp_path / "short.txt", ["one two three"] * 3),))
    message = (
        "source 'more' of data.mixture must be longer than one sequence, model.max_len = 12 "
        "tokens, got 7; lower model.max_len, or add text"
    )
    with pytest.raises(DataError, match=f"^{message}$"):
        runs.prepare_task(experiment(tmp_path, mixture=(*sources(tmp_path), more)))
