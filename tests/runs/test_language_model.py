"""What only runs of decoders have."""

import dataclasses

import pytest

from jaxformer import text
from jaxformer.runs.stream_text import encode_text
from jaxformer.training import SingleRunner
from tests.runs import tiny


@pytest.mark.parametrize(
    ("documents", "tokenizer", "packing", "expected"),
    [
        # Of "éa", "bc" and an end of text after each, the first byte of é is not predicted,
        (["éa", "bc"], text.byte_tokenizer(), "windows", 5 - 1),
        # and where every document stands for itself, b is not, either.
        (["éa", "bc"], text.byte_tokenizer(), "documents", 5 - 2),
        (["one two", "two"], text.train_word(["one two two", "one"]), "documents", 10 - 6),
    ],
)
def test_bytes_of_text_are_those_that_are_predicted(
    tmp_path, monkeypatch, documents, tokenizer, packing, expected
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tiny.write(tmp_path / "text.txt", ["one two one two"] * 9)
    data = {"source": "files", "paths": (path,), "packing": packing}
    task = tiny.prepare(tiny.config(tmp_path, architecture="decoder", data=data))
    task = dataclasses.replace(task, tokenizers=(tokenizer,))
    validation = encode_text(documents, tokenizer, task.config.data)
    found = task.evaluation_data(validation, SingleRunner())
    assert found.validation_bytes == expected
