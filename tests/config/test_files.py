"""Config files: what is read from them, and what is refused with file, key and value."""

import pytest

from jaxformer.config import (
    AdamWConfig,
    MixtureSourceConfig,
    ModelConfig,
    ScheduleConfig,
    config_to_toml,
    load_config,
)
from jaxformer.errors import ConfigError
from tests.small_config import small

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


def with_line(section, line):
    return SMALLEST.replace(f"[{section}]\n", f"[{section}]\n{line}\n")


def test_load_config_fills_in_defaults_and_the_run_folder(load):
    assert load(SMALLEST) == small(out="runs/small")
    assert str(load(SMALLEST, "a.b.toml").out) == "runs/a.b"
    assert load('out = "elsewhere"\n' + SMALLEST).out == "elsewhere"


def test_five_keys_are_a_config(load):
    data = '[data]\nsource = "files"\npaths = ["my_text.txt"]\n'
    config = load(data + "[model]\nmax_len = 64\n[training]\nsteps = 300\nbatch_size = 16\n")
    assert config.model == ModelConfig(max_len=64, num_layers=4, d_model=128, num_heads=4)
    assert config.optimizer == AdamWConfig(learning_rate=1e-3)
    assert config.schedule == ScheduleConfig(name="cosine")
    assert config.tokenizer.kind == "bpe" and config.tokenizer.most_tokens == 2048


def test_load_config_reads_integers_as_numbers_and_lists_as_tuples(load):
    text = (
        with_line("optimizer", "beta1 = 0").replace("1e-3", "1").replace("steps = 7", "steps = 7e3")
    )
    config = load(text + '[data]\npaths = ["a", "b"]\n')
    assert config.training.steps == 7000 and isinstance(config.training.steps, int)
    assert config.optimizer.learning_rate == 1.0
    assert isinstance(config.optimizer.learning_rate, float)
    assert isinstance(config.optimizer.beta1, float)
    assert config.data.paths == ("a", "b")


@pytest.mark.parametrize(
    "row",
    [
        # Unknown keys, with the nearest valid one.
        (with_line("model", "d_modle = 12"), "unknown key model.d_modle", "mean 'd_model'?"),
        ("modle = 3\n" + SMALLEST, "unknown key modle", "mean 'model'?"),
        (with_line("model", "xyzzy = 1"), "key model.xyzzy; the keys here are architecture, vocab"),
        # What other programs call them, in this table or another.
        ("lr = 1e-3\n" + SMALLEST, "key lr; did you mean 'optimizer.learning_rate'?"),
        (with_line("optimizer", "lr = 1e-3"), "optimizer.lr; did you mean 'learning_rate'?"),
        (SMALLEST + "[data]\nbatch_size = 3", "data.batch_size; did you mean 'training.batch_s"),
        (with_line("model", "n_layer = 3"), "key model.n_layer; did you mean 'num_layers'?"),
        (with_line("training", "vocab_size = 3"), "'model.vocab_size' or 'tokenizer.vocab_size'?"),
        # Missing keys, with the type expected.
        (SMALLEST.replace("learning_rate = 1e-3\n", 'name = "lion"'),
         "optimizer.learning_rate (a number)"),
        # All mistakes at once, those of missing tables too.
        ("", "toml: 3 mistakes: (1) missing key model.max_len (an integer) (2) missing key "
         "training.steps (an integer) (3) missing key training.batch_size or "
         "training.batch_tokens (an integer)"),
        ('lr = 3\nseed = -1\n[data]\npaths = [1, "a", 2]\n[model]\nnorm = "RMS_norm"\n'
         "num_layers = 0\ndropout_rate = 2\nnum_heads = true\n[training]\nsteps = -1\n",
         "toml: 11 mistakes: (1) unknown key lr; did you mean 'optimizer.learning_rate'?",
         " (2) seed must be zero or more, got seed=-1",
         " (3) missing key model.max_len (an integer)",
         " (4) model.num_layers must be positive, got 0",
         " (5) model.num_heads must be an integer, got True",
         " (6) model.norm must be one of layer_norm, rms_norm, got 'RMS_norm'; did you "
         "mean 'rms_norm'?", " (7) model.dropout_rate must be in [0, 1), got 2.0",
         " (8) data.paths[0] must be a string, got 1 (9) data.paths[2] must be a string, ",
         " (10) training.steps must be positive, got -1",
         " (11) missing key training.batch_size or "),
        # Checks of several keys have consequences of other mistakes, which are left out.
        (with_line("model", 'num_kv_heads = 7\nactivation = "SwiGLU"'),
         "toml: model.activation must be", "'SwiGLU'; did you mean 'swiglu'?"),
        # Wrong types.
        (SMALLEST.replace("= 12", "= true"), "model.d_model must be an integer, got True"),
        (SMALLEST.replace("= 1e-3", '= "1e-3"'), "learning_rate must be a number, got '1e-3'"),
        (with_line("model", "use_bias = 1"), "model.use_bias must be true or false, got 1"),
        ("out = 1979-05-27\n" + SMALLEST, "out must be a string, got out=datetime.date"),
        # A list, a scalar and a table in place of each other.
        (SMALLEST + '[data]\npaths = "a"\n', "data.paths must be a list, got 'a'", "write ['a']"),
        (SMALLEST + '[data]\npaths = ["a", 3]\n', "data.paths[1] must be a string, got 3"),
        ("data = 3\n" + SMALLEST, "data must be a table, got 3"),
        (with_line("model", "layers = 3"),
         "model.layers must be a list of tables, got 3; write [[model.layers]]"),
        (with_line("model", "layers = [3]"), "model.layers[0] must be a table, got 3"),
        (SMALLEST.replace("[model]", "[[model]]"), "model must be a table, got ["),
        (SMALLEST + "[training.steps]\n", "not a TOML file"),
        # Bad choices, with the nearest valid one.
        (with_line("model", 'norm = "layernorm"'),
         "model.norm must be one of layer_norm, rms_norm", "got 'layernorm'", "'layer_norm'?"),
        (with_line("model", 'positions = "alibbi"'),
         "model.positions must be one of none", "'alibbi'", "'alibi'?"),
        (with_line("model", "positions = 3"), "model.positions must be one of none", "got 3"),
        (with_line("optimizer", 'name = "adam"'),
         "optimizer.name must be one of adamw, sgd, lion", "mean 'adamw'?"),
        # Keys of another kind.
        (with_line("optimizer", 'name = "sgd"\nbeta2 = 0.5'),
         "optimizer.beta2 is for optimizer of name 'adamw' or 'lion', got name='sgd' and"),
        (with_line("optimizer", "nesterov = true"),
         "optimizer.nesterov is for", "'sgd' or 'muon', got name='adamw'"),
        # Impossible values.
        ("seed = 2147483648\n" + SMALLEST,
         "seed must be at most 2,147,483,647, got seed=2147483648"),
        # Files that are not TOML.
        ("[model\n" + SMALLEST, "not a TOML file", "line 1"),
        (SMALLEST.encode() + b"# caf\xe9\n", "not a TOML file", "0xe9"),
    ],
)  # fmt: skip
def test_load_config_refuses_with_the_file_key_and_value(load, tmp_path, row):
    text, *words = row
    with pytest.raises(ConfigError) as error:
        load(text)
    message = str(error.value)
    assert message.startswith(f"{tmp_path / 'small.toml'}: ")
    for word in words:
        assert word in message


