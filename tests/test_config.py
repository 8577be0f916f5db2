import dataclasses
import math
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.config import (
    DataConfig,
    ExperimentConfig,
    ModelConfig,
    OptimizerConfig,
    RotaryScalingConfig,
    SamplesConfig,
    SamplingConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainingConfig,
    config_differences,
    config_from_dict,
    config_to_toml,
    load_config,
)
from jaxformer.errors import ConfigError

# Every key that has no default, and nothing else.
SMALLEST = """
[model]
max_len = 13
num_layers = 2
d_model = 12
num_heads = 3

[tokenizer]
kind = "byte"

[optimizer]
learning_rate = 1e-3

[training]
steps = 7
batch_size = 5
"""


@pytest.fixture
def load(tmp_path):
    """Writes a config file and loads it."""

    def write_and_load(text, name="small.toml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(path)

    return write_and_load


def model(**changes):
    return ModelConfig(**{"max_len": 13, "num_layers": 2, "d_model": 12, "num_heads": 3} | changes)


def small(**changes):
    return ExperimentConfig(
        **{
            "model": model(),
            "tokenizer": TokenizerConfig(kind="byte"),
            "optimizer": OptimizerConfig(learning_rate=1e-3),
            "training": TrainingConfig(steps=7, batch_size=5),
        }
        | changes
    )


def with_line(section, line):
    return SMALLEST.replace(f"[{section}]\n", f"[{section}]\n{line}\n")


def test_load_config_fills_in_defaults_and_the_run_folder(load):
    assert load(SMALLEST) == small(out="runs/small")
    assert str(load(SMALLEST, "a.b.toml").out) == "runs/a.b"
    assert load('out = "elsewhere"\n' + SMALLEST).out == "elsewhere"


def test_load_config_takes_a_path_as_text(load, tmp_path):
    config = load(SMALLEST)
    assert load_config(str(tmp_path / "small.toml")) == config


def test_load_config_reads_integers_as_numbers_and_lists_as_tuples(load):
    text = with_line("optimizer", "beta1 = 0").replace("1e-3", "1")
    config = load(text + '[data]\npaths = ["a", "b"]\n')
    assert config.optimizer.learning_rate == 1.0
    assert isinstance(config.optimizer.learning_rate, float)
    assert isinstance(config.optimizer.beta1, float)
    assert config.data.paths == ("a", "b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # Unknown keys, with the nearest valid one.
        (with_line("model", "d_modle = 12"), ["unknown key model.d_modle", "mean 'd_model'?"]),
        (with_line("training", "step = 7"), ["unknown key training.step", "mean 'steps'?"]),
        ("modle = 3\n" + SMALLEST, ["unknown key modle", "mean 'model'?"]),
        (SMALLEST + "[sample]\n", ["unknown key sample", "mean 'samples'?"]),
        (with_line("model", "xyzzy = 1"), ["unknown key model.xyzzy"]),
        # Missing keys, with the type expected.
        (SMALLEST.replace("d_model = 12\n", ""), ["missing key model.d_model (an integer)"]),
        (SMALLEST.replace("learning_rate = 1e-3\n", ""), ["optimizer.learning_rate (a number)"]),
        (SMALLEST.replace("[tokenizer]", "[data]").replace("kind", "#"), ["tokenizer (a table)"]),
        ("", ["missing key model (a table)"]),
        # Wrong types.
        (SMALLEST.replace("= 12", "= true"), ["model.d_model must be an integer, got True"]),
        (SMALLEST.replace("= 12", "= 12.0"), ["model.d_model must be an integer, got 12.0"]),
        (SMALLEST.replace("= 12", '= "12"'), ["model.d_model must be an integer, got '12'"]),
        (SMALLEST.replace("= 12", "= [12]"), ["model.d_model must be an integer, got [12]"]),
        (SMALLEST.replace("= 1e-3", "= true"), ["learning_rate must be a number, got True"]),
        (SMALLEST.replace("= 1e-3", '= "1e-3"'), ["learning_rate must be a number, got '1e-3'"]),
        (with_line("model", "use_bias = 1"), ["model.use_bias must be true or false, got 1"]),
        (with_line("model", "num_kv_heads = true"), ["num_kv_heads must be an integer, got True"]),
        (with_line("model", "norm = 1"), ["model.norm must be a string, got 1"]),
        (SMALLEST + "[samples]\ntop_k = 1.5\n", ["samples.top_k must be an integer, got 1.5"]),
        ("out = 3\n" + SMALLEST, ["out must be a string, got 3"]),
        ("out = 1979-05-27\n" + SMALLEST, ["out must be a string, got datetime.date"]),
        ("seed = false\n" + SMALLEST, ["seed must be an integer, got False"]),
        # A list, a scalar and a table in place of each other.
        (SMALLEST + '[data]\npaths = "a"\n', ["data.paths must be a list, got 'a'", "write ['a']"]),
        (SMALLEST + '[data]\npaths = ["a", 3]\n', ["data.paths[1] must be a string, got 3"]),
        ("data = 3\n" + SMALLEST, ["data must be a table, got 3"]),
        (SMALLEST.replace("[model]", "[[model]]"), ["model must be a table, got ["]),
        (SMALLEST + "[training.steps]\n", ["not a TOML file"]),
        (with_line("model", "norm = {}"), ["model.norm must be a string, got {}"]),
        # A table within a table.
        (with_line("model", "rotary_scaling = 2.0"), ["model.rotary_scaling must be a table"]),
        (
            SMALLEST + '[model.rotary_scaling]\nkind = "linear"\nfactr = 2.0\n',
            ["unknown key model.rotary_scaling.factr", "mean 'factor'?"],
        ),
        (
            SMALLEST + '[model.rotary_scaling]\nkind = "linear"\nfactor = "2"\n',
            ["model.rotary_scaling.factor must be a number, got '2'"],
        ),
        (
            SMALLEST + '[model.rotary_scaling]\nkind = "yarm"\n',
            ["[model.rotary_scaling] kind must be one of none, linear", "mean 'yarn'?"],
        ),
        (
            SMALLEST + '[model.rotary_scaling]\nkind = "linear"\n',
            ["[model.rotary_scaling] rotary scaling of kind 'linear' needs factor"],
        ),
        (with_line("model", "local_window = 3"), ["model.local_window", "'local_window_size'?"]),
        # Bad choices, with the nearest valid one.
        (
            with_line("model", 'norm = "layernorm"'),
            [
                "[model] norm must be one of layer_norm, rms_norm",
                "got 'layernorm'",
                "'layer_norm'?",
            ],
        ),
        (SMALLEST.replace('"byte"', '"bytes"'), ["[tokenizer] kind must be one of", "'byte'?"]),
        # Impossible values.
        (SMALLEST.replace("= 12", "= 0"), ["[model] d_model must be positive", "d_model=0"]),
        ("seed = -1\n" + SMALLEST, ["seed must be in 0 .. 2**31 - 1, got seed=-1"]),
        ("seed = 2147483648\n" + SMALLEST, ["seed must be in", "got seed=2147483648"]),
        # Files that are not TOML.
        ("[model\n" + SMALLEST, ["not a TOML file", "line 1"]),
        (SMALLEST + "steps = 8\n", ["not a TOML file"]),
        (SMALLEST.encode() + b"# caf\xe9\n", ["not a TOML file", "0xe9"]),
    ],
)
def test_load_config_refuses_with_the_file_key_and_value(load, tmp_path, text, words):
    with pytest.raises(ConfigError) as error:
        load(text)
    message = str(error.value)
    assert message.startswith(f"{tmp_path / 'small.toml'}: ")
    for word in words:
        assert word in message


