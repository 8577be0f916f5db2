import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import functional as F

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


PLAIN = F.FeedForwardParams(normal(1, 5, 7), normal(2, 7, 5), normal(3, 7), normal(4, 5))
GATED = F.GatedFeedForwardParams(
    normal(1, 5, 7), normal(2, 5, 7), normal(3, 7, 5), normal(4, 7), normal(5, 7), normal(6, 5)
)
X = normal(7, 2, 3, 5)
plain = jax.jit(F.feed_forward, static_argnames="activation")
gated = jax.jit(F.gated_feed_forward, static_argnames="activation")
LAYERS = pytest.mark.parametrize(
    ("layer", "params", "default"), [(plain, PLAIN, "relu"), (gated, GATED, "silu")],
    ids=["plain", "gated"],
)  # fmt: skip


def reference(params, x, activation):
    def bias(name):
        return 0 if getattr(params, name) is None else getattr(params, name)

    up, act = x @ params.up_kernel + bias("up_bias"), ACTIVATIONS[activation]
    if isinstance(params, F.FeedForwardParams):
        hidden = act(up)
    else:
        hidden = act(x @ params.gate_kernel + bias("gate_bias")) * up
    return hidden @ params.down_kernel + bias("down_bias")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@LAYERS
def test_feed_forward_equals_numpy(layer, params, default, activation):
    result = layer(float32(params), float32(X), activation=activation)
    chex.assert_trees_all_close(result, reference(params, X, activation), rtol=0, atol=2e-5)
    with jax.enable_x64(True):
        result = layer(params, X, activation=activation)
        chex.assert_type(result, np.float64)
        chex.assert_trees_all_close(result, reference(params, X, activation), rtol=0, atol=1e-13)


def test_clamped_gate_equals_numpy():
    x = 5 * X
    gate = x @ GATED.gate_kernel + GATED.gate_bias
    up = x @ GATED.up_kernel + GATED.up_bias
    for projection, least, most in ((gate, -np.inf, 7), (up, -7, 7)):
        clamped = [(projection < least).any(), (projection > most).any()]
        assert clamped == [least == -7, True]
    gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
    hidden = gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
    expected = hidden @ GATED.down_kernel + GATED.down_bias
    with jax.enable_x64(True):
        result = gated(GATED, x, activation="clamped_silu")
    chex.assert_trees_all_close(result, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("leading", [(), (0,), (2, 3)])
@pytest.mark.parametrize("biased", [True, False])
@LAYERS
def test_feed_forward_has_its_default_on_any_leading_axes(layer, params, default, biased, leading):
    if not biased:
        params = params._replace(**{name: None for name in params._fields if "bias" in name})
    x = normal(8, *leading, 5)
    result = layer(float32(params), float32(x))
    chex.assert_shape(result, x.shape)
    chex.assert_trees_all_close(result, reference(params, x, default), rtol=0, atol=4e-5)
