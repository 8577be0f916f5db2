"""Tagged unions and arrays of tables: read, written, compared, and refused in one line."""

import dataclasses
import tomllib

import pytest

from jaxformer.config import (
    AdamWConfig,
    AlibiConfig,
    ExperimentConfig,
    LayerConfig,
    LearnedConfig,
    LionConfig,
    Llama3ScalingConfig,
    NoPositionsConfig,
    RelativeConfig,
    RotaryConfig,
    SgdConfig,
    SinusoidalConfig,
    TranslationConfig,
    YarnScalingConfig,
    config_differences,
    config_from_dict,
    config_to_toml,
)
from jaxformer.config.checks import keys_of
from jaxformer.errors import ConfigError
from tests.config.test_files import SMALLEST, with_line
from tests.small_config import LINEAR, LONGROPE, YARN, model, small

POSITIONS = [
    NoPositionsConfig(),
    SinusoidalConfig(base=77.0, layout="half"),
    LearnedConfig(),
    RotaryConfig(),
    RotaryConfig(base=5e5, layout="interleaved", scaling=LINEAR),
    RotaryConfig(
        scaling=Llama3ScalingConfig(
            factor=8.0, original_max_len=8, low_freq_factor=1.0, high_freq_factor=4.0
        )
    ),
    RotaryConfig(scaling=YARN),
    RotaryConfig(
        scaling=YarnScalingConfig(
            factor=32.0, original_max_len=4096, truncate=False, mscale=0.7, mscale_all_dim=1.0
        )
    ),
    RotaryConfig(scaling=LONGROPE),
    AlibiConfig(),
    RelativeConfig(num_buckets=8, max_distance=20),
]


LAYERS = [LayerConfig(local_window_size=3, attention="linear"), LayerConfig()]
LAYERS += [LayerConfig(positions=p) for p in POSITIONS if p.kind not in ("learned", "sinusoidal")]
NO_NORM = LayerConfig(attention_norm=False, positions="none")
LAYERED = {"num_layers": 19, "layers": tuple(LAYERS), "first_layers": (NO_NORM, NO_NORM)}


@pytest.mark.parametrize(
    "keys", [*({"positions": p} for p in POSITIONS), LAYERED],
    ids=lambda keys: str(keys.get("positions", "layers")),
)  # fmt: skip
def test_every_kind_of_positions_and_layers_are_read_back_equal(load, keys):
    config = small(out="there", model=model(**keys))
    assert load(config_to_toml(config)) == config


@pytest.mark.parametrize("positions", POSITIONS, ids=repr)
def test_string_is_shorthand_for_a_kind_with_its_defaults(load, positions):
    config = load(with_line("model", f'positions = "{positions.kind}"'))
    assert config.model.positions == type(positions)()


def test_table_without_a_kind_is_of_the_kind_of_the_default(load):
    text = SMALLEST + "[model.positions]\n"
    assert load(text + "base = 5e5\n").model.positions == RotaryConfig(base=5e5)
    assert load(text).model.positions == RotaryConfig()


def test_optimizer_without_a_name_is_adamw(load):
    assert load(SMALLEST).optimizer == AdamWConfig(learning_rate=1e-3)
    for name, config in (("sgd", SgdConfig), ("lion", LionConfig), ("adamw", AdamWConfig)):
        optimizer = load(with_line("optimizer", f'name = "{name}"\nclip_norm = 2')).optimizer
        assert optimizer == config(learning_rate=1e-3, clip_norm=2.0)


def test_early_stopping_is_a_bool_or_never():
    for value in (True, False, "never"):
        config = config_from_dict(TranslationConfig, {"early_stopping": value})
        assert config == TranslationConfig(early_stopping=value)
        assert config_from_dict(TranslationConfig, tomllib.loads(config_to_toml(config))) == config


def test_nested_kinds_are_read(load):
    inline = 'positions = {scaling = {kind = "linear", factor = 2}}'
    assert load(with_line("model", inline)).model.positions == RotaryConfig(scaling=LINEAR)
    tables = '[model.positions]\nkind = "rotary"\n[model.positions.scaling]\nkind = "yarn"\n'
    yarn = load(SMALLEST + tables + "factor = 4\noriginal_max_len = 8\ntruncate = false\n")
    assert yarn.model.positions.scaling == YarnScalingConfig(
        factor=4.0, original_max_len=8, truncate=False
    )
    tables = '[model.positions]\n[model.positions.scaling]\nkind = "longrope"\nfactor = 4\n'
    tables += "original_max_len = 8\nshort_factor = [1, 1.5]\nlong_factor = [2, 5.0]\n"
    longrope = load(SMALLEST + tables)
    assert longrope.model.positions.scaling == LONGROPE


