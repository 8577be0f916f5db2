"""Runs on tokens that were made elsewhere, in files."""

import dataclasses

import numpy as np
import pytest

from jaxformer import runs, text
from jaxformer.errors import ConfigError
from jaxformer.training import SingleRunner
from tests.runs import tiny
from tests.text.foreign_tokenizers import TEXT, foreign_json

DOCUMENTS = [f"{line} {i}\n" for i in range(9) for line in TEXT.splitlines()]


def write(folder, name, documents, tokenizer="gpt2"):
    """Tokens of documents as nanoGPT's prepare.py writes them."""
    (folder / "their.json").write_text(foreign_json(tokenizer), encoding="utf-8")
    theirs = text.Tokenizer.load(folder / "their.json")
    text.build_stream(documents, theirs).tokens.astype(np.uint16).tofile(folder / name)
    return str(folder / name)


def experiment(folder, data=None, theirs="gpt2", tokenizer=()):
    data = {
        "source": "tokens", "paths": (write(folder, "train.bin", DOCUMENTS[9:], theirs),),
        "validation_paths": (write(folder, "val.bin", DOCUMENTS[:9], theirs),),
        "cache": str(folder / "cache"),
    } | (data or {})  # fmt: skip
    tokenizer = {"kind": "file", "path": str(folder / "their.json"), **dict(tokenizer)}
    training = {"steps": 4, "eval_every": 4}
    return tiny.config(
        folder, architecture="decoder", data=data, tokenizer=tokenizer, training=training
    )


@pytest.mark.parametrize("packing", ["windows", "documents"])
def test_tokens_are_trained_on_as_their_text_is(tmp_path, packing):
    """The same batches, and the same bytes that a validation loss is over."""
    task = tiny.prepare(experiment(tmp_path, data={"packing": packing}))
    streams = [text.build_stream(part, task.tokenizer) for part in (DOCUMENTS[9:], DOCUMENTS[:9])]
    runner = SingleRunner()
    data = task.training_data(runner)
    same = dataclasses.replace(task, train={"": streams[0]})
    for step in (0, 5, 1000):
        np.testing.assert_equal(data.batches[step], same.training_data(runner).batches[step])
    first_of = DOCUMENTS[:9] if packing == "documents" else DOCUMENTS[:1]
    unpredicted = sum(
        task.tokenizer.byte_length(int(task.tokenizer.encode(document)[0])) for document in first_of
    )
    assert (
        data.validation_bytes
        == sum(len(document.encode()) for document in DOCUMENTS[:9]) - unpredicted
    )
    assert task.summary.documents == len(DOCUMENTS) - 9


def test_run_is_trained_resumed_and_opened(tmp_path):
    config = experiment(tmp_path, data={"packing": "documents"})
    report = tiny.train(config)
    assert report[0] == "token files: 45 documents for training, 9 for validation"
    assert runs.train_run(tiny.change(config, training={"steps": 6})).step == 6
    (tmp_path / "val.bin").unlink()
    (tmp_path / "their.json").unlink()  # the run has its tokenizer
    run = runs.open_run(config.out)
    evaluation = tiny.evaluated_as_trained(tmp_path, run)
    assert run.evaluate([config.data.paths[0]]).predicted > evaluation.predicted
    assert run.step == 6 and evaluation.bits_per_byte is not None
    assert run.generate("The night", max_new_tokens=3, seed=0)
    assert run.config.samples.prompts == ()  # the files have no text


def test_loss_has_no_bytes_where_tokens_do_not_say_them(tmp_path):
    task = tiny.prepare(experiment(tmp_path, theirs="bert"))
    assert task.training_data(SingleRunner()).validation_bytes is None
    task.save(tmp_path)
    assert task.load_validation(tmp_path)[""].num_bytes is None


def test_packing_needs_what_ends_documents(tmp_path):
    data = {"packing": "documents"}
    with pytest.raises(
        ConfigError, match=r"needs the token that ends each document, .*end_of_text"
    ):
        tiny.prepare(experiment(tmp_path, data=data, theirs="t5"))
    ended = experiment(tmp_path, data=data, theirs="t5", tokenizer={"end_of_text": "</s>"})
    assert tiny.prepare(ended).summary.documents == 1  # as the file has none
    assert tiny.prepare(experiment(tmp_path, theirs="t5")).summary.documents == 1