def test_load_config_of_a_far_off_key_suggests_nothing(load):
    with pytest.raises(ConfigError) as error:
        load(with_line("model", "xyzzy = 1"))
    assert "did you mean" not in str(error.value)


def test_load_config_of_a_missing_file_names_those_beside_it(load, tmp_path):
    load(SMALLEST, "one.toml")
    load(SMALLEST, "two.toml")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ConfigError) as error:
        load_config(tmp_path / "three.toml")
    message = str(error.value)
    assert message.startswith(f"{tmp_path / 'three.toml'}: there is no such config file")
    assert message.endswith("has one.toml, two.toml")
    with pytest.raises(ConfigError, match="there is no such config file$"):
        load_config(tmp_path / "nowhere" / "three.toml")


def test_load_config_of_a_folder_says_that_it_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


# A number that is not one is never above a bound.
NAN = math.nan
CUDNN = {"attention_implementation": "cudnn", "dtype": "bfloat16"}
LINEAR = RotaryScalingConfig(kind="linear", factor=2.0)
YARN = RotaryScalingConfig(
    kind="yarn", factor=4.0, original_max_len=8, beta_fast=16.0, beta_slow=2.0,
    attention_factor=1.5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: model(architecture="mixer"), ["architecture must be one of decoder", "'mixer'"]),
        (lambda: model(norm=3), ["norm must be one of layer_norm, rms_norm, got 3"]),
        (lambda: model(vocab_size=0), ["vocab_size must be positive, got vocab_size=0"]),
        (lambda: model(max_len=0), ["max_len must be positive"]),
        (lambda: model(num_layers=-1), ["num_layers must be positive, got num_layers=-1"]),
        (lambda: model(num_heads=0), ["num_heads must be positive"]),
        (lambda: model(num_kv_heads=0), ["num_kv_heads must be positive"]),
        (lambda: model(head_dim=0), ["head_dim must be positive"]),
        (lambda: model(value_head_dim=0), ["value_head_dim must be positive"]),
        (lambda: model(d_ff=0), ["d_ff must be positive"]),
        (lambda: model(rotary_base=0.0), ["rotary_base must be positive"]),
        (lambda: model(norm_eps=NAN), ["norm_eps must be positive, got norm_eps=nan"]),
        (lambda: model(init_std=0.0), ["init_std must be positive"]),
        (lambda: model(dropout_rate=1.0), ["dropout_rate must be in [0, 1)", "dropout_rate=1.0"]),
        (lambda: model(dropout_rate=-0.1), ["dropout_rate must be in [0, 1)"]),
        (
            lambda: model(d_model=10),
            ["multiple of num_heads", "d_model=10 and num_heads=3", "head_dim"],
        ),
        (
            lambda: model(num_kv_heads=2),
            ["multiple of num_kv_heads", "num_heads=3", "num_kv_heads=2"],
        ),
        (lambda: model(d_model=9), ["rotary positions need an even head_dim", "head_dim=3"]),
        (lambda: model(head_dim=5), ["even head_dim", "head_dim=5"]),
        (lambda: model(local_window_size=0), ["local_window_size must be positive"]),
        (lambda: model(attention_softcap=0.0), ["attention_softcap must be positive"]),
        (lambda: model(logit_softcap=math.inf), ["logit_softcap must be positive"]),
        (lambda: model(attention_implementation="flash"), ["must be one of auto, dense, chunked"]),
        (
            lambda: model(attention_implementation="cudnn"),
            ["'cudnn' computes in bfloat16", "dtype='float32'", "such as to 'auto'"],
        ),
        (
            lambda: model(**CUDNN, attention_softcap=5.0),
            ["'cudnn' has no soft cap", "attention_softcap=5.0"],
        ),
        (lambda: model(**CUDNN, positions="alibi"), ["'cudnn' takes no bias", "='alibi'"]),
        (lambda: model(**CUDNN, positions="relative"), ["takes no bias", "='relative'"]),
        (lambda: model(**CUDNN, dropout_rate=0.1), ["has no dropout", "dropout_rate=0.1"]),
        (
            lambda: model(positions="alibi", rotary_scaling=LINEAR),
            ["for rotary positions", "positions='alibi'", "kind='linear'", "remove rotary_scaling"],
        ),
        (
            lambda: model(relative_buckets=8),
            ["relative_buckets is for relative positions", "positions='rotary'", "=8; remove it"],
        ),
        (
            lambda: model(positions="alibi", relative_max_distance=64),
            ["relative_max_distance is for relative positions", "positions='alibi'"],
        ),
        (lambda: model(positions="relative", relative_buckets=1), ["at least 2", "_buckets=1"]),
        (
            lambda: model(positions="relative", relative_buckets=-1),
            ["relative_buckets must be pos"],
        ),
        (
            lambda: model(positions="relative", relative_buckets=8, relative_max_distance=4),
            ["more than relative_buckets // 2", "relative_max_distance=4", "relative_buckets=8"],
        ),
        (lambda: RotaryScalingConfig(kind="ntk"), ["kind must be one of none, linear, llama3"]),
        (lambda: RotaryScalingConfig(kind="linear"), ["kind 'linear' needs factor"]),
        (lambda: RotaryScalingConfig(kind="yarn", factor=2.0), ["'yarn' needs original_max_len"]),
        (
            lambda: RotaryScalingConfig(kind="llama3", factor=2.0, original_max_len=8),
            ["'llama3' needs low_freq_factor"],
        ),
        (
            lambda: RotaryScalingConfig(factor=2.0),
            ["factor is for rotary scaling of kind 'linear' or 'llama3' or 'yarn'", "kind='none'"],
        ),
        (
            lambda: dataclasses.replace(LINEAR, beta_fast=8.0),
            ["beta_fast is for rotary scaling of kind 'yarn'", "kind='linear'", "remove it"],
        ),
        (lambda: dataclasses.replace(LINEAR, factor=0.5), ["factor must be at least 1", "=0.5"]),
        (lambda: dataclasses.replace(LINEAR, factor=math.nan), ["factor must be positive"]),
        (
            lambda: RotaryScalingConfig(
                kind="llama3",
                factor=8.0,
                original_max_len=8,
                low_freq_factor=4.0,
                high_freq_factor=4.0,
            ),
            ["low_freq_factor must be less than high_freq_factor", "low_freq_factor=4.0"],
        ),
        (
            lambda: RotaryScalingConfig(
                kind="yarn", factor=2.0, original_max_len=8, beta_slow=32.0
            ),
            ["beta_slow must be less than beta_fast", "beta_slow=32.0 and beta_fast=32.0"],
        ),
        (lambda: TokenizerConfig(), ["'bpe' needs tokenizer.vocab_size"]),
        (lambda: TokenizerConfig(vocab_size=256), ["at least 257", "vocab_size=256"]),
        (lambda: TokenizerConfig(kind="word", vocab_size=0), ["vocab_size must be positive"]),
        (lambda: TokenizerConfig(kind="byte", vocab_size=300), ["kind='byte'", "remove it"]),
        (lambda: TokenizerConfig(kind="character", vocab_size=9), ["kind='character'"]),
        (lambda: DataConfig(source="python", paths=("a",)), ["source='python'", "paths=('a',)"]),
        (lambda: DataConfig(source="web"), ["source must be one of python, files"]),
        (lambda: DataConfig(validation_fraction=0.0), ["between 0 and 1", "=0.0"]),
        (lambda: DataConfig(validation_fraction=1.0), ["between 0 and 1", "=1.0"]),
        (lambda: OptimizerConfig(learning_rate=0.0), ["learning_rate must be positive"]),
        (lambda: OptimizerConfig(learning_rate=NAN), ["learning_rate must be positive"]),
        (lambda: OptimizerConfig(learning_rate=1.0, eps=0.0), ["eps must be positive"]),
        (
            lambda: OptimizerConfig(learning_rate=1.0, clip_norm=-0.5),
            ["clip_norm must be zero or more"],
        ),
        (
            lambda: OptimizerConfig(learning_rate=1.0, weight_decay=-1.0),
            ["weight_decay must be zero"],
        ),
        (lambda: OptimizerConfig(learning_rate=1.0, beta1=1.0), ["beta1 must be in [0, 1)"]),
        (lambda: OptimizerConfig(learning_rate=1.0, beta2=-0.1), ["beta2 must be in [0, 1)"]),
        (lambda: ScheduleConfig(warmup_steps=-1), ["warmup_steps must be zero or more"]),
        (lambda: ScheduleConfig(final_scale=1.1), ["final_scale must be in [0, 1]"]),
        (lambda: ScheduleConfig(decay_steps=5), ["constant schedule has no decay_steps, got 5"]),
        (lambda: ScheduleConfig(name="cosine"), ["'cosine' needs schedule.decay_steps"]),
        (
            lambda: ScheduleConfig(name="linear", warmup_steps=5, decay_steps=5),
            ["decay_steps must be larger than warmup_steps", "decay_steps=5 and warmup_steps=5"],
        ),
        (lambda: TrainingConfig(steps=0, batch_size=1), ["steps must be positive"]),
        (lambda: TrainingConfig(steps=1, batch_size=0), ["batch_size must be positive"]),
        (lambda: TrainingConfig(steps=1, batch_size=1, devices=0), ["devices must be positive"]),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, cpu_devices=0),
            ["cpu_devices must be positive"],
        ),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, log_every=0),
            ["log_every must be positive"],
        ),
        (lambda: TrainingConfig(steps=1, batch_size=1, eval_every=0), ["eval_every must be"]),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, checkpoint_every=0),
            ["checkpoint_every must"],
        ),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, keep_checkpoints=0),
            ["keep_checkpoints must"],
        ),
        (
            lambda: TrainingConfig(steps=1, batch_size=5, accumulate_steps=2),
            ["batch_size must be a multiple of accumulate_steps", "batch_size=5"],
        ),
        (lambda: SamplingConfig(temperature=-0.1), ["temperature must be zero or more"]),
        (lambda: SamplingConfig(repetition_penalty=0.0), ["repetition_penalty must be positive"]),
        (lambda: SamplingConfig(top_k=0), ["top_k must be positive"]),
        (lambda: SamplingConfig(top_p=0.0), ["top_p must be in (0, 1]"]),
        (lambda: SamplingConfig(top_p=1.1), ["top_p must be in (0, 1]"]),
        (lambda: SamplingConfig(min_p=-0.1), ["min_p must be in [0, 1]"]),
        (lambda: SamplesConfig(top_k=0), ["top_k must be positive"]),
        (lambda: SamplesConfig(max_new_tokens=0), ["max_new_tokens must be positive"]),
    ],
)
def test_configs_refuse_impossible_values_by_name(make, words):
    with pytest.raises(ConfigError) as error:
        make()
    for word in words:
        assert word in str(error.value)


