"""Runs on pairs whose examples must be on disk, as those of large files."""

import numpy as np
import pytest

from jaxformer import runs, text
from jaxformer.text.corpora import corpus as corpora
from tests.runs import tiny

WORDS = "one two three four five six".split()
RNG = np.random.default_rng(0)
TEXTS = list(dict.fromkeys(" ".join(RNG.choice(WORDS, 3)) for _ in range(80)))


def experiment(folder, tokenizer="byte"):
    path = tiny.write(folder / "rows.tsv", [f"{words}\t{words[::-1]}" for words in TEXTS])
    data = {"source": "pairs", "paths": (path,), "cache": str(folder / "cache")}
    return tiny.config(
        folder, architecture="encoder_decoder", data=data, tokenizer={"kind": tokenizer},
        model={"max_len": 32},
    )  # fmt: skip


def test_rows_are_neither_read_nor_encoded_again(tmp_path, monkeypatch):
    config = experiment(tmp_path)
    first, lines = tiny.logged_of_data(config)
    monkeypatch.setattr(corpora, "_scan", None)
    monkeypatch.setattr(corpora.Corpus, "read", None)
    again, same_lines = tiny.logged_of_data(config)
    assert again.summary == first.summary and same_lines == lines
    with pytest.raises(TypeError):  # other tokens need other files
        runs.prepare_task(experiment(tmp_path, "word"))


def test_rows_of_an_own_task_are_encoded_anew(tmp_path):
    class Shouting(runs.TranslationTask):
        def encode_rows(self, rows):
            return super().encode_rows(
                text.Pairs(tuple(map(str.upper, rows.sources)), rows.targets)
            )

    config = experiment(tmp_path)
    plain = runs.prepare_task(config)
    loud = [runs.prepare_task(config, task=Shouting) for _ in range(2)]
    in_memory = [
        type(task.train.examples.arrays["labels"].values) is np.ndarray for task in (plain, *loud)
    ]
    assert in_memory == [False, True, True]
    first = [task.tokenizer.decode(task.train.examples[0]["source_tokens"]) for task in loud]
    assert first == [plain.tokenizer.decode(plain.train.examples[0]["source_tokens"]).upper()] * 2


def test_inspect_describes_a_sample_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "_SAMPLE", 300)
    report = runs.inspect_data(experiment(tmp_path))
    assert report.task.summary.documents == len(TEXTS) - report.view.validation > 0
    assert [shared.name for shared in report.view.shared] == [
        "sources, in a sample", "targets, in a sample"
    ]  # fmt: skip
    assert all(texts.shared == 0 for texts in report.view.shared)
