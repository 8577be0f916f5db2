"""Types, bounds and choices of the values of configs, which Python itself does not check."""

import dataclasses
import functools
import math
from typing import Annotated

import ml_dtypes
import numpy as np
import pytest

from jaxformer import config
from jaxformer.config import (
    AdafactorConfig,
    AdamWConfig,
    AlibiConfig,
    BeamSearchConfig,
    DataConfig,
    DepthRule,
    ExpertsConfig,
    LayerConfig,
    LearnedConfig,
    LionConfig,
    Llama3ScalingConfig,
    LoopConfig,
    LoraConfig,
    MeshConfig,
    MixtureSourceConfig,
    MuonConfig,
    MupConfig,
    NoPositionsConfig,
    RelativeConfig,
    RotaryConfig,
    SamplesConfig,
    SamplingConfig,
    ScheduleConfig,
    SgdConfig,
    SinusoidalConfig,
    SyntheticConfig,
    TokenizerConfig,
    TrainingConfig,
    TranslationConfig,
    checks,
)
from jaxformer.config.checks import TYPE_NAMES, keys_of
from tests.small_config import LINEAR, LONGROPE, YARN, assert_refused, model, small

INSTANCES = [
    small(), model(), LayerConfig(), DataConfig(), SyntheticConfig(), TokenizerConfig(kind="byte"),
    TrainingConfig(steps=7, batch_tokens=99), LoopConfig(steps=1), SamplingConfig(),
    SamplesConfig(), BeamSearchConfig(), TranslationConfig(), ScheduleConfig(),
    AdamWConfig(learning_rate=1.0),
    SgdConfig(learning_rate=1.0), LionConfig(learning_rate=1.0), AdafactorConfig(learning_rate=1.0),
    MuonConfig(learning_rate=1.0), MeshConfig(), LINEAR, YARN,
    LONGROPE, RotaryConfig(), LoraConfig(), ExpertsConfig(num_experts=5, num_experts_per_token=2),
    MupConfig(d_model=6), DepthRule(power=1.0),
    Llama3ScalingConfig(
        factor=8.0, original_max_len=9, low_freq_factor=1.0, high_freq_factor=4.0
    ),
    MixtureSourceConfig(name="code", paths=("a",), weight=1.0),
    AlibiConfig(), RelativeConfig(), SinusoidalConfig(), LearnedConfig(), NoPositionsConfig(),
]  # fmt: skip


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda config: type(config).__name__)
def test_every_number_string_and_bool_of_a_config_has_its_type(instance):
    names = {field.name for field in dataclasses.fields(instance)}
    assert keys_of(type(instance)).keys() == names
    wrong = {int: (1.5, True, "1"), float: ("1", True), bool: (1, "yes"), str: (5,)}
    for name, key in keys_of(type(instance)).items():
        kind, *alternatives = key.members
        for value in () if alternatives else wrong.get(kind, ()):
            changed = functools.partial(dataclasses.replace, instance, **{name: value})
            assert_refused(changed, [f"{name} must be {TYPE_NAMES[kind]}, got {name}={value!r}"])


# A type, numbers at its bounds, and numbers beyond them.
BOUNDS = [
    (checks.PositiveInt, (1, 2**31 - 1), (0, -1, 2**31)),
    (checks.NonNegativeInt, (0,), (-1, 2**31)),
    (checks.Width, (1, 2**24), (0, 2**24 + 1)),
    (checks.PositiveFloat, (5e-324, 1e300), (0.0, math.inf, math.nan)),
    (checks.NonNegativeFloat, (0.0,), (-0.1, math.inf, math.nan)),
    (checks.BelowOne, (0.0, 0.99), (-0.1, 1.0, math.nan)),
    (checks.UpToOne, (0.0, 1.0), (-0.1, 1.1, math.nan)),
    (checks.BetweenZeroAndOne, (0.1, 0.9), (0.0, 1.0, math.nan)),
    (Annotated[float, checks.at_least(1)], (1.0,), (0.9, math.inf, math.nan)),
    (Annotated[float, checks.within(-10, 10)], (-10.0, 10.0), (-10.1, 10.1, math.nan)),
]