def test_configs_accept_values_at_their_bounds():
    model(dropout_rate=0.0, d_model=10, head_dim=2)
    model(d_model=9, positions="learned")
    model(positions="relative", relative_buckets=2, relative_max_distance=2, local_window_size=1)
    model(**CUDNN, local_window_size=3)
    RotaryScalingConfig(kind="linear", factor=1.0)
    TokenizerConfig(vocab_size=257)
    TokenizerConfig(kind="word")
    OptimizerConfig(learning_rate=1.0, beta1=0.0, weight_decay=0.0, clip_norm=0.0)
    ScheduleConfig(name="cosine", warmup_steps=4, decay_steps=5, final_scale=0.0)
    ScheduleConfig(final_scale=1.0)
    SamplingConfig(temperature=0.0, top_k=1, top_p=1.0, min_p=0.0)
    SamplingConfig(min_p=1.0)


def test_model_config_fills_in_widths():
    config = model()
    assert (config.kv_heads, config.key_dim, config.value_dim, config.ff_dim) == (3, 4, 4, 48)
    assert model(num_kv_heads=1).key_dim == 4
    config = model(num_kv_heads=1, head_dim=6, d_ff=5)
    assert (config.kv_heads, config.key_dim, config.value_dim, config.ff_dim) == (1, 6, 6, 5)
    assert model(head_dim=6, value_head_dim=7).value_dim == 7


