"""Flags that override keys of a config: values, other kinds, other data, and mistakes."""

import dataclasses
import tomllib

import pytest

from jaxformer.cli.commands import COMMANDS
from jaxformer.cli.experiment import merged_config, read_config
from jaxformer.cli.parsing import Command
from jaxformer.config import (
    AdamWConfig,
    AlibiConfig,
    ExperimentConfig,
    ExpertsConfig,
    LayerConfig,
    LinearScalingConfig,
    LionConfig,
    MixtureSourceConfig,
    NoPositionsConfig,
    RelativeConfig,
    RotaryConfig,
    SgdConfig,
    SinusoidalConfig,
    TranslationConfig,
    YarnScalingConfig,
    config_to_toml,
    load_config,
)
from jaxformer.config.files import read_tables
from jaxformer.config.reading import dotted_keys
from jaxformer.errors import ConfigError
from tests.small_config import LINEAR, model, small

LOADED = small(
    out="there",
    model=model(positions=RotaryConfig(base=77.0, layout="interleaved", scaling=LINEAR)),
    optimizer=AdamWConfig(learning_rate=0.25, beta2=0.5, clip_norm=0.0),
)
LAYERS = (LayerConfig(local_window_size=3), LayerConfig(positions="alibi"))
MIXTURE = tuple(
    MixtureSourceConfig(name=name, paths=(f"{name}/*.txt",), weight=weight)
    for name, weight in (("web", 3.0), ("code", 0.5))
)


def flags_of(words):
    """Values of the flags of a command line of jaxformer train."""
    return Command.of("train", COMMANDS["train"]).parse(["it.toml", *words.split()])["flags"]


def override(words, config=LOADED):
    tables = tomllib.loads(config_to_toml(config))
    return merged_config("it.toml", tables, flags_of(words))


def test_no_flag_changes_nothing():
    assert override("") == LOADED
    for path in ("configs/quickstart.toml", "configs/transformer_base.toml"):
        assert override("", load_config(path)) == load_config(path)


ROTARY = LOADED.model.positions
KINDS = {
    "--model.positions.base 3": dataclasses.replace(ROTARY, base=3.0),
    "--model.positions alibi": AlibiConfig(),
    "--model.positions.kind=alibi": AlibiConfig(),
    "--model.positions none": NoPositionsConfig(),
    "--model.positions rotary": RotaryConfig(),
    # Its defaults, not what a key of the same name had in the other kind.
    "--model.positions sinusoidal": SinusoidalConfig(),
    "--model.positions sinusoidal --model.positions.base 3": SinusoidalConfig(base=3.0),
    # Keys before and after the kind, with hyphens or underscores.
    "--model.positions.num-buckets 8 --model.positions relative --model.positions.max_distance 9":
        RelativeConfig(num_buckets=8, max_distance=9),
    # A union within a union.
    "--model.positions.scaling.factor 4":
        dataclasses.replace(ROTARY, scaling=LinearScalingConfig(factor=4.0)),
    "--model.positions.scaling None": dataclasses.replace(ROTARY, scaling=None),
    "--model.positions.scaling.original-max-len 8 --model.positions.scaling yarn"
    " --model.positions.scaling.factor 2 --model.positions.scaling.truncate false":
        dataclasses.replace(
            ROTARY, scaling=YarnScalingConfig(factor=2.0, original_max_len=8, truncate=False)
        ),
    "--optimizer.beta2 0.75": dataclasses.replace(LOADED.optimizer, beta2=0.75),
    "--optimizer.name lion --optimizer.learning-rate 3": LionConfig(learning_rate=3.0),
    "--optimizer.nesterov true --optimizer.learning-rate 1 --optimizer sgd":
        SgdConfig(learning_rate=1.0, nesterov=True),
}  # fmt: skip


@pytest.mark.parametrize("words", KINDS)
def test_flags_choose_a_kind_and_set_its_keys(words):
    changed = override(words)
    if "optimizer" in words:
        assert changed == dataclasses.replace(LOADED, optimizer=KINDS[words])
    else:
        assert changed.model.positions == KINDS[words]
        assert dataclasses.replace(changed, model=LOADED.model) == LOADED


def test_values_are_of_the_types_of_their_keys():
    words = "--training.steps 1e3 --model.d-ff 2.5e2 --samples.top-k=None --data.cache None"
    changed = override(f"{words} --samples.top-p 0.5 --model.qk-norm True --out 7")
    assert (changed.training.steps, changed.model.d_ff) == (1000, 250)
    assert type(changed.training.steps) is int and changed.model.qk_norm is True
    assert changed.samples.top_k is changed.data.cache is None and changed.samples.top_p == 0.5
    assert changed.out == "7"
    translator = load_config("configs/phrasebook_en_kn.toml")
    for word, value in (("True", True), ("never", "never")):
        changed = override(f"--translation.early-stopping {word}", translator)
        assert changed.translation == TranslationConfig(early_stopping=value)


def test_of_a_flag_that_comes_again_lists_grow_and_other_values_are_the_last():
    changed = override("--seed 1 --data.paths a b --seed 2 --data.paths c")
    assert changed.seed == 2 and changed.data.paths == ("a", "b", "c")