@pytest.mark.parametrize(("kind", "good", "bad"), BOUNDS)
def test_bounds_hold_up_to_their_limits(kind, good, bad):
    def function(number: kind): ...

    key = keys_of(function)["number"]
    assert [key.checked(value) for value in good] == list(good)
    for value in bad:
        assert_refused(functools.partial(key.checked, value), ["number must be "])


def test_every_config_is_among_these():
    kinds = [kind for name in config.__all__ if isinstance(kind := getattr(config, name), type)]
    assert {type(instance) for instance in INSTANCES} == {*filter(dataclasses.is_dataclass, kinds)}


def test_numbers_of_numpy_become_those_of_python():
    settings = config.ModelConfig(
        max_len=np.int32(8), num_layers=1, d_model=np.int64(4), num_heads=2,
        dropout_rate=np.float32(0.5), init_std=np.int64(1),
    )  # fmt: skip
    values = (settings.max_len, settings.d_model, settings.dropout_rate, settings.init_std)
    assert values == (8, 4, 0.5, 1)
    assert [type(value) for value in values] == [int, int, float, float]
    assert "d_model = 4" in config.config_to_toml(settings)
    assert_refused(
        lambda: config.LoraConfig(rank=np.int64(0)), ["rank must be positive, got rank=0"]
    )


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(ml_dtypes.bfloat16, "bfloat16"), (np.dtype("float32"), "float32"), (np.float32, "float32")],
)
def test_dtypes_are_taken_as_numpy_and_jax_have_them(dtype, name):
    """`jnp.bfloat16` is `ml_dtypes.bfloat16` to NumPy."""
    assert model(dtype=dtype, param_dtype=dtype).dtype == name
    for wrong in (np.float16, None, "float16"):
        message = ["dtype must be one of float32, bfloat16, got"]
        assert_refused(functools.partial(model, dtype=wrong), message)


# Values of other types than numbers, strings and bools: a config, what is wrong, and the message.
OTHER_TYPES = [
    (DataConfig, {"paths": "a.txt"}, "paths must be a tuple whose items are each a string, "
     "got paths='a.txt'; write (ITEM,)"),
    (DataConfig, {"mixture": ("web",)}, "items are each MixtureSourceConfig"),
    (model, {"layers": [LayerConfig()]}, "layers must be a tuple whose items are each LayerConfig"),
    (model, {"positions": "alibbi"}, "positions must be one of none, sinusoidal"),
    (model, {"positions": "alibbi"}, "did you mean 'alibi'?"),
    (model, {"positions": 3}, "positions must be one of none, sinusoidal"),
    (model, {"positions": LINEAR}, "relative, got LinearScalingConfig("),
    (model, {"positions": None}, "relative, got None"),
    (RotaryConfig, {"scaling": "ntk"}, "linear, llama3, yarn, longrope, or be left out, got 'ntk'"),
    (BeamSearchConfig, {"early_stopping": "nevr"}, "one of True, False, never, got 'nevr'; did you "
     "mean 'never'?"),
    (BeamSearchConfig, {"early_stopping": 1}, "one of True, False, never, got 1"),
]  # fmt: skip


@pytest.mark.parametrize("row", OTHER_TYPES, ids=lambda row: f"{row[0].__name__}-{row[2]}")
def test_values_of_other_types_are_refused(row):
    make, changes, message = row
    assert_refused(functools.partial(make, **changes), [message])


def test_name_of_a_kind_stands_for_its_config():
    assert model(positions="alibi") == model(positions=AlibiConfig())
    assert dataclasses.replace(model(), positions="relative").positions == RelativeConfig()


def test_configs_are_hashable_frozen_and_keyword_only():
    settings = small()
    assert {settings: 1}[small()] == 1 and settings.model != model(d_ff=5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.model.d_ff = 5
    with pytest.raises(TypeError):
        SamplingConfig(1.0)
