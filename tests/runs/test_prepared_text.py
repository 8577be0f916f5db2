"""Runs on text: scanned, remembered, and prepared in the cache."""

import numpy as np
import pytest

from jaxformer import runs, text
from jaxformer.cli import main
from jaxformer.config import config_to_toml
from jaxformer.errors import CheckpointError
from jaxformer.text.tables.documents import paragraphs
from tests.cli.commands import one_line
from tests.runs import tiny
from tests.text.corpora.texts import write_lines

TEXTS = tiny.TEXTS


def experiment(folder, data=None, **changes):
    path = tiny.write_bodies(folder / "text.jsonl", TEXTS)
    data = {"paths": (path,), "field": "body"} | (data or {})
    return tiny.config_of_text(folder, data, **changes)


def test_nothing_is_read_or_trained_again(tmp_path, monkeypatch):
    config = experiment(tmp_path, tokenizer={"kind": "bpe", "vocab_size": 300})
    first, lines = tiny.logged_of_data(config)
    monkeypatch.setattr(text.Documents, "rows", None)
    monkeypatch.setattr(text, "train_bpe", None)
    again, same_lines = tiny.logged_of_data(config)
    assert again.summary == first.summary and same_lines == lines
    np.testing.assert_array_equal(again.train[""].tokens, first.train[""].tokens)


def test_tokens_may_be_elsewhere_when_a_run_goes_on_but_not_others(tmp_path):
    tiny.train(experiment(tmp_path))
    data = {"cache": str(tmp_path / "other")}
    config = experiment(tmp_path, data=data, training={"steps": 6})
    assert runs.train_run(config).step == 6
    tiny.write_bodies(tmp_path / "text.jsonl", [*TEXTS, "a dog"])
    with pytest.raises(CheckpointError, match="was trained on another text"):
        runs.train_run(tiny.change(config, training={"steps": 7}))
    path = tmp_path / "run" / "validation_0_tokens.npy"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(CheckpointError, match="validation_0_tokens.npy"):
        runs.open_run(config.out)


def test_command_says_what_is_there(tmp_path, capsys):
    config = tmp_path / "tiny.toml"
    config.write_text(config_to_toml(experiment(tmp_path)), encoding="utf-8")
    main(["prepare", str(config)])
    counts, folder = capsys.readouterr().out.splitlines()
    assert folder == f"prepared in {tmp_path / 'cache' / 'corpora'}"
    train, validation = (int(counts.split()[i].replace(",", "")) for i in (0, 4))
    assert train > validation > 0
    assert not (tmp_path / "run").exists()
    main(["prepare", str(config), "--data.validation-fraction", "0.5"])
    assert int(capsys.readouterr().out.splitlines()[-2].split()[0].replace(",", "")) < train
    with (tmp_path / "text.jsonl").open("ab") as file:
        file.write(b'{"body": "\xff"}\n')
    assert "jsonl:41: " in one_line(capsys, "prepare", config)
    assert "quickstart" in one_line(capsys, "prepare", "quickstar")


def test_built_in_documents_are_split_and_have_each_paragraph_once(tmp_path):
    config = tiny.config(tmp_path, architecture="decoder", data={"source": "python"})
    source = runs.LanguageModelTask.read(config).train[""]
    parts = source.train_texts, source.validation_texts
    train, validation = (sum(len(document.encode()) for document in part) for part in parts)
    share = validation / (train + validation)
    assert share == pytest.approx(config.data.validation_fraction, abs=1e-3)
    texts = [p for part in parts for document in part for p in set(paragraphs(document))]
    everywhere = {p for document in text.python_documents() for p in paragraphs(document)}
    assert len(texts) - len(set(texts)) <= 1 and len(set(texts) ^ everywhere) <= 3  # one is cut


def test_validation_may_have_files_of_its_own(tmp_path):
    """Beside files, and beside the built-in documents."""
    train = write_lines(tmp_path / "train.jsonl", TEXTS[5:])
    validation = write_lines(tmp_path / "validation.jsonl", TEXTS[:5])
    held_out = {"validation_paths": (str(validation),), "validation_fraction": 0.1}
    task = runs.prepare_task(tiny.config_of_text(tmp_path, {"paths": (str(train),)} | held_out))
    assert (task.summary.documents, len(task.validation[""])) == (35, 5)
    assert task.validation[""].num_bytes == sum(map(len, TEXTS[:5]))
    source = runs.LanguageModelTask.read(
        tiny.config(tmp_path, architecture="decoder", data={"source": "python"} | held_out)
    ).train[""]
    assert [*source.validation_texts] == TEXTS[:5] and len(source.train_texts) > 70
