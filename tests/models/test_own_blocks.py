"""Blocks and feed-forward layers that a user brings to a model."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.functional import dot_product_attention
from jaxformer.models import Decoder
from jaxformer.modules import Block, BlockOutput, FeedForward
from tests import numpy_transformer as reference
from tests.models.compiled import apply
from tests.models.own_parts import (
    CONFIG,
    PATTERN,
    TOKENS,
    B,
    ParallelBlock,
    T,
    softmax_with_sink,
)


@pytest.mark.essential
@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_own_block_is_every_layer(execution):
    config = dataclasses.replace(CONFIG, layer_execution=execution, positions="none")
    model = Decoder(config, block=ParallelBlock)
    params = reference.draw_params(model, TOKENS)
    hidden = apply(model, params, TOKENS).hidden
    exact = reference.float64(params)
    x = exact["embedding"]["embedding"][TOKENS]
    for index in range(3):
        layer = jax.tree.map(lambda leaf, i=index: leaf[i], exact["stack"]["layers"])
        inputs = reference.norm(config, layer["norm"], x)
        attended, _ = reference._attention(
            config, layer["attention"], inputs, inputs, np.tri(T, dtype=bool)[None], 0.0,
            is_self=True,
        )  # fmt: skip
        x = x + attended + reference._feed_forward(config, layer["feed_forward"], inputs)
    expected = reference.norm(config, exact["final_norm"], x)
    np.testing.assert_allclose(hidden, expected, rtol=0, atol=1e-5)


class Sowing(nn.Module):
    """A feed-forward layer that sows an auxiliary loss."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x):
        self.sow("losses", "balance", jnp.float32(0.25))
        return FeedForward(self.config, name="inner")(x)


@pytest.mark.parametrize("layers", [(), PATTERN])
@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_what_blocks_sow_comes_out_of_every_layer(execution, layers):
    config = dataclasses.replace(
        CONFIG, layer_execution=execution, layers=layers, num_layers=5, remat="dots"
    )
    model = Decoder(
        config,
        block=functools.partial(Block, feed_forward=Sowing),
        attention_fn={"sink": softmax_with_sink} if layers else dot_product_attention,
    )
    params = reference.draw_params(model, TOKENS)
    apply = jax.jit(functools.partial(model.apply, mutable=["losses"]))
    _, sown = apply({"params": params}, TOKENS)
    assert sum(np.sum(leaf) for leaf in jax.tree.leaves(sown)) == 5 * 0.25


class Counting(nn.Module):
    """A feed-forward layer that sows how many tokens it was told are real."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x, mask=None):
        self.sow("losses", "tokens", jnp.float32(-1) if mask is None else mask.sum(dtype=float))
        return FeedForward(self.config, name="inner")(x)


class CountingByName(Counting):
    """One whose call takes any keyword."""

    @nn.compact
    def __call__(self, x, **options):
        return super().__call__(x, options["mask"])


@pytest.mark.parametrize("layer", [Counting, CountingByName])
def test_feed_forward_that_asks_for_it_is_told_what_is_padding(layer):
    model = Decoder(CONFIG, block=functools.partial(Block, feed_forward=layer))
    params = reference.draw_params(model, TOKENS)
    lengths = np.arange(2, 2 + len(TOKENS))
    for argument, counted in ((lengths, lengths.sum()), (None, -1)):
        _, sown = model.apply({"params": params}, TOKENS, lengths=argument, mutable=["losses"])
        assert {float(number) for leaf in jax.tree.leaves(sown) for number in np.ravel(leaf)} == {
            counted
        }


def test_a_block_without_parameters_is_a_block():
    class Nothing(nn.Module):
        config: ModelConfig

        def __call__(self, x, context, **options):
            return BlockOutput(x)

    for execution in ("scan", "loop"):
        model = Decoder(dataclasses.replace(CONFIG, layer_execution=execution), block=Nothing)
        params = reference.draw_params(model, TOKENS)
        assert apply(model, params, TOKENS).hidden.shape == (B, T, 12)
