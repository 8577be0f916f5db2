"""The smallest configs, which the tests of configs change."""

import pytest

from jaxformer.config import (
    AdamWConfig,
    ExperimentConfig,
    LinearScalingConfig,
    LongropeScalingConfig,
    ModelConfig,
    TokenizerConfig,
    TrainingConfig,
    YarnScalingConfig,
)
from jaxformer.errors import ConfigError

LINEAR = LinearScalingConfig(factor=2.0)
YARN = YarnScalingConfig(
    factor=4.0, original_max_len=8, beta_fast=16.0, beta_slow=2.0,
    attention_factor=1.5,
)  # fmt: skip

LONGROPE = LongropeScalingConfig(
    factor=4.0, original_max_len=8, short_factor=(1.0, 1.5), long_factor=(2.0, 5.0)
)


def model(**changes):
    return ModelConfig(**{"max_len": 13, "num_layers": 2, "d_model": 12, "num_heads": 3} | changes)


def small(**changes):
    return ExperimentConfig(
        **{
            "model": model(),
            "tokenizer": TokenizerConfig(kind="byte"),
            "optimizer": AdamWConfig(learning_rate=1e-3),
            "training": TrainingConfig(steps=7, batch_size=5),
        }
        | changes
    )


def rows_of(refused):
    """(kind, changes, words) of each of the changes that a kind of config refuses."""
    return [(kind, *row) for kind, rows in refused.items() for row in rows]


def described(row):
    kind, *changes_and_words = row
    return f"{kind.__name__}-{changes_and_words}"


def assert_refused(make, words):
    """Making a config fails, with a message that has all of the words."""
    with pytest.raises(ConfigError) as error:
        make()
    for word in words:
        assert word in str(error.value)
