"""Overrides of a config by flags: values, other kinds, and what flags cannot change."""

import dataclasses
import tomllib
import typing

import pytest

from jaxformer.cli import main
from jaxformer.cli.experiment import config_tables, merged_config
from jaxformer.cli.flags import split_flags
from jaxformer.config import (
    AdamWConfig,
    AlibiConfig,
    ExperimentConfig,
    ExpertsConfig,
    LayerConfig,
    LinearScalingConfig,
    LionConfig,
    MeshConfig,
    MeshRule,
    MixtureSourceConfig,
    NoPositionsConfig,
    OptimizerConfig,
    PositionsConfig,
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


def merge(tables, words):
    """The config of tables with flags, and the lines on what other data implies."""
    words_of_no_flag, flags = split_flags(words)
    assert not words_of_no_flag
    return merged_config("it.toml", tables, flags, command="train")


def override(words, config=LOADED):
    return merge(tomllib.loads(config_to_toml(config)), words.split())[0]


def test_no_flag_changes_nothing():
    assert override("") == LOADED
    for path in ("configs/quickstart.toml", "configs/transformer_base.toml"):
        assert override("", load_config(path)) == load_config(path)


ROTARY = LOADED.model.positions
KINDS = {
    "--model.positions.base 3": dataclasses.replace(ROTARY, base=3.0),
    "--model.positions alibi": AlibiConfig(),
    "--model.positions=alibi": AlibiConfig(),
    "--model.positions.kind alibi": AlibiConfig(),
    "--model.positions none": NoPositionsConfig(),
    # Its defaults, not what a key of the same name had in the other kind.
    "--model.positions sinusoidal": SinusoidalConfig(),
    "--model.positions sinusoidal --model.positions.base 3": SinusoidalConfig(base=3.0),
    # Keys before and after the kind, with hyphens or underscores.
    "--model.positions.num-buckets 8 --model.positions relative --model.positions.max_distance 9":
        RelativeConfig(num_buckets=8, max_distance=9),
    "--model.positions rotary": ROTARY,  # the kind that it has already
    # A union within a union.
    "--model.positions.scaling.factor 4":
        dataclasses.replace(ROTARY, scaling=LinearScalingConfig(factor=4.0)),
    "--model.positions.scaling none": dataclasses.replace(ROTARY, scaling=None),
    "--model.positions.scaling.original-max-len 8 --model.positions.scaling yarn"
    " --model.positions.scaling.no-truncate": dataclasses.replace(
        ROTARY, scaling=YarnScalingConfig(factor=2.0, original_max_len=8, truncate=False)
    ),
    "--optimizer.beta2 0.75": dataclasses.replace(LOADED.optimizer, beta2=0.75),
    # The learning rate is kept, which lion cannot do without; the rest is lion's own.
    "--optimizer.name lion": LionConfig(learning_rate=0.25),
    "--optimizer lion": LionConfig(learning_rate=0.25),
    "--optimizer.name sgd --optimizer.learning-rate 3": SgdConfig(learning_rate=3.0),
    "--optimizer.nesterov --optimizer.name sgd": SgdConfig(learning_rate=0.25, nesterov=True),
}  # fmt: skip


@pytest.mark.parametrize("words", KINDS)
def test_flags_choose_a_kind_and_set_its_keys(words):
    changed = override(words)
    if "optimizer" in words:
        assert changed == dataclasses.replace(LOADED, optimizer=KINDS[words])
    else:
        assert changed.model.positions == KINDS[words]
        assert dataclasses.replace(changed, model=LOADED.model) == LOADED


def test_integers_may_be_written_as_powers_of_ten():
    changed = override("--training.steps 1e3 --model.d-ff 2.5e2 --samples.top-k=2e1")
    values = changed.training.steps, changed.model.d_ff, changed.samples.top_k
    assert values == (1000, 250, 20) and all(type(value) is int for value in values)


def test_flags_make_a_table_that_the_config_does_not_have():
    words = "--model.experts.num-experts 5 --model.experts.num-experts-per-token 2"
    experts = override(words).model.experts
    assert experts == ExpertsConfig(num_experts=5, num_experts_per_token=2)
    with_experts = dataclasses.replace(LOADED, model=model(experts=experts))
    changed = override("--model.experts.d-ff 7", with_experts).model.experts
    assert changed == dataclasses.replace(experts, d_ff=7)
    with pytest.raises(ConfigError, match="missing key model.experts.num_experts_per_token"):
        override("--model.experts.num-experts 5")
    with pytest.raises(ConfigError, match="num_experts_per_token must be at most num_experts"):
        override("--model.experts.num-experts 1 --model.experts.num-experts-per-token 2")


MEANT = {
    "--lr": "--optimizer.learning-rate", "--optimizer.lr": "--optimizer.learning-rate",
    "--batch-size": "--training.batch-size",
    "--batch_tokens=9": "--training.batch-size",  # which LOADED sets
    "--steps": "--training.steps", "--epochs": "--training.steps",
    "--layers": "--model.num-layers or --model.num-encoder-layers",
    "--heads": "--model.num-heads or --model.num-kv-heads", "--dim": "--model.d-model",
    "--dropout": "--model.dropout-rate", "--training.seed": "--seed",
    "--positions": "--model.positions", "--model.num-head": "--model.num-heads",
    "--vocab-size": "--model.vocab-size or --tokenizer.vocab-size",
}  # fmt: skip


@pytest.mark.parametrize("flag", MEANT)
def test_unknown_flag_is_refused_with_the_one_that_is_meant(flag):
    with pytest.raises(ConfigError) as error:
        override(flag if "=" in flag else f"{flag} 3")
    assert str(error.value) == (
        f"there is no option {flag.partition('=')[0]}; did you mean {MEANT[flag]}? jaxformer train "
        "it.toml --help-all lists all options"
    )


def test_flag_that_the_config_sets_is_meant_first():
    with pytest.raises(ConfigError, match=r"mean --tokenizer.vocab-size or --model.vocab-size\?"):
        override("--vocab-size 3", load_config("quickstart"))


@pytest.mark.parametrize(
    ("name", "source", "left_out"),
    [
        ("quickstart", "files", ["data.source", "samples.prompts"]),
        ("nanogpt_cpu", "files", []),
        ("masked_python", "files", ["data.source", "samples.prompts"]),
        ("multi30k_cpu", "pairs", ["data.validation_paths"]),
        ("reverse", "pairs", ["data.source"]),
        ("phrasebook_topics", "labelled", ["data.source"]),
    ],
)
def test_other_data_is_of_the_kind_that_the_model_is_trained_on(name, source, left_out):
    """What the config says of its own data is left out, and said."""
    loaded, tables = load_config(name), read_tables(name)
    config, lines = merge(tables, ["--data.paths", "my.txt"])
    assert config.data.source == source and config.data.paths == ("my.txt",)
    assert config.data.validation_paths == ()
    assert not config.samples.prompts or loaded.data.source == source
    assert [line.partition(" = ")[0] for line in lines] == left_out
    assert all(line.endswith(", because data.paths is given") for line in lines)
    words = ["--data.paths", "my.txt", "--data.validation-paths", "v.txt"]
    config, lines = merge(tables, [*words, "--samples.prompts", "a [MASK]"])
    assert config.data.validation_paths == ("v.txt",) and config.samples.prompts == ("a [MASK]",)
    assert len(lines) == len({*left_out} - {"data.validation_paths", "samples.prompts"})


def test_keys_of_several_kinds_have_one_type_so_that_a_flag_is_read_before_the_kind_is_known():
    members = {}
    for dotted, key in dotted_keys(ExperimentConfig):
        if len(key.choices) != 1:  # it tells the kinds apart
            assert members.setdefault(dotted, key.members) == key.members, dotted


MIXTURE = tuple(
    MixtureSourceConfig(name=name, paths=(f"{name}/*.txt",), weight=weight)
    for name, weight in (("web", 3.0), ("code", 0.5))
)


def test_flags_leave_the_mixture_as_it_is_and_other_data_takes_its_place():
    loaded = dataclasses.replace(
        LOADED, data=dataclasses.replace(LOADED.data, source="files", paths=(), mixture=MIXTURE)
    )
    assert override("--training.steps 5", loaded).data == loaded.data
    tables = tomllib.loads(config_to_toml(loaded))
    config, (line,) = merge(tables, ["--data.paths", "my.txt"])
    assert (config.data.paths, config.data.mixture) == (("my.txt",), ())
    assert line == (
        'data.mixture = [], not [{ name = "web", paths = ["web/*.txt"], weight = 3.0, field = '
        '"text" }, { name = "code", paths = ["code/*.txt"], weight = 0.5, field = "text" }], '
        "because data.paths is given"
    )


def test_flags_leave_layers_and_rules_of_the_mesh_as_they_are():
    mesh = MeshConfig(rules=(MeshRule(path="*/embedding", axes=("", "fsdp")),))
    layers = (LayerConfig(local_window_size=3), LayerConfig(positions="alibi"))
    config = dataclasses.replace(
        LOADED, mesh=mesh, model=dataclasses.replace(LOADED.model, layers=layers)
    )
    assert override("", config) == config
    changed = override("--mesh.fsdp 3 --model.num-layers 5", config)
    assert changed.model.layers == layers and changed.mesh == dataclasses.replace(mesh, fsdp=3)
    with pytest.raises(ConfigError, match="pattern in layers must be at most as many"):
        override("--model.num-layers 1", config)


@pytest.mark.parametrize(("flag", "value"), [("True", True), ("False", False), ("never", "never")])
def test_flag_of_early_stopping_takes_a_bool_or_never(flag, value):
    config = load_config("configs/phrasebook_en_kn.toml")
    changed = override(f"--translation.early-stopping {flag}", config)
    assert changed.translation == TranslationConfig(early_stopping=value)


ARRAYS = {
    "--model.layers 3": "model.layers",
    "--model.layers.0.local-window-size 3": "model.layers",
    "--model.first-layers=3": "model.first_layers",
    "--mesh.rules.0.path x": "mesh.rules",
    "--data.mixture.0.weight 3": "data.mixture",
}
WRONG = {
    "--model.positions alibbi": "--model.positions must be one of none, .* mean 'alibi'",
    "--optimizer.name adam": "--optimizer.name must be one of adamw, sgd.*'adamw'",
    "--model.positions": "--model.positions must have one value .*, got none",
    "--training.steps": r"--training.steps must have one value \(an integer\), got none",
    "--model.qk-norm 1": "flags: model.qk_norm must be true or false, got '1'",
    "--model.positions.scaling ntk":
        "--model.positions.scaling must be one of linear, llama3, yarn, longrope, or none,",
    "--model.positions.scaling llama3":
        r"3 mistakes: \(1\) missing key model.positions.scaling.low_freq_factor \(a number\)",
    "--model.positions alibi --model.positions.kind rotary":
        "model.positions must be chosen once, got --model.positions and --model.positions.k",
    "--model.positions alibi --model.positions.base 3":
        "model.positions.base is for model.positions of kind 'sinusoidal' or 'rotary', got",
    "--optimizer.no-nesterov":
        "nesterov is for optimizer of name 'sgd' or 'muon', got name='adamw' and nesterov=False",
    "--model.positions.scaling none --model.positions.scaling.factor=3":
        "--model.positions.scaling.factor is for model.positions.scaling of a kind.*'none'",
    "--model.positions alibi base":
        r"positions must have one value \(a table, or one of none.*got 'alibi' and 'base'",
    "--model.positions.bse 3": "--model.positions.base",
    "--model.positions.base x": "flags: model.positions.base must be a number, got 'x'",
    "--training.steps 1.5": "training.steps must be an integer, got 1.5",
    "--training.steps 1e400": "training.steps must be an integer, got inf",
    "--samples.top-k all": "samples.top_k must be an integer, got 'all'",
    "--model.positions.base=-1": "model.positions.base must be positive, got -1.0",
    "--training.steps=0 --model.d-ff=x": r"2 mistakes: \(1\) model.d_ff .* \(2\) training.steps",
} | {
    words: rf"{key} is an array of tables.*write \[\[{key}\]\] in the config"
    for words, key in ARRAYS.items()
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_wrong_flags_are_refused_in_one_line(words):
    with pytest.raises(ConfigError, match=WRONG[words]) as error:
        override(words)
    assert "\n" not in str(error.value)


def test_help_shows_the_keys_of_the_loaded_kinds_and_names_the_others(capsys, tmp_path):
    layers = (LayerConfig(local_window_size=3),)
    config = dataclasses.replace(LOADED, model=dataclasses.replace(LOADED.model, layers=layers))
    (tmp_path / "it.toml").write_text(config_to_toml(config))
    main(["train", str(tmp_path / "it.toml"), "--help-all"])
    words = " ".join(capsys.readouterr().out.split())
    for option, union in (
        ("--model.positions.kind", PositionsConfig), ("--optimizer.name", OptimizerConfig)
    ):  # fmt: skip
        key = option.split(".")[-1]
        names = [getattr(kind, key) for kind in typing.get_args(union)]
        assert len(names) >= 3 and f"{option} {{{','.join(names)}}}" in words
    assert "--model.positions.scaling.kind {linear,llama3,yarn,longrope,none}" in words
    for shown in ("--model.positions.base FLOAT", "(default: 77.0)", "scaling.factor FLOAT"):
        assert shown in words
    words_of_no_flag = ("positions.num-buckets", "optimizer.nesterov")
    arrays = ("model.layers", "model.first-layers", "mesh.rules", "data.mixture")
    for hidden in (*words_of_no_flag, *arrays, "rotary-config"):
        assert hidden not in words


def test_help_of_flags_that_choose_a_kind_has_the_keys_of_this_kind(capsys):
    main(["train", "quickstart", "--optimizer", "sgd", "--help-all"])
    shown = capsys.readouterr().out
    assert "--optimizer.nesterov, --optimizer.no-nesterov" in shown and "beta2" not in shown


def test_none_unsets_what_a_run_starts_from(tmp_path):
    (tmp_path / "it.toml").write_text(config_to_toml(small(out="there", init_from="absent")))
    flags = split_flags(["--init-from", "None"])[1]
    tables = config_tables(str(tmp_path / "it.toml"), flags)
    assert merged_config("it.toml", tables, flags, command="train")[0].init_from is None