@pytest.mark.parametrize(
    "row",
    [
        # The kind.
        ('[model.positions]\nkind = "alibbi"\n', "model.positions.kind must be one of none, sinu",
         "got 'alibbi'", "mean 'alibi'?"),
        ("[model.positions]\nkind = 3\n", "model.positions.kind must be one of none, sinu"),
        ("[model.positions]\nscaling = {factor = 2.0}\n",
         "missing key model.positions.scaling.kind (one of linear, llama3, yarn, longrope)"),
        ('[model.positions]\nscaling = "ntk"\n',
         "model.positions.scaling must be one of linear, llama3, yarn, longrope, or be left",
         "'ntk'"),
        ('[model.positions]\nscaling = "linear"\n',
         "missing key model.positions.scaling.factor (a number)"),
        # A key of another kind, of none, and misspelt.
        ('[model.positions]\nkind = "alibi"\nbase = 5e5\n',
         "model.positions.base is for model.positions of kind 'sinusoidal' or 'rotary'",
         "got kind='alibi' and base=500000.0; remove it, or change kind"),
        ("[model.positions]\nnum_buckets = 8\n",
         "model.positions.num_buckets is for model.positions of kind 'relative'", "'rotary'"),
        ('[model.positions.scaling]\nkind = "linear"\nfactor = 2.0\nbeta_fast = 8.0\n',
         "model.positions.scaling.beta_fast is for", "kind 'yarn'", "kind='linear'", "=8.0"),
        ('[model.positions.scaling]\nkind = "linear"\nfactr = 2.0\n',
         "unknown key model.positions.scaling.factr", "mean 'factor'?"),
        ("[model.positions]\nxyzzy = 1\n",
         "unknown key model.positions.xyzzy; the keys here are kind, base, layout, "
         "rotary_dim, scaling"),
        ("[optimizer.num_buckts]\n", "optimizer.num_buckts",
         "'model.positions.num_buckets' or 'data"),
        ("[[model.positions]]\n", "model.positions must be one of none, sinu"),
        # Values.
        ('[model.positions.scaling]\nkind = "linear"\nfactor = 0.5\n',
         "model.positions.scaling.factor must be at least 1, got 0.5"),
        # Arrays of tables.
        ("[model.layers]\n", "model.layers must be a list of tables", "write [[model.layers]]"),
        ("[[model.layers]]\n[[model.layers]]\nlocal_window = 3\n",
         "unknown key model.layers[1].local_window", "mean 'local_window_size'?"),
        ("[[model.layers]]\nlocal_window_size = true\n",
         "model.layers[0].local_window_size must be an integer, got True"),
        ("[[model.layers]]\npositions = {base = 3}\n",
         "missing key model.layers[0].positions.kind (one of none, sinusoidal"),
        ('[[model.layers]]\npositions = "learned"\n',
         "[model.layers[0]] learned positions are added to the embeddings once"),
    ],
)  # fmt: skip
def test_wrong_tables_are_refused_with_file_key_and_value(load, tmp_path, row):
    tables, *words = row
    with pytest.raises(ConfigError) as error:
        load(SMALLEST + tables)
    message = str(error.value)
    assert message.startswith(f"{tmp_path / 'small.toml'}: ") and "\n" not in message
    for word in words:
        assert word in message


def test_config_differences_name_the_keys_of_kinds_and_layers():
    rotary, scaled = model(), model(positions=RotaryConfig(scaling=LINEAR))
    assert config_differences(rotary, scaled, "model.") == {
        "model.positions.scaling.kind": (None, "linear"),
        "model.positions.scaling.factor": (None, 2.0),
    }
    assert config_differences(model(positions="relative"), model(positions="alibi")) == {
        "positions.kind": ("relative", "alibi"),
        "positions.num_buckets": (32, None),
        "positions.max_distance": (128, None),
        "positions.table": (0, None),
    }
    layers = (LayerConfig(), LayerConfig(local_window_size=3))
    assert config_differences(model(), model(layers=layers)) == {"layers": ((), layers)}


def test_keys_that_may_be_unset_are_unset_by_default():
    """TOML has no null: a value of None is written by leaving the key out."""

    def check(config):
        for key in keys_of(config).values():
            assert not key.optional or key.default is None, (config, key.name)
            for member in (*key.members, *(key.element.members if key.element else ())):
                if dataclasses.is_dataclass(member):
                    check(member)

    check(ExperimentConfig)
