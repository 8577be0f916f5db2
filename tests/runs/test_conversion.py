"""Conversion between runs, folders of Hugging Face, and files of parameters."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from jaxformer import runs, text
from jaxformer.cli import main
from jaxformer.config import SamplingConfig
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.inference import generate
from jaxformer.interop import (
    HuggingFaceModel,
    SpecialTokens,
    load_params,
    open_huggingface,
    save_huggingface,
)
from jaxformer.models import Decoder
from jaxformer.runs.weights.huggingface import decoding_of
from tests.runs import pretrained_folders, tiny

GREEDY = SamplingConfig(temperature=0.0)
TEXT = pretrained_folders.TEXT
ids_of = pretrained_folders.ids_of


def test_chat_template_of_a_folder_comes_along(folders, tmp_path, capsys):
    folder = tmp_path / "model"
    config, params = pretrained_folders.llama(folder)
    template = "<s>{% for m in messages %}{{ m.content }}</s>{% endfor %}<|eot|>"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
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
    main(["inspect", str(tmp_path / "run")])
    shown = " ".join(capsys.readouterr().out.split())
    assert "a language model, which continues text;" in shown
    assert "to have messages answered: jaxformer generate" in shown
    runs.convert(tmp_path / "run", tmp_path / "again")
    values = json.loads((tmp_path / "again" / "tokenizer_config.json").read_text())
    assert values["chat_template"] == template
    with pytest.raises(ConfigError, match="is a language model without a chat template"):
        runs.open_run(folders("gpt2")[0]).chat([message])


def test_conversion_that_is_killed_leaves_nothing_in_the_way(folders, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def die(*args):
        monkeypatch.setattr(shutil, "rmtree", lambda path: None)
        raise Killed

    source, target = folders("gpt2")[0], tmp_path / "run"
    monkeypatch.setattr("jaxformer.runs.folder.files.save_summary", die)  # once weights are on disk
    with pytest.raises(Killed):
        runs.convert(source, target)
    monkeypatch.undo()
    with pytest.raises(CheckpointError):
        runs.open_run(target)
    runs.convert(source, target)
    assert runs.open_run(target).step == 0


def test_translator_that_was_trained_here_is_exported_with_how_it_decodes(tmp_path):
    rows = [f"{a} {b}\t{b} {a}" for a in ("one", "two", "three") for b in ("six", "ten", "two")]
    made = tiny.config(
        tmp_path, architecture="encoder_decoder",
        data={"source": "pairs", "paths": (tiny.write(tmp_path / "a.tsv", rows),),
              "validation_fraction": 0.3},
        model={"positions": "learned", "norm": "layer_norm", "activation": "gelu",
               "norm_position": "pre", "embedding_norm": True, "output_bias": True},
        training={"steps": 1, "eval_every": 1},
    )  # fmt: skip
    runs.train_run(made)
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
    assert {part.damage for part in runs.verify_run(tmp_path / "run")} == {None}
    runs.convert(tmp_path / "run", tmp_path / "again")
    old, new = (path / "model.safetensors" for path in (folder, tmp_path / "again"))
    assert old.read_bytes() == new.read_bytes()
    classes = [open_huggingface(path).class_names for path in (folder, tmp_path / "again")]
    assert classes[0] == classes[1] and bool(classes[0]) == (name == ("bert", 3))
    with pytest.raises(CheckpointError, match="choose another target"):
        runs.convert(folder, tmp_path / "run")


@pytest.mark.parametrize(
    ("model_type", "activation", "note"),
    [
        ("mistral", "swiglu", ""),
        ("arcee", "relu2",
         " (Llama without a feed-forward gate; transformers reads it from 4.53 on)"),
    ],
)  # fmt: skip
def test_run_is_written_as_the_family_that_it_was_loaded_as(
    folders, tmp_path, model_type, activation, note
):
    folder, config, params = folders("llama")
    config = dataclasses.replace(config, activation=activation)
    if activation == "relu2":
        feed_forward = dict(params["stack"]["layers"]["feed_forward"])
        del feed_forward["gate_kernel"]
        layers = params["stack"]["layers"] | {"feed_forward": feed_forward}
        params = params | {"stack": {"layers": layers}}
    save_huggingface(tmp_path / "hf", HuggingFaceModel(config, params), model_type=model_type)
    shutil.copy(folder / "tokenizer.json", tmp_path / "hf")
    runs.convert(tmp_path / "hf", tmp_path / "run")
    said = runs.convert(tmp_path / "run", tmp_path / "again")
    assert said == f"wrote a model of type {model_type} to {tmp_path / 'again'}{note}"
    old, new = (tmp_path / name / "model.safetensors" for name in ("hf", "again"))
    assert old.read_bytes() == new.read_bytes()


def test_family_that_cannot_say_what_a_run_computes_any_more_is_named(
    folders, tmp_path, monkeypatch
):
    def other(*arguments):
        return dataclasses.replace(decoding_of(*arguments), model_type="gpt2")

    monkeypatch.setattr("jaxformer.runs.weights.huggingface.decoding_of", other)
    runs.convert(folders("llama")[0], tmp_path / "run")
    said = runs.convert(tmp_path / "run", tmp_path / "again")
    assert said == (
        f"wrote a model of type llama to {tmp_path / 'again'} (gpt2, which it was loaded as, "
        "cannot represent it any more)"
    )


@pytest.mark.parametrize(
    ("target", "of_folder", "of_run"),
    [
        ("run", {"model_type", "step", "base"}, {"ignore", "source_language", "target_language"}),
        (
            "weights.safetensors",
            {"model_type", "step", "base", "source_language", "target_language"},
            {"model_type", "dtype", "ignore", "source_language", "target_language"},
        ),
    ],
)
def test_options_of_other_conversions_are_refused(target, of_folder, of_run, folders, tmp_path):
    """Those that are not refused meet a source or target that cannot be used."""
    options = {
        "model_type": "llama", "step": 1, "base": "base", "dtype": "bfloat16", "ignore": ["one"],
        "source_language": "en", "target_language": "de",
    }  # fmt: skip
    path = tmp_path / target
    (path if path.suffix else path / "file").parent.mkdir(exist_ok=True)
    (path if path.suffix else path / "file").touch()
    for source, expected in ((folders("llama")[0], of_folder), (tmp_path / "absent", of_run)):
        refused = set()
        for name, value in options.items():
            with pytest.raises(ValueError) as error:
                runs.convert(source, path, **{name: value})
            if f"{name} has no effect on what is written here" in str(error.value):
                refused.add(name)
        assert refused == expected


def test_parameters_of_any_run_are_one_file_with_a_config_beside_it(folders, tmp_path):
    folder, config, params = folders("llama")
    path = tmp_path / "weights.safetensors"
    runs.convert(folder, path)
    found, again = load_params(path)
    assert found == open_huggingface(folder).config
    jax.tree.map(np.testing.assert_array_equal, again, params)
    for options, message in (
        ({}, "weights.safetensors exists already; remove it"),
        ({"dtype": "bfloat16"}, "exists already"),
        ({"model_type": "llama"}, "model_type has no effect on what is written here"),
    ):
        with pytest.raises(ValueError, match=message):
            runs.convert(folder, path, **options)
    path.with_suffix(".toml").unlink()
    with pytest.raises(ConfigError, match="weights.toml: there is no such config file"):
        load_params(path)
    with pytest.raises(ConfigError, match="must end in .safetensors, got"):
        load_params(tmp_path / "weights.bin")


def test_decoder_start_that_a_model_has_is_exported(tmp_path):
    config = tiny.config(
        tmp_path, architecture="encoder_decoder", data={"source": "copy"},
        tokenizer={"kind": "byte"},
        model={"vocab_size": 257, "positions": "learned", "norm": "layer_norm",
               "activation": "gelu", "norm_position": "pre", "embedding_norm": True,
               "output_bias": True},
    )  # fmt: skip
    tokenizers, decoding = (text.byte_tokenizer(),) * 2, SpecialTokens(decoder_start=3)
    model = runs.Translator(config=config, tokenizers=tokenizers, decoding=decoding)
    params = jax.jit(model.initializer)(jax.random.key(0))
    model = dataclasses.replace(model, params=params)
    assert save_huggingface(tmp_path / "hf", model.to_huggingface()) == "mbart"
    settings = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    assert settings["decoder_start_token_id"] == 3
