import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.functional import (
    FeedForwardParams,
    GatedFeedForwardParams,
    feed_forward,
    gated_feed_forward,
)

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def float32(tree):
    return jax.tree.map(lambda array: jnp.asarray(np.float32(array)), tree)


PLAIN = FeedForwardParams(normal(1, 5, 7), normal(2, 7, 5), normal(3, 7), normal(4, 5))
GATED = GatedFeedForwardParams(
    normal(1, 5, 7), normal(2, 5, 7), normal(3, 7, 5), normal(4, 7), normal(5, 7), normal(6, 5)
)
X = normal(7, 2, 3, 5)
plain = jax.jit(feed_forward, static_argnames="activation")
gated = jax.jit(gated_feed_forward, static_argnames="activation")


def reference_plain(params, x, activation):
    hidden = ACTIVATIONS[activation](x @ params.up_kernel + params.up_bias)
    return hidden @ params.down_kernel + params.down_bias


def reference_gated(params, x, activation):
    gate = ACTIVATIONS[activation](x @ params.gate_kernel + params.gate_bias)
    hidden = gate * (x @ params.up_kernel + params.up_bias)
    return hidden @ params.down_kernel + params.down_bias


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_feed_forward_equals_numpy(activation):
    result = plain(float32(PLAIN), float32(X), activation=activation)
    np.testing.assert_allclose(result, reference_plain(PLAIN, X, activation), rtol=0, atol=2e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gated_feed_forward_equals_numpy(activation):
    result = gated(float32(GATED), float32(X), activation=activation)
    np.testing.assert_allclose(result, reference_gated(GATED, X, activation), rtol=0, atol=4e-5)


def test_feed_forward_without_biases_is_that_with_zeros():
    bare = PLAIN._replace(up_bias=None, down_bias=None)
    zeros = PLAIN._replace(up_bias=np.zeros(7), down_bias=np.zeros(5))
    expected = reference_plain(zeros, X, "relu")
    np.testing.assert_allclose(plain(float32(bare), float32(X)), expected, rtol=0, atol=2e-5)
    bare = GatedFeedForwardParams(*GATED[:3])
    zeros = GatedFeedForwardParams(*GATED[:3], np.zeros(7), np.zeros(7), np.zeros(5))
    expected = reference_gated(zeros, X, "silu")
    np.testing.assert_allclose(gated(float32(bare), float32(X)), expected, rtol=0, atol=4e-5)


@pytest.mark.parametrize("leading", [(), (0,), (2, 3)])
def test_feed_forward_defaults_are_relu_and_silu_on_any_leading_axes(leading):
    x = normal(8, *leading, 5)
    result = plain(float32(PLAIN), float32(x))
    assert result.shape == x.shape
    np.testing.assert_allclose(result, reference_plain(PLAIN, x, "relu"), rtol=0, atol=2e-5)
    result = gated(float32(GATED), float32(x))
    assert result.shape == x.shape
    np.testing.assert_allclose(result, reference_gated(GATED, x, "silu"), rtol=0, atol=4e-5)


def test_feed_forward_keeps_the_dtype_of_x():
    x = jnp.asarray(X, jnp.bfloat16)
    for result, expected in (
        (plain(float32(PLAIN), x), reference_plain(PLAIN, X, "relu")),
        (gated(float32(GATED), x), reference_gated(GATED, X, "silu")),
    ):
        assert result.dtype == jnp.bfloat16
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            np.asarray(result, np.float64) / scale, expected / scale, atol=0.02
        )
