"""What only runs of decoders have."""

import dataclasses

import numpy as np
import pytest

from jaxformer import runs, text
from jaxformer.config import ExpertsConfig
from jaxformer.runs.data import view
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
    model = dataclasses.replace(task.model, tokenizers=(tokenizer,))
    task = dataclasses.replace(task, model=model)
    corpus = text.Corpus.of(text.Documents.of(documents))
    validation, _ = text.prepare_documents(corpus, tokenizer, None)
    evaluation_data = task.evaluation_data({"": validation}, SingleRunner())
    assert evaluation_data.validation_bytes == expected


@pytest.mark.parametrize("packing", ["windows", "documents"])
def test_batches_of_a_mixture_of_experts_say_where_their_padding_is(tmp_path, packing):
    """A router must not balance the padding of the last window."""
    config = tiny.config(
        tmp_path, architecture="decoder", model={"vocab_size": 257, "experts": ExpertsConfig(
            num_experts=2, num_experts_per_token=1)},
        data={"source": "files", "paths": ("none.txt",), "packing": packing},
    )  # fmt: skip
    model = runs.LanguageModel(config=config, tokenizers=(text.byte_tokenizer(),))
    stream = text.TokenStream(np.arange(18), np.array([0]))  # a window of 12 tokens, and one of 5
    windows = runs.LanguageModelTask(model=model).windows(stream)
    batch = next(text.Batches(windows, 2).once())
    assert batch.keys() == model.batch_shapes(2).keys()
    assert view.real_tokens({**batch, "labels": None}).sum(axis=1).tolist() == [12, 5]


@pytest.mark.parametrize(
    "line, max_len, prompt",
    [
        ("Return the first match of a pattern.", 64, "Return the first"),  # 20 letters: "mat"
        ("Return the first one", 64, "Return the first one"),
        ("Return the first one.", 64, "Return the first"),
        ("ReturnTheFirstMatchOfAPattern", 64, "ReturnTheFirstMatchO"),  # no word ends before
        ("Return the first match", 24, "Return the"),  # what half of the context holds
        ("Return", 8, "Retu"),
    ],
)
def test_prompts_from_the_validation_text_end_with_a_word(tmp_path, line, max_len, prompt):
    config = tiny.config(
        tmp_path, architecture="decoder", data={"source": "files", "paths": ("none.txt",)},
        tokenizer={"kind": "byte"}, model={"max_len": max_len},
    )  # fmt: skip
    model = runs.LanguageModel(config=config, tokenizers=(text.byte_tokenizer(),))
    task = runs.LanguageModelTask(model=model)
    assert task.default_prompts([f"  {line}\n"]) == (prompt,)
