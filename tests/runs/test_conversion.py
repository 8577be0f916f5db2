"""Conversion between runs, folders of Hugging Face, and files of parameters."""

import dataclasses
import re
import shutil

import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.cli import main
from jaxformer.config import SamplingConfig, load_config
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.inference import generate
from jaxformer.interop import (
    HuggingFaceModel,
    load_params,
    open_huggingface,
    save_huggingface,
)
from jaxformer.models import Decoder
from tests.runs import pretrained_folders, tiny

GREEDY = SamplingConfig(temperature=0.0)
TEXT = pretrained_folders.TEXT
ids_of = pretrained_folders.ids_of


def test_chat_template_of_a_folder_comes_along(folders, tmp_path, capsys):
    folder = tmp_path / "model"
    config, params = pretrained_folders.llama(folder)
    pretrained_folders.with_chat_template(folder)
    run, message = runs.open_run(folder), {"role": "user", "content": TEXT}
    ids = [0, *ids_of(folder, TEXT)[1:], 1, 2]
    (expected,) = generate(
        Decoder(config), params, [ids], max_new_tokens=9, rng=jax.random.key(0), sampling=GREEDY,
        stop_tokens=(1, 2),
    )  # fmt: skip
    answer = run.chat([message], max_new_tokens=9, temperature=0.0)
    assert answer.strip() == run.decode(expected)
    runs.convert(folder, tmp_path / "run")
    again = runs.open_run(tmp_path / "run")
    assert again.chat([message], max_new_tokens=9, temperature=0.0) == answer
    main(["generate", str(tmp_path / "run"), TEXT, "--chat", "--max-new-tokens", "9"])
    assert capsys.readouterr().out == f"{TEXT}\n{answer}\n"
    assert "to have messages answered: jaxformer generate" in again.uses[1]
    with pytest.raises(ConfigError, match="is a language model without a chat template"):
        runs.open_run(folders("gpt2")[0]).chat([message])


def test_export_is_pushed_with_a_card(source, hub, tmp_path, monkeypatch):
    """The card's config is that of the run, and the model can be opened by its id."""
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_user")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    line = runs.convert(source, tmp_path / "out", push="owner/sentences")
    assert "/owner/sentences/commit/" in line
    card = hub.files("models/owner/sentences")["README.md"].decode()
    assert card == (tmp_path / "out" / "README.md").read_text()
    assert "- validation loss: " in card and "- steps: 4" in card
    assert "- to continue text: `jaxformer generate owner/sentences TEXT`" in card
    (tmp_path / "config.toml").write_text(re.search("```toml\n(.*)```", card, re.DOTALL)[1])
    run, config = runs.open_run(source), load_config(tmp_path / "config.toml")
    assert dataclasses.replace(config, out=run.config.out) == run.config
    monkeypatch.chdir(tmp_path)
    again = runs.open_run("owner/sentences")
    assert again.encode("the cat").tolist() == run.encode("the cat").tolist()
    jax.tree.map(np.testing.assert_array_equal, again.params, run.params)


