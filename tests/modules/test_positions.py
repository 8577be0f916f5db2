"""Position schemes of modules, by their configs."""

import typing

import pytest

from jaxformer.config import ModelConfig, PositionsConfig
from jaxformer.config.positions import IN_EMBEDDINGS
from jaxformer.modules import Positions, make_positions


@pytest.mark.parametrize("config", typing.get_args(PositionsConfig), ids=lambda c: c.kind)
def test_kinds_in_embeddings_are_those_whose_scheme_has_an_encoding(config):
    sizes = {"max_len": 8, "num_layers": 1, "d_model": 4, "num_heads": 2}
    scheme = type(make_positions(ModelConfig(positions=config(), **sizes), causal=True))
    assert (config.kind in IN_EMBEDDINGS) == (scheme.encoding is not Positions.encoding)
