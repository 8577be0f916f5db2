"""Runs with a tokenizer that is there before them, in a file."""

import numpy as np
import pytest

from jaxformer import text
from jaxformer.errors import DataError
from jaxformer.planning.settings import planned_model
from jaxformer.training import SingleRunner
from tests.runs import tiny
from tests.text.foreign_tokenizers import END, TEXT, foreign_json

LINES = [f"{line} {i}" for i in range(7) for line in TEXT.splitlines()]


def experiment(folder, architecture, name="gpt2", **changes):
    (folder / "their.json").write_text(foreign_json(name), encoding="utf-8")
    source = "pairs" if architecture == "encoder_decoder" else "files"
    lines = [f"{line.strip()}\t{line.strip()}" for line in LINES] if source == "pairs" else LINES
    paths = (tiny.write(folder / "text.txt", lines),)
    tokenizer = {"kind": "file", "path": str(folder / "their.json")} | changes.pop("tokenizer", {})
    data = {"source": source, "paths": paths, "validation_fraction": 0.3}
    model = {"max_len": 64} | changes.pop("model", {})
    return tiny.config(
        folder, architecture=architecture, data=data, tokenizer=tokenizer, model=model, **changes
    )


@pytest.mark.parametrize("name", END)
def test_pairs_and_masks_take_a_file(tmp_path, name):
    ended = {"end_of_text": END[name]}
    task = tiny.prepare(experiment(tmp_path, "encoder_decoder", name, tokenizer=ended))
    assert task.model.tokenizers[0] is task.model.tokenizers[1]
    assert task.train.examples[0]["source_tokens"][-1] == task.tokenizer.end_of_text
    masked = tiny.prepare(experiment(tmp_path, "encoder", name))
    assert masked.tokenizer.mask == task.tokenizer.vocab_size


def test_pairs_need_an_end_of_text(tmp_path):
    with pytest.raises(DataError, match=r"must have an end of text, .* tokenizer.end_of_text"):
        tiny.prepare(experiment(tmp_path, "encoder_decoder", "t5"))


def test_file_that_has_a_mask_keeps_it(tmp_path):
    first = tiny.prepare(experiment(tmp_path, "encoder"))
    first.tokenizer.save(tmp_path / "masked.json")
    again = experiment(tmp_path, "encoder", tokenizer={"path": str(tmp_path / "masked.json")})
    assert tiny.prepare(again).tokenizer.to_json() == first.tokenizer.to_json()


def test_special_tokens_are_never_masked(tmp_path):
    config = tiny.change(experiment(tmp_path, "encoder", "bert"), data={"mask_rate": 0.99})
    batch = tiny.prepare(config).training_data(SingleRunner()).batches[0]
    assert np.isin(batch["tokens"], range(5)).any()  # such as [UNK]
    assert not np.isin(batch["labels"], range(5)).any()


def test_plan_takes_the_size_of_the_vocabulary_from_the_file(tmp_path):
    for architecture, masks in (("decoder", 0), ("encoder", 1)):
        planned = planned_model(experiment(tmp_path, architecture))
        size = text.Tokenizer.from_json(foreign_json("gpt2")).vocab_size
        assert planned.config.model.vocab_size == size + masks