def test_configs_are_hashable_frozen_and_keyword_only():
    config = small()
    assert hash(config.model) == hash(model())
    assert {config: 1}[small()] == 1
    assert config.model != model(d_ff=5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.model.d_ff = 5
    with pytest.raises(TypeError):
        SamplingConfig(1.0)


def test_model_config_read_from_a_dict_is_hashable(load):
    config = load(SMALLEST + '[data]\npaths = ["a"]\n')
    assert isinstance(hash(config), int)


# TOML has no surrogates; everything else can be quoted.
TEXT = st.text(max_size=9) | st.text(
    alphabet="\"'\\\x00\x08\t\n\f\r\x1b\x7f\x85\u2028#= é\U0001f600"
)
NUMBERS = st.floats(min_value=0, exclude_min=True, allow_infinity=False)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("configs") / "scratch.toml"


@settings(max_examples=100, deadline=None)
@given(
    out=TEXT.filter(bool),
    prompts=st.lists(TEXT, max_size=3),
    paths=st.lists(TEXT, max_size=3),
    rate=NUMBERS,
    seed=st.integers(0, 2**31 - 1),
    top_k=st.none() | st.integers(1),
    flag=st.booleans(),
)
def test_config_written_as_toml_is_read_back_equal(
    scratch, out, prompts, paths, rate, seed, top_k, flag
):
    config = small(
        out=out,
        seed=seed,
        model=model(use_bias=flag, rotary_base=rate),
        data=DataConfig(paths=tuple(paths)),
        optimizer=OptimizerConfig(learning_rate=rate),
        samples=SamplesConfig(prompts=tuple(prompts), top_k=top_k),
    )
    scratch.write_bytes(config_to_toml(config).encode())
    assert load_config(scratch) == config


def test_config_with_every_key_set_is_read_back_equal(load):
    config = small(
        out="there",
        seed=3,
        model=model(
            vocab_size=301, num_kv_heads=1, head_dim=6, value_head_dim=7, d_ff=5,
            positions="rotary", rotary_base=1e6, rotary_layout="interleaved", rotary_scaling=YARN,
            local_window_size=3, attention_softcap=50.0, logit_softcap=30.0, qk_norm=True,
            attention_implementation="chunked", norm="rms_norm", norm_position="sandwich",
             norm_eps=1e-6, activation="swiglu", use_bias=False,
            tied_embeddings=False, scale_embeddings=True, init_std=0.1, dropout_rate=0.5,
            dtype="bfloat16", param_dtype="bfloat16", remat="full", scan_layers=False,
        ),
        data=DataConfig(
            paths=("a", "b"), validation_fraction=0.5, validation_paths=("c",),
            packing="documents",
        ),
        tokenizer=TokenizerConfig(kind="word", vocab_size=300),
        optimizer=OptimizerConfig(
            learning_rate=1e-20, beta1=0.0, beta2=0.5, eps=1e22, weight_decay=0.0, clip_norm=2.0
        ),
        schedule=ScheduleConfig(name="linear", warmup_steps=1, decay_steps=5, final_scale=0.0),
        training=TrainingConfig(
            steps=7, batch_size=6, accumulate_steps=3, runner="pmap", devices=1, cpu_devices=2,
            log_every=1, eval_every=2, checkpoint_every=3, keep_checkpoints=4,
        ),
        samples=SamplesConfig(
            repetition_penalty=2.0, temperature=0.0, top_k=1, top_p=0.5, min_p=0.25,
            prompts=(), max_new_tokens=3,
        ),
    )  # fmt: skip
    unset = [f.name for f in dataclasses.fields(config) if getattr(config, f.name) is None]
    assert not unset
    assert load(config_to_toml(config)) == config


def test_relative_positions_and_llama3_scaling_are_read_back_equal(load):
    llama3 = RotaryScalingConfig(
        kind="llama3", factor=8.0, original_max_len=8, low_freq_factor=1.0, high_freq_factor=4.0
    )
    for options in (
        dict(rotary_scaling=llama3),
        dict(positions="relative", relative_buckets=8, relative_max_distance=20),
        dict(positions="alibi"),
    ):
        config = small(out="there", model=model(**options))
        assert load(config_to_toml(config)) == config


def test_config_written_before_there_were_these_options_still_loads(load):
    """The [model] table of a run folder as an earlier version wrote it."""
    old = """
architecture = "decoder"
vocab_size = 65
max_len = 64
num_layers = 4
d_model = 128
num_heads = 4
positions = "learned"
rotary_base = 10000.0
rotary_layout = "half"
norm = "layer_norm"
norm_position = "pre"
norm_eps = 1e-05
activation = "gelu"
use_bias = false
tied_embeddings = true
scale_embeddings = false
init_std = 0.02
dropout_rate = 0.0
dtype = "float32"
param_dtype = "float32"
remat = "none"
scan_layers = true
"""
    start, end = SMALLEST.index("max_len"), SMALLEST.index("[tokenizer]")
    config = load(SMALLEST[:start] + old + SMALLEST[end:]).model
    assert config == ModelConfig(
        vocab_size=65, max_len=64, num_layers=4, d_model=128, num_heads=4, positions="learned",
        use_bias=False,
    )  # fmt: skip


def test_config_to_toml_leaves_unset_keys_out_and_writes_defaults():
    values = tomllib.loads(config_to_toml(small()))
    assert "out" not in values
    assert "num_kv_heads" not in values["model"]
    assert values["model"]["norm_eps"] == 1e-5
    assert values["samples"]["prompts"] == []
    assert set(values) == {f.name for f in dataclasses.fields(ExperimentConfig)} - {"out"}


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("name", ["learning_rate", "weight_decay", "clip_norm"])
def test_config_refuses_numbers_that_are_not_finite(name, value):
    with pytest.raises(ConfigError, match=f"^{name} must be"):
        OptimizerConfig(**{"learning_rate": 1e-3, name: value})


def test_config_from_dict_names_keys_with_their_prefix():
    with pytest.raises(ConfigError, match=r"missing key model\.max_len"):
        config_from_dict(ModelConfig, {}, prefix="model.")
    with pytest.raises(ConfigError, match=r"^\[model\] d_ff must be positive"):
        values = {"max_len": 1, "num_layers": 1, "d_model": 2, "num_heads": 1, "d_ff": 0}
        config_from_dict(ModelConfig, values, prefix="model.")
    with pytest.raises(ConfigError, match="^d_ff must be positive"):
        config_from_dict(ModelConfig, values)


def test_config_differences_reach_into_nested_tables():
    new = model(rotary_scaling=LINEAR)
    assert config_differences(model(), new, "model.") == {
        "model.rotary_scaling.kind": ("none", "linear"),
        "model.rotary_scaling.factor": (None, 2.0),
    }


def test_config_differences_lists_dotted_keys():
    old = small()
    assert config_differences(old, small()) == {}
    new = small(
        out="there",
        model=model(d_ff=5),
        training=TrainingConfig(steps=9, batch_size=5),
    )
    assert config_differences(old, new) == {
        "out": (None, "there"),
        "model.d_ff": (None, 5),
        "training.steps": (7, 9),
    }
    assert config_differences(new, old)["training.steps"] == (9, 7)
    assert config_differences(old, new, "run.")["run.model.d_ff"] == (None, 5)
    assert config_differences(model(), model(d_ff=5), "model.") == {"model.d_ff": (None, 5)}
