"""Runs that start from folders of Hugging Face."""

import dataclasses
import json

import chex
import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.config import LoraConfig
from jaxformer.errors import ConfigError
from jaxformer.interop import load_huggingface
from jaxformer.training import SingleRunner
from tests.runs import pretrained_folders, tiny

TEXT = pretrained_folders.TEXT


def starting(tmp_path, folder, **changes):
    """A config that trains a decoder or encoder of a folder on a text."""
    path = tiny.write(tmp_path / "text.txt", [TEXT, "a dog ran to the house"] * 40)
    values = {
        "data": {"source": "files", "paths": [str(path)]},
        "optimizer": {"learning_rate": 1e-3},
        "training": {"steps": 2, "batch_size": 4, "runner": "single"},
    }
    for name, table in changes.items():
        values[name] = values.get(name, {}) | table
    return pretrained_folders.starting(tmp_path / "run", folder, values)


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=2)])
def test_chat_template_of_a_folder_is_kept_where_it_is_fine_tuned(tmp_path, lora):
    folder, message = tmp_path / "model", {"role": "user", "content": TEXT}
    pretrained_folders.llama(folder)
    template = pretrained_folders.with_chat_template(folder)
    expected = runs.open_run(folder).encode_messages([message])
    config = starting(tmp_path, folder, model={"max_len": 12}, training={"steps": 1})
    config = dataclasses.replace(config, lora=lora)
    assert runs.prepare_task(config).model.chat_template is not None
    runs.train_run(config)
    folder.rename(tmp_path / "moved")  # a run that goes on has a template of its own
    base = None if lora is None else tmp_path / "moved"
    runs.train_run(tiny.change(config, training={"steps": 2}), base=base)
    run = runs.open_run(config.out, base=base)
    assert run.encode_messages([message]) == expected and run.stop_tokens == (1, 2)
    runs.convert(config.out, tmp_path / "again", base=base)
    values = json.loads((tmp_path / "again" / "tokenizer_config.json").read_text())
    assert values["chat_template"] == template
    if lora is None:  # A run that starts from this one has it, too.
        other = dataclasses.replace(config, init_from=config.out, out=str(tmp_path / "other"))
        assert runs.prepare_task(other).model.encode_messages([message]) == expected


def test_lora_trains_beside_the_weights_of_a_folder(folders, tmp_path):
    folder, _, params = folders("llama")
    config = starting(tmp_path, folder, model={"max_len": 8})
    config = dataclasses.replace(config, lora=LoraConfig(rank=2))
    reports = tiny.train(config)
    assert any(line.startswith("LoRA: ") for line in reports)
    run = runs.open_run(tmp_path / "run")
    attention = run.params["stack"]["layers"]["attention"]
    before = params["stack"]["layers"]["attention"]
    np.testing.assert_array_equal(attention["key_kernel"], before["key_kernel"])
    assert not np.array_equal(attention["query_kernel"], before["query_kernel"])
    runs.convert(tmp_path / "run", tmp_path / "merged")
    merged = load_huggingface(tmp_path / "merged").params
    jax.tree.map(np.testing.assert_array_equal, merged, run.params)
    # The matrices alone are an adapter, which opens, and starts a run, merged with its model.
    adapter = tmp_path / "adapter"
    said = runs.convert(tmp_path / "run", adapter, adapter=True)
    assert said == f"wrote an adapter of {folder} to {adapter}"
    opened = runs.open_run(adapter).params["stack"]["layers"]["attention"]
    for name in ("query_kernel", "value_kernel"):
        np.testing.assert_allclose(opened[name], attention[name], rtol=0, atol=1e-6)
    task = runs.prepare_task(starting(tmp_path, adapter, model={"max_len": 8}))
    start = task.source.start(task.model, SingleRunner()).params["stack"]["layers"]["attention"]
    np.testing.assert_array_equal(start["query_kernel"], opened["query_kernel"])


def test_training_starts_from_a_folder_and_keeps_its_tokens(folders, tmp_path):
    folder, _, params = folders("llama")
    config = starting(tmp_path, folder, model={"max_len": 8, "dropout_rate": 0.1})
    assert config.tokenizer.kind == "pretrained" and config.model.activation == "swiglu"
    with tiny.logged() as reports:
        result = runs.train_run(config)
    assert f"starting from the weights and tokenizers of {folder}" in reports
    before = runs.open_run(folder).evaluate([tmp_path / "text.txt"]).loss
    assert result.step == 2
    run = runs.open_run(tmp_path / "run")
    assert run.stop_tokens == (1, 2) and run.encode(TEXT)[0] == 0
    assert run.evaluate([tmp_path / "text.txt"]).loss < before + 0.5
    # It goes on, with the folder gone or not, and is a model of the family still.
    longer = starting(tmp_path, folder, model={"max_len": 8, "dropout_rate": 0.1})
    longer = dataclasses.replace(longer, training=dataclasses.replace(longer.training, steps=3))
    assert runs.train_run(longer).step == 3
    runs.convert(tmp_path / "run", tmp_path / "exported")
    again = load_huggingface(tmp_path / "exported")
    assert again.config.max_len == 8
    chex.assert_trees_all_equal(again.params, runs.open_run(tmp_path / "run").params)


def test_table_of_positions_is_cut_where_texts_are_shorter(folders, tmp_path):
    folder, _, params = folders("gpt2")
    config = starting(tmp_path, folder, model={"max_len": 8}, training={"steps": 1})
    config = dataclasses.replace(
        config, optimizer=dataclasses.replace(config.optimizer, learning_rate=1e-30)
    )  # fmt: skip
    runs.train_run(config)
    table = runs.open_run(tmp_path / "run").params["positions"]["embedding"]
    np.testing.assert_array_equal(table, params["positions"]["embedding"][:8])
    longer = starting(tmp_path, folder, model={"max_len": 32})
    with pytest.raises(ConfigError, match=r"model\.max_len: 24 there, 32 here"):
        runs.train_run(dataclasses.replace(longer, out=str(tmp_path / "longer")))


def test_headless_encoder_is_for_classifiers(folders, tmp_path):
    folder, *_ = folders("bert_base")
    config = starting(tmp_path, folder, model={"max_len": 8})
    for use in (lambda: runs.open_run(folder), lambda: runs.train_run(config)):
        with pytest.raises(ConfigError, match="without a head, .* or start a classifier from it"):
            use()


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("bert", None),
        ("bert", 3),
        ("bert_base", None),
    ],
)
def test_classifier_starts_from_an_encoder_with_any_head(folders, tmp_path, name, classes):
    folder, _, params = folders(name, *([classes] if classes else []))
    path = tiny.write(tmp_path / "labels.tsv", [f"{TEXT}\tgood", "a dog ran\tbad"] * 10)
    values = {
        "data": {"source": "labelled", "paths": [path]},
        "optimizer": {"learning_rate": 1e-30},
        "training": {"steps": 1, "batch_tokens": 64, "runner": "single"},
    }
    runs.train_run(pretrained_folders.starting(tmp_path / "run", folder, values))
    classifier = runs.open_run(tmp_path / "run")
    assert classifier.classes == ("bad", "good")
    kernel = classifier.params["encoder"]["stack"]["layers"]["feed_forward"]["up_kernel"]
    np.testing.assert_array_equal(
        kernel, params["encoder"]["stack"]["layers"]["feed_forward"]["up_kernel"]
    )
    if name == "bert_base":
        poolers = classifier.params["pooler"], params["pooler"]
        chex.assert_trees_all_close(*poolers, rtol=1e-6, atol=1e-20)
