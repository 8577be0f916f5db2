import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ShapeError
from jaxformer.functional import KVCache, MultiHeadParams, multi_head_attention
from jaxformer.modules import (
    AttentionContext,
    Block,
    CrossAttention,
    FeedForward,
    MultiHeadAttention,
    Stack,
)
from tests import numpy_transformer as reference

B, T, S = 2, 5, 7
CONFIG = ModelConfig(
    architecture="encoder_decoder", max_len=16, num_layers=3, d_model=12, num_heads=6,
    num_kv_heads=3, head_dim=4, value_head_dim=5, qk_norm=True, norm_eps=0.1,
    attention_softcap=2.0, local_window_size=1, layer_execution="loop",
)  # fmt: skip
RNG = np.random.default_rng(0)
X, ENCODED = (np.float32(RNG.standard_normal((B, length, 12))) for length in (T, S))
CONTEXT = AttentionContext(
    lengths=np.array([5, 3]),
    local_window_size=(1, 0),
    is_causal=True,
    encoded=ENCODED,
    encoded_lengths=np.array([4, 7]),
)


@functools.partial(jax.jit, static_argnums=0, static_argnames="return_weights")
def cross(layer, params, x, context, **arguments):
    return layer.apply({"params": params}, x, context, **arguments)


@pytest.fixture(scope="module")
def params():
    return reference.draw_params(CrossAttention(CONFIG), X, CONTEXT)


@pytest.mark.essential
def test_cross_attention_is_its_pure_twin_on_the_encoder_with_heads_norms_and_cap(params):
    """Window, positions and causality are not for it."""
    result = cross(CrossAttention(CONFIG), params, X, CONTEXT, return_weights=True)
    cross_cache = result.cache
    expected = jax.jit(
        lambda params: multi_head_attention(
            MultiHeadParams(**params), X, ENCODED, num_heads=6, num_kv_heads=3, norm_eps=0.1,
            softcap=2.0, query_seq_lengths=CONTEXT.lengths,
            key_value_seq_lengths=CONTEXT.encoded_lengths, return_weights=True,
        )
    )(params)  # fmt: skip
    np.testing.assert_allclose(result.output, expected.output, rtol=0, atol=1e-6)
    np.testing.assert_allclose(result.weights, expected.weights, rtol=0, atol=1e-6)
    assert cross_cache.key.shape == (B, 3, S, 4) and cross_cache.value.shape == (B, 3, S, 5)
    # With a cross_cache, the encoder's output is not read.
    unread = dataclasses.replace(CONTEXT, encoded=np.full_like(ENCODED, np.nan))
    again = cross(CrossAttention(CONFIG), params, X, unread, cross_cache=cross_cache)
    assert again.weights is None
    np.testing.assert_allclose(again.output, result.output, rtol=0, atol=1e-6)
    chex.assert_trees_all_equal(again.cache, cross_cache)


@pytest.mark.parametrize("make", [Block, CrossAttention])
def test_dropout_acts_in_training_mode_only_and_by_its_key(make):
    variables = jax.jit(make(CONFIG).init)(jax.random.key(0), X, CONTEXT)

    @functools.partial(jax.jit, static_argnums=0, static_argnames="deterministic")
    def output(rate, deterministic=True, rngs=None):
        layer = make(dataclasses.replace(CONFIG, dropout_rate=rate))
        return layer.apply(variables, X, CONTEXT, deterministic=deterministic, rngs=rngs)[0]

    np.testing.assert_array_equal(output(0.5), output(0.0))
    dropped = [
        output(0.5, deterministic=False, rngs={"dropout": jax.random.key(seed)})
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(dropped[0], dropped[1])
    assert float(jnp.abs(dropped[0] - dropped[2]).max()) > 1e-3


def test_cross_attention_needs_something_to_attend_to():
    with pytest.raises(
        ShapeError, match=r"encoder's output or a cross_cache of it, got neither; pass"
    ):
        jax.eval_shape(CrossAttention(CONFIG).init, jax.random.key(0), X)


@pytest.mark.parametrize("make", [MultiHeadAttention, CrossAttention])
def test_attention_implementation_reaches_attention(make):
    layer = make(dataclasses.replace(CONFIG, attention_implementation="cudnn", dtype="bfloat16",
                                     attention_softcap=None))  # fmt: skip
    with pytest.raises(Exception, match="cudnn"):
        jax.eval_shape(layer.init, jax.random.key(0), X, CONTEXT)


@pytest.mark.parametrize(("architecture", "sublayers"), [("encoder_decoder", 3), ("encoder", 2)])
def test_projections_into_the_residual_stream_start_smaller(architecture, sublayers):
    config = ModelConfig(
        architecture=architecture, max_len=8, num_layers=3, d_model=96, num_heads=2
    )
    x = jnp.zeros((1, 2, 96))
    attended = (x, AttentionContext(encoded=x))
    for make, inputs, first, last in (
        (MultiHeadAttention, attended, "query_kernel", "output_kernel"),
        (CrossAttention, attended, "query_kernel", "output_kernel"),
        (FeedForward, (x,), "up_kernel", "down_kernel"),
    ):
        params = nn.unbox(make(config).init(jax.random.key(0), *inputs))["params"]
        assert float(params[first].std()) == pytest.approx(0.02, rel=0.05)
        scale = 0.02 / (3 * sublayers) ** 0.5
        assert float(params[last].std()) == pytest.approx(scale, rel=0.05)


def test_stack_returns_the_cross_attention_cache_with_a_cache_only():
    stack = Stack(CONFIG)
    variables = jax.eval_shape(stack.init, jax.random.key(0), X, CONTEXT)
    causal = dataclasses.replace(CONTEXT, local_window_size=None)

    def run(cache):
        return jax.eval_shape(lambda v: stack.apply(v, X, causal, cache=cache), variables)

    plain, cached = run(None), run((KVCache.init(B, T, num_kv_heads=3, head_dim=4,
                                                 value_head_dim=5),) * 3)  # fmt: skip
    assert plain.weights is None and plain.cache is None and plain.cross_cache is None
    assert len(cached.cache) == len(cached.cross_cache) == 3