def test_flags_make_a_table_that_the_config_does_not_have():
    words = "--model.experts.num-experts 5 --model.experts.num-experts-per-token 2"
    experts = override(words).model.experts
    assert experts == ExpertsConfig(num_experts=5, num_experts_per_token=2)
    with_experts = dataclasses.replace(LOADED, model=model(experts=experts))
    changed = override("--model.experts.d-ff 7", with_experts).model.experts
    assert changed == dataclasses.replace(experts, d_ff=7)


def test_none_unsets_what_a_run_starts_from(tmp_path):
    (tmp_path / "it.toml").write_text(config_to_toml(small(out="there", init_from="absent")))
    assert read_config(str(tmp_path / "it.toml"), {"init_from": None}).init_from is None


def test_model_that_is_no_table_is_said_with_a_start_too(trained, tmp_path):
    start = f'model = 3\nout = "there"\ninit_from = "{trained[0] / "run"}"\n'
    (tmp_path / "it.toml").write_text(start, encoding="utf-8")
    with pytest.raises(ConfigError, match="model must be a table, got 3"):
        read_config(str(tmp_path / "it.toml"), {})


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("quickstart", "files"), ("nanogpt_cpu", "files"), ("masked_python", "files"),
        ("multi30k_cpu", "pairs"), ("reverse", "pairs"), ("phrasebook_topics", "labelled"),
    ],
)  # fmt: skip
def test_other_data_is_of_the_kind_that_the_model_is_trained_on(name, source):
    """What the config says of its own data is left out."""
    loaded, tables = load_config(name), read_tables(name)
    config = merged_config(name, tables, flags_of("--data.paths my.txt"))
    assert config.data.source == source and config.data.paths == ("my.txt",)
    assert config.data.validation_paths == ()
    assert not config.samples.prompts or loaded.data.source == source
    words = "--data.paths my.txt --data.validation-paths v.txt --samples.prompts [MASK]"
    config = merged_config(name, tables, flags_of(words))
    assert config.data.validation_paths == ("v.txt",) and config.samples.prompts == ("[MASK]",)


def test_flags_leave_arrays_of_tables_as_they_are_but_other_data_replaces_a_mixture():
    data = dataclasses.replace(LOADED.data, source="files", paths=(), mixture=MIXTURE)
    layered = dataclasses.replace(LOADED.model, layers=LAYERS)
    config = dataclasses.replace(LOADED, model=layered, data=data)
    assert override("", config) == config
    changed = override("--mesh.fsdp 3 --model.num-layers 5", config)
    assert changed.model.layers == LAYERS and changed.data == data
    changed = override("--data.paths my.txt", config)
    assert (changed.data.paths, changed.data.mixture) == (("my.txt",), ())


def test_keys_of_several_kinds_have_one_type_so_that_a_flag_is_read_before_the_kind_is_known():
    members = {}
    for dotted, key in dotted_keys(ExperimentConfig):
        if len(key.choices) != 1:  # it tells the kinds apart
            assert members.setdefault(dotted, key.members) == key.members, dotted


WRONG = {
    # Unknown flags, with those that are meant.
    "--lr 3": "no option --lr; did you mean --optimizer.learning-rate?",
    "--optimizer.lr=3": "no option --optimizer.lr; did you mean --optimizer.learning-rate?",
    "--batch-size 3": "did you mean --training.batch-size?",
    "--epochs 3": "did you mean --training.steps?",
    "--heads 3": "did you mean --model.num-heads or --model.num-kv-heads?",
    "--dropout 3": "did you mean --model.dropout-rate?",
    "--training.seed 3": "did you mean --seed?",
    "--model.num-head 3": "did you mean --model.num-heads?",
    "--model.positions.bse 3": "did you mean --model.positions.base?",
    "--vocab-size 3": "did you mean --model.vocab-size or --tokenizer.vocab-size?",
    "--data.mixture.0.path x": "jaxformer train --help-all lists all but arrays of tables",
    # Values, which reading the config refuses, all at once.
    "--model.positions alibbi": "model.positions must be one of none, .* mean 'alibi'",
    "--optimizer.name adam": "optimizer must be one of adamw, sgd.*'adamw'",
    "--optimizer lion": r"missing key optimizer.learning_rate \(a number\)",
    "--optimizer.nesterov true": "optimizer.nesterov is for optimizer of name 'sgd' or 'muon', got",
    "--training.steps": "argument --training.steps: expected one argument",
    "--model.qk-norm 1": "flags: model.qk_norm must be true or false, got '1'",
    "--model.positions.scaling llama3":
        r"4 mistakes: \(1\) missing key model.positions.scaling.factor \(a number\)",
    "--model.positions alibi base": "takes no 'base'",
    "--model.positions alibi --model.positions.base 3":
        "model.positions.base is for model.positions of kind 'sinusoidal' or 'rotary', got",
    "--training.steps 1e400": "training.steps must be an integer, got inf",
    "--samples.top-k all": "samples.top_k must be an integer, got 'all'",
    "--model.num-layers 1 --model.layers 3": "no option --model.layers",
    "--training.steps=0 --model.d-ff=x": r"2 mistakes: \(1\) model.d_ff .* \(2\) training.steps",
    "--model.experts.num-experts 5": "missing key model.experts.num_experts_per_token",
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_wrong_flags_are_refused_in_one_line(words):
    with pytest.raises(ConfigError, match=WRONG[words]) as error:
        override(words)
    assert "\n" not in str(error.value)
