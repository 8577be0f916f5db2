"""Types of the values of configs, which Python itself does not check."""

import dataclasses
import functools

import numpy as np
import pytest

from jaxformer import config
from jaxformer.config import (
    AdafactorConfig,
    AdamWConfig,
    AlibiConfig,
    BeamSearchConfig,
    DataConfig,
    ExpertsConfig,
    LayerConfig,
    LearnedConfig,
    LionConfig,
    Llama3ScalingConfig,
    LoopConfig,
    LoraConfig,
    MeshConfig,
    MeshRule,
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
)
from jaxformer.config.checks import TYPE_NAMES, keys_of
from tests.small_config import LINEAR, LONGROPE, YARN, assert_refused, model, small

INSTANCES = [
    small(), model(), LayerConfig(), DataConfig(), SyntheticConfig(), TokenizerConfig(kind="byte"),
    TrainingConfig(steps=7, batch_tokens=99), LoopConfig(steps=1), SamplingConfig(),
    SamplesConfig(), BeamSearchConfig(), TranslationConfig(), ScheduleConfig(),
    AdamWConfig(learning_rate=1.0),
    SgdConfig(learning_rate=1.0), LionConfig(learning_rate=1.0), AdafactorConfig(learning_rate=1.0),
    MuonConfig(learning_rate=1.0), MeshConfig(), MeshRule(path="*", axes=()), LINEAR, YARN,
    LONGROPE, RotaryConfig(), LoraConfig(), ExpertsConfig(num_experts=5, num_experts_per_token=2),
    MupConfig(d_model=6),
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
