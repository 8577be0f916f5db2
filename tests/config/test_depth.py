"""Rules for the depth of a config: what they change, and what they refuse."""

import pytest

from jaxformer.config import load_config
from jaxformer.errors import ConfigError
from tests.config.test_files import SMALLEST, with_line

RULES = """
[by_depth]
"model.d_model" = { power = 1 }
"training.steps" = { power = 2.5 }
"training.batch_size" = { power = 1, multiple_of = 5 }
"optimizer.learning_rate" = { power = -0.5 }
"""
WITH_RULES = SMALLEST + RULES


def with_rule(rule):
    return f"{SMALLEST}\n[by_depth]\n{rule}\n"


def load_at(load, tmp_path, text, depth):
    """Config of a text at a depth, and at none."""
    return load(text), load_config(tmp_path / "small.toml", depth=depth)


@pytest.mark.parametrize(
    ("depth", "width", "steps", "batch_size", "rate"),
    [
        (1, 6, 1, 5, 1.414e-3),  # 7 / 2**2.5 = 1.2 steps, and 2.5 rows, which is half of 5
        (3, 18, 19, 10, 8.165e-4),  # 19.29 steps, 7.5 rows
        (4, 24, 40, 10, 7.071e-4),
        (7, 42, 160, 20, 5.345e-4),  # 17.5 rows
    ],
)
def test_settings_grow_with_their_powers(load, tmp_path, depth, width, steps, batch_size, rate):
    base, config = load_at(load, tmp_path, WITH_RULES, depth)
    assert base == load(SMALLEST)
    model, training = config.model, config.training
    assert (model.num_layers, model.d_model, model.num_heads) == (depth, width, 3)
    assert (training.steps, training.batch_size) == (steps, batch_size)
    assert config.optimizer.learning_rate == rate and config.seed == base.seed


def test_at_its_own_depth_a_file_is_what_it_says(load, tmp_path):
    text = with_rule('"training.batch_size" = { power = 1, multiple_of = 3 }')  # of 5
    base, config = load_at(load, tmp_path, text, 2)
    assert base == config == load(SMALLEST)


def test_rules_reach_into_tables_of_several_kinds(load, tmp_path):
    text = with_line("model", 'positions = { kind = "rotary", base = 1e3 }')
    rule = '\n[by_depth]\n"model.positions.base" = { power = 2 }\n'
    _, config = load_at(load, tmp_path, text + rule, 6)
    assert config.model.positions.base == 9e3


@pytest.mark.parametrize(
    ("text", "depth", "words"),
    [
        (SMALLEST, 3, "small.toml: depth needs the rules of a table [by_depth], got depth=3 and"),
        (WITH_RULES, 0, "small.toml: depth must be positive, got depth=0"),
        (WITH_RULES, 2.5, "depth must be an integer, got depth=2.5"),
        (WITH_RULES, "deep", "depth must be an integer, got depth='deep'"),
        (WITH_RULES, 2**31, "depth must be at most 2,147,483,647, got depth=2147483648"),
        # What comes out is checked like every setting.
        (WITH_RULES, 10**7, "model.d_model must be at most 16,777,216, got 60000000"),
        # Rules are checked without a depth, too.
        ("by_depth = 3\n" + SMALLEST, None, "by_depth must be a table, got 3"),
        (with_rule('"model.d_modle" = { power = 1 }'), None,
         "by_depth.'model.d_modle' is a rule for an unknown key; did you mean 'model.d_model'?"),
        (with_rule("lr = { power = 1 }"), None, "key; did you mean 'optimizer.learning_rate'?"),
        (with_rule("xyzzy = { power = 1 }"), None, "'xyzzy' is a rule for an unknown key; remove"),
        (with_rule("model.d_model = { power = 1 }"), None, "by_depth.'model' must be a rule for"),
        (with_rule('"model.dtype" = { power = 1 }'), None, "'model.dtype' must be a rule for"),
        (with_rule('"model.use_bias" = { power = 1 }'), None, "must be a rule for a number"),
        (with_rule('"model.num_layers" = { power = 1 }'), None,
         "must be a rule for a number other than model.num_layers, which is the depth; remove it"),
        (with_rule('"model.d_model" = 1'), None, "must be a table such as { power = 1 }, got 1"),
        (with_rule('"model.d_model" = { powr = 1 }'), None,
         "by_depth.'model.d_model': 2 mistakes: (1) unknown key powr; did you mean 'power'? (2)"),
        (with_rule('"model.d_model" = { power = 11 }'), None, "power must be in -10 .. 10, got "),
        (with_rule('"model.d_model" = { power = 1, multiple_of = 0 }'), None, "must be positive"),
        (with_rule('"optimizer.learning_rate" = { power = 1, multiple_of = 2 }'), None,
         "by_depth.'optimizer.learning_rate': multiple_of is for whole numbers, got 2; remove it"),
        (with_rule('"model.d_ff" = { power = 1 }'), None,
         "the rules of [by_depth] start from model.d_ff of the file, got none; add it"),
        (WITH_RULES.replace("num_layers = 2\n", ""), 3, "start from model.num_layers of the file"),
        (WITH_RULES.replace("d_model = 12", 'd_model = "a"'), 3, "d_model must be an integer"),
        (WITH_RULES.replace("[model]", "[modle]"), 3, "start from model.num_layers of the file"),
    ],
)  # fmt: skip
def test_mistakes_name_the_rule(load, tmp_path, text, depth, words):
    with pytest.raises(ConfigError) as error:
        load_at(load, tmp_path, text, depth)
    assert words in str(error.value) and str(error.value).count("small.toml: ") == 1


def test_ready_config_trains_twenty_tokens_for_each_parameter_of_its_layers():
    for depth, most in ((4, 0.12), (8, 0.06), (12, 0.001), (20, 0.03), (24, 0.02), (32, 0.02)):
        config = load_config("depth", depth=depth)
        model, training = config.model, config.training
        params = 12 * model.num_layers * model.d_model**2
        tokens = training.steps * training.batch_size * model.max_len
        assert model.num_layers == depth and model.d_model == 64 * model.num_heads == 64 * depth
        assert tokens / params == pytest.approx(20, rel=most)
        assert training.batch_size % (8 * training.accumulate_steps) == 0
        # Steps times rate times weight decay, which is how often the weights are renewed.
        assert training.steps * config.optimizer.learning_rate * config.optimizer.weight_decay == (
            pytest.approx(3240 * 6e-4 * 0.1, rel=0.01)
        )