def test_export_that_cannot_be_pushed_stays(source, hub, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    with pytest.raises(CheckpointError, match=r"out was written, but .* hf upload owner/none "):
        runs.convert(source, tmp_path / "out", push="owner/none")
    runs.open_run(tmp_path / "out")
    with pytest.raises(CheckpointError, match="cannot be uploaded to a b: Repo id must "):
        runs.convert(source, tmp_path / "new", push="a b")


def test_translator_that_was_trained_here_is_exported_with_how_it_decodes(tmp_path):
    rows = [f"{a} {b}\t{b} {a}" for a in ("one", "two", "three") for b in ("six", "ten", "two")]
    config = tiny.config(
        tmp_path, architecture="encoder_decoder",
        data={"source": "pairs", "paths": (tiny.write(tmp_path / "a.tsv", rows),),
              "validation_fraction": 0.3},
        model={"positions": "learned", "norm": "layer_norm", "activation": "gelu",
               "norm_position": "pre", "embedding_norm": True, "output_bias": True},
        training={"steps": 1, "eval_every": 1},
    )  # fmt: skip
    runs.train_run(config)
    said = runs.convert(tmp_path / "run", tmp_path / "hf")
    assert said.startswith("wrote a model of type mbart to ")
    run, again = runs.open_run(tmp_path / "run"), runs.open_run(tmp_path / "hf")
    np.testing.assert_array_equal(run.encode("one"), again.encode("one"))
    assert again.decoding.decoder_start == run.tokenizer.end_of_text
    assert again.config.translation.beam_size == run.config.translation.beam_size
    assert again.translate(["one"]) == run.translate(["one"])
    # Its tokenizer puts the end behind a source in any program.
    assert ids_of(tmp_path / "hf", "one") == run.encode("one").tolist()


@pytest.mark.parametrize("name", [("gpt2",), ("llama",), ("bert",), ("bert", 3), ("t5",)])
def test_folder_to_run_to_folder_is_the_same(folders, tmp_path, name):
    folder, *_ = folders(*name)
    assert "wrote a run to" in runs.convert(folder, tmp_path / "run")
    run, before = runs.open_run(tmp_path / "run"), runs.open_run(folder)
    assert run.config.model == before.config.model
    jax.tree.map(np.testing.assert_array_equal, run.params, before.params)
    assert run.decoding == before.decoding
    assert run.tokenizer.identity == before.tokenizer.identity
    np.testing.assert_array_equal(run.encode(TEXT), before.encode(TEXT))
    assert not any(runs.verify_run(tmp_path / "run").values())
    runs.convert(tmp_path / "run", tmp_path / "again")
    old, new = (path / "model.safetensors" for path in (folder, tmp_path / "again"))
    assert old.read_bytes() == new.read_bytes()
    classes = [open_huggingface(path).class_names for path in (folder, tmp_path / "again")]
    assert classes[0] == classes[1] and bool(classes[0]) == (name == ("bert", 3))
    with pytest.raises(CheckpointError, match="choose another target"):
        runs.convert(folder, tmp_path / "run")


def test_run_is_written_as_the_family_that_it_was_loaded_as(folders, tmp_path):
    folder, config, params = folders("llama")
    save_huggingface(tmp_path / "hf", HuggingFaceModel(config, params), model_type="mistral")
    shutil.copy(folder / "tokenizer.json", tmp_path / "hf")
    runs.convert(tmp_path / "hf", tmp_path / "run")
    said = runs.convert(tmp_path / "run", tmp_path / "again")
    assert said == f"wrote a model of type mistral to {tmp_path / 'again'}"
    old, new = (tmp_path / name / "model.safetensors" for name in ("hf", "again"))
    assert old.read_bytes() == new.read_bytes()


@pytest.mark.parametrize(
    ("target", "imports", "options", "message"),
    [
        ("run", True, {"model_type": "llama"}, "model_type has no effect on what is written"),
        ("a.safetensors", False, {"model_type": "llama"}, "model_type has no effect on what"),
        ("a.safetensors", True, {"model_type": "llama"}, "model_type has no effect on what"),
        ("hf", False, {"adapter": True, "model_type": "llama"}, "model_type has no effect on"),
        ("run", True, {"adapter": True}, "adapter has no effect on what is written"),
        ("a.safetensors", False, {"adapter": True}, "adapter has no effect on what is written"),
        ("hf", False, {"adapter": True, "dtype": "bfloat16"}, "dtype has no effect on what is"),
        ("hf", False, {"adapter": True, "ignore": ["one"]}, "ignore has no effect on what is"),
        ("a.safetensors", True, {"source_language": "en"}, "source_language has no effect on"),
        ("a.safetensors", True, {"target_language": "de"}, "target_language has no effect on"),
        ("hf", False, {"adapter": True, "source_language": "en"}, "source_language has no ef"),
        ("hf", False, {"adapter": True, "target_language": "de"}, "target_language has no ef"),
        ("a.safetensors", True, {"base": "base"}, "base can only be set for a run, got base"),
        ("run", True, {"push": "owner/run"}, "push has no effect on what is written here"),
        ("hf", False, {"adapter": True, "push": "owner/run"}, "push has no effect on what is"),
        ("run", True, {"step": 1}, "step can only be set for a run, got 1"),
        ("a.safetensors", False, {"dtype": "bfloat16"}, "dtype can only be set for a Hugging"),
        ("hf", False, {"target_language": "de"}, "target_language can only be set for a Hugging"),
    ],
)
def test_options_of_other_conversions_are_refused(
    target, imports, options, message, folders, tmp_path
):
    source = folders("llama")[0] if imports else tmp_path / "run-folder"
    with pytest.raises(ConfigError, match=message):
        runs.convert(source, tmp_path / target, **options)


def test_parameters_of_any_run_are_one_file_with_a_config_beside_it(folders, tmp_path):
    folder, config, params = folders("llama")
    path = tmp_path / "weights.safetensors"
    runs.convert(folder, path)
    loaded_config, again = load_params(path)
    assert loaded_config == open_huggingface(folder).config
    jax.tree.map(np.testing.assert_array_equal, again, params)
    with pytest.raises(ValueError, match="weights.safetensors exists already; remove it"):
        runs.convert(folder, path)
    path.with_suffix(".toml").unlink()
    with pytest.raises(ConfigError, match="weights.toml: there is no such config file"):
        load_params(path)
    with pytest.raises(ConfigError, match="must end in .safetensors, got"):
        load_params(tmp_path / "weights.bin")
