import typing

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
