"""Blocks and models of the library as NNX modules."""

import chex
import jax
import numpy as np
import pytest
from flax import nnx

from jaxformer.config import ModelConfig
from jaxformer.models import Decoder
from jaxformer.modules import AttentionContext, Stack

CONFIG = ModelConfig(vocab_size=11, max_len=16, num_layers=3, d_model=12, num_heads=2, init_std=0.3)
TOKENS = np.array([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])
X = np.random.default_rng(0).standard_normal((2, 5, 12), np.float32)


@pytest.mark.parametrize(
    ("module", "inputs"), [(Decoder(CONFIG), (TOKENS,)), (Stack(CONFIG), (X, AttentionContext()))],
    ids=["model", "blocks"],
)  # fmt: skip
def test_bridge_computes_outputs_and_gradients_of_the_linen_module(module, inputs):
    with nnx.use_eager_sharding(False):
        wrapped = nnx.bridge.ToNNX(module, rngs=nnx.Rngs(0)).lazy_init(*inputs)
    params = nnx.to_pure_dict(nnx.state(wrapped, nnx.Param))

    def total(output):
        return (jax.tree.leaves(output)[0] ** 2).sum()

    expected = jax.grad(lambda params: total(module.apply({"params": params}, *inputs)))(params)
    gradients = nnx.grad(lambda module: total(module(*inputs)))(wrapped)
    chex.assert_trees_all_equal(wrapped(*inputs), module.apply({"params": params}, *inputs))
    chex.assert_trees_all_close(nnx.to_pure_dict(gradients), expected, rtol=1e-5, atol=1e-6)
