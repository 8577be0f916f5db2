"""Settings of a mixture of experts."""

import functools

import numpy as np
import pytest

from jaxformer.config import ExpertsConfig
from tests.small_config import assert_refused

EXPERTS = {"num_experts": 5, "num_experts_per_token": 2}


def test_experts_are_normalized_and_balanced_by_default():
    config = ExpertsConfig(**EXPERTS)
    assert (config.normalize_weights, config.load_balancing_weight) == (True, 0.01)
    assert (config.d_ff, config.router_z_weight, config.router_bias) == (None, 0.0, False)
    assert ExpertsConfig(num_experts=np.int64(5), num_experts_per_token=5).num_experts == 5


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"num_experts": 0}, ["num_experts must be positive", "got num_experts=0"]),
        ({"num_experts_per_token": 0}, ["num_experts_per_token must be positive"]),
        (
            {"num_experts_per_token": 6},
            ["at most num_experts", "num_experts_per_token=6 and num_experts=5"],
        ),
        ({"num_experts_per_token": 2.0}, ["num_experts_per_token must be an integer"]),
        ({"d_ff": 0}, ["d_ff must be positive"]),
        ({"d_ff": 2**25}, ["d_ff must be at most"]),
        ({"normalize_weights": 1}, ["normalize_weights must be true or false"]),
        ({"load_balancing_weight": -0.1}, ["load_balancing_weight must be zero or more"]),
        ({"router_z_weight": float("nan")}, ["router_z_weight must be zero or more"]),
        ({"router_bias": None}, ["router_bias must be true or false"]),
    ],
)
def test_impossible_experts_are_refused(wrong, words):
    assert_refused(functools.partial(ExpertsConfig, **EXPERTS | wrong), words)
