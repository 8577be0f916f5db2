import typing

import jax
import numpy as np
import pytest

from jaxformer.config import ModelConfig, PositionsConfig
from jaxformer.modules import Positions, make_positions

ACTS_BY = {"embeddings": "encoding", "heads": "rotation", "scores": "bias"}


@pytest.mark.parametrize("config", typing.get_args(PositionsConfig), ids=lambda c: c.kind)
def test_scheme_overrides_the_method_of_what_its_config_says_it_acts_on(config):
    sizes = {"max_len": 8, "num_layers": 1, "d_model": 4, "num_heads": 2}
    scheme = type(make_positions(ModelConfig(positions=config(), **sizes), causal=True))
    overridden = [n for n in ACTS_BY.values() if getattr(scheme, n) is not getattr(Positions, n)]
    assert overridden == [by for what, by in ACTS_BY.items() if what == config.acts_on]


@pytest.mark.parametrize("kind", ["alibi", "relative"])
def test_bias_is_the_position_bias_as_an_array_of_rank_4(kind):
    config = ModelConfig(positions=kind, max_len=8, num_layers=1, d_model=4, num_heads=2)
    scheme = make_positions(config, causal=True)
    variables = scheme.init(jax.random.key(0), 1, 1, method=type(scheme).bias)
    value = scheme.apply(variables, method=type(scheme).position_bias)
    for offset, rows in ((3, 1), (np.array([3, 5, 1]), 3)):
        bias = scheme.apply(variables, 5, 7, offset, method=type(scheme).bias)
        assert bias.shape == (rows, 2, 5, 7)
        np.testing.assert_array_equal(bias[0], value.array(5, 7, 3))