def test_load_config_of_a_missing_file_names_the_built_in_ones(tmp_path):
    path = tmp_path / "quikstart.toml"
    with pytest.raises(
        ConfigError, match="no such config file; the built-in .*'quickstart'"
    ) as error:
        load_config(path)
    assert str(error.value).startswith(f"{path}: ")


def test_load_config_of_a_folder_says_that_it_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


MIXTURE = """
[data]
validation_fraction = 0.05

[[data.mixture]]
name = "encyclopedia"
paths = ["wiki/*.jsonl.gz"]
weight = 3

[[data.mixture]]
name = "code"
paths = ["code/**/*.py"]
weight = 0.5
field = "body"
"""


def test_mixture_is_read_and_written(load):
    config = load(SMALLEST + MIXTURE)
    assert config.data.source == "files" and config.data.mixture == (
        MixtureSourceConfig(name="encyclopedia", paths=("wiki/*.jsonl.gz",), weight=3.0),
        MixtureSourceConfig(name="code", paths=("code/**/*.py",), weight=0.5, field="body"),
    )
    assert load(config_to_toml(config)) == config


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("weight = 3", "weight = 0",
         r"data.mixture\[0\].weight must be positive, got 0.0"),
        ("weight = 3", "", r"missing key data.mixture\[0\].weight \(a number\)"),
        ("weight = 3", "wieght = 3", r"unknown key data.mixture\[0\].wieght.*mean 'weight'"),
        ('"code"', '"encyclopedia"', r"\[data\] .* different names, got 'encyclopedia' 2 times"),
        ("[data]", '[data]\npaths = ["a"]',
         r"\[data\] data.paths cannot be set together with data.mixture"),
    ],
)  # fmt: skip
def test_wrong_mixtures_are_refused_in_one_line(load, before, after, message):
    with pytest.raises(ConfigError, match=message) as error:
        load(SMALLEST + MIXTURE.replace(before, after, 1))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "batch", "source"),
    [
        ("", "batch_size = 5", "files"),
        ('architecture = "encoder"', "batch_size = 5", "files"),
        ('architecture = "encoder"', "batch_tokens = 50", "labelled"),
        ('architecture = "encoder_decoder"', "batch_tokens = 50", "pairs"),
    ],
)
def test_paths_are_of_the_kind_that_the_model_is_trained_on(load, model, batch, source):
    text = with_line("model", model).replace("batch_size = 5", batch)
    assert load(text + '[data]\npaths = ["a.txt"]').data.source == source


def test_byte_order_mark_of_a_config_is_left_out(tmp_path):
    (tmp_path / "a.toml").write_text(SMALLEST, encoding="utf-8-sig")
    assert load_config(tmp_path / "a.toml").model.max_len > 0
