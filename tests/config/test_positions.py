"""Which settings of positions are refused."""

import dataclasses
import functools
import math

import pytest

from jaxformer.config import (
    AlibiConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    RelativeConfig,
    RotaryConfig,
    SinusoidalConfig,
    YarnScalingConfig,
)
from tests.small_config import LONGROPE, YARN, assert_refused, described, rows_of

NAN = math.nan


def longrope(**changes):
    return dataclasses.replace(LONGROPE, **changes)


REQUIRED = {
    LinearScalingConfig: {"factor": 2.0},
    Llama3ScalingConfig: {
        "factor": 8.0, "original_max_len": 8, "low_freq_factor": 1.0, "high_freq_factor": 4.0
    },
    YarnScalingConfig: {"factor": 2.0, "original_max_len": 8},
}  # fmt: skip
# By kind of config: its keys with wrong values, and parts of the message.
REFUSED = {
    RotaryConfig: [
        ({"rotary_dim": 3}, "rotary_dim must be even, got rotary_dim=3"),
        ({"base": 0.0}, "base must be positive"),
        ({"layout": "pairs"}, "layout must be one of half, interleaved"),
        ({"scaling": "ntk"},
         "scaling must be one of linear, llama3, yarn, longrope, or be left out, got 'ntk'"),
        ({"scaling": "yarn"}, "scaling of kind 'yarn' needs factor and original_max_len",
         "YarnScalingConfig("),
        ({"scaling": 2.0}, "scaling must be one of Linear", "got 2.0"),
        ({"base": 1.0, "scaling": YARN}, "more than 1 for yarn", "base=1.0"),
    ],
    SinusoidalConfig: [
        ({"offset": -1}, "offset must be zero or more"),
        ({"base": -1.0}, "base must be positive, got base=-1.0"),
        ({"layout": "pairs"}, "layout must be one of interleaved, half"),
    ],
    AlibiConfig: [
        ({"kind": "rotary"}, "kind must be one of alibi, got 'rotary'"),
    ],
    RelativeConfig: [
        ({"num_buckets": 1}, "at least 2", "num_buckets=1"),
        ({"num_buckets": -1}, "num_buckets must be at least 2, got num_buckets=-1"),
        ({"max_distance": 0}, "max_distance must be positive"),
        ({"table": -1}, "table must be zero or more", "table=-1"),
        ({"num_buckets": 8, "max_distance": 4}, "more than num_buckets // 2", "max_distance=4",
         "num_buckets=8"),
    ],
    longrope: [
        ({"original_max_len": 1}, "original_max_len must be at least 2", "=1"),
        ({"factor": 0.5}, "factor must be at least 1", "factor=0.5"),
        ({"short_factor": [1.0, 2.0]}, "short_factor must be a tuple", "[1.0, 2"),
        ({"long_factor": (1.0, "2")}, "long_factor must be a tuple", "(1.0, '2')"),
        ({"long_factor": (1.0, NAN)}, "positive numbers, one for each", "nan"),
        ({"long_factor": (1.0,)}, "must have the same length, got 2 and 1 numbers"),
        ({"attention_factor": -1.0}, "attention_factor must be positive"),
    ],
    LinearScalingConfig: [
        ({"factor": 0.5}, "factor must be at least 1", "=0.5"),
        ({"factor": NAN}, "factor must be at least 1"),
    ],
    Llama3ScalingConfig: [
        ({"low_freq_factor": 4.0}, "low_freq_factor must be less than high_freq_factor",
         "low_freq_factor=4.0"),
        ({"original_max_len": 0}, "original_max_len must be positive"),
    ],
    YarnScalingConfig: [
        ({"beta_slow": 32.0}, "beta_slow must be less than beta_fast",
         "beta_slow=32.0 and beta_fast=32.0"),
        ({"attention_factor": 1.5, "mscale": 0.0}, "mscale must be positive"),
        *(
            (factors, "attention_factor, or mscale and mscale_all_dim, or none", str(factors))
            for factors in (
                {"mscale": 1.0},
                {"mscale_all_dim": 0.5},
                {"attention_factor": 1.5, "mscale": 1.0, "mscale_all_dim": 0.5},
            )
        ),
    ],
}  # fmt: skip


@pytest.mark.parametrize("row", rows_of(REFUSED), ids=described)
def test_positions_refuse_impossible_values_by_name(row):
    kind, changes, *parts = row
    assert_refused(functools.partial(kind, **REQUIRED.get(kind, {}) | changes), parts)
