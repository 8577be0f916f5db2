"""Precision and function of the matrix products, in every layer that takes them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType

from jaxformer import functional as F
from jaxformer.errors import ShapeError

RNG = np.random.default_rng(0)
X, BIAS = RNG.standard_normal((2, 3, 5)), RNG.standard_normal(7)
UP, GATE, DOWN = (RNG.standard_normal(shape) for shape in ((5, 7), (5, 7), (7, 5)))
DOWN_RANK, UP_RANK = RNG.standard_normal((5, 2)), RNG.standard_normal((2, 7))
TABLE = RNG.standard_normal((11, 5))
ONE_DEVICE = AbstractMesh((1,), ("device",), axis_types=(AxisType.Auto,))


def low_rank(x, products):
    return F.linear(x, F.LowRankKernel(UP, DOWN_RANK, UP_RANK, 0.5), products=products)


def experts(x, products, **options):
    """Two equal experts, each with weight 1/2."""
    kernels = (np.stack([kernel] * 2) for kernel in (UP, DOWN, GATE))
    params = F.ExpertsParams(np.zeros((5, 2)), *kernels)
    options = {"num_experts_per_token": 2, "activation": "relu", **options}
    return F.mixture_of_experts(params, x, products=products, **options).output


def attention(x, products):
    """Each token attends to itself alone."""
    params = F.MultiHeadParams(UP[:, :6], UP[:, 1:], UP[:, :6], DOWN[1:])
    mask = np.eye(3, dtype=bool)
    return F.multi_head_attention(params, x, mask=mask, num_heads=2, products=products).output


def gated(x, product):
    return product(np.maximum(product(x, GATE), 0) * product(x, UP), DOWN)


# Each layer, and what it computes with a product in float64.
LAYERS = {
    "linear": (
        lambda x, products: F.linear(x, UP, BIAS, products=products),
        lambda x, product: product(x, UP) + BIAS,
    ),
    "low_rank": (
        low_rank, lambda x, product: product(x, UP) + product(product(x, DOWN_RANK) / 2, UP_RANK)
    ),
    "feed_forward": (
        lambda x, products: F.feed_forward(F.FeedForwardParams(UP, DOWN), x, products=products),
        lambda x, product: product(np.maximum(product(x, UP), 0), DOWN),
    ),
    "gated_feed_forward": (
        lambda x, products: F.gated_feed_forward(
            F.GatedFeedForwardParams(GATE, UP, DOWN), x, activation="relu", products=products
        ),
        gated,
    ),
    "experts": (experts, gated),
    "experts with a capacity": (functools.partial(experts, capacity_factor=1.0), gated),
    "attention": (attention, lambda x, product: product(product(x, UP[:, :6]), DOWN[1:])),
    "unembed": (
        lambda x, products: F.unembed(TABLE, x, products=products),
        lambda x, product: product(x, TABLE.T),
    ),
}  # fmt: skip
layers = pytest.mark.parametrize("name", LAYERS)


def tripled(*arguments, **options):
    return 3 * jax.lax.dot_general(*arguments, **options)


@layers
def test_products_are_those_of_a_function_of_the_callers(name):
    layer, reference = LAYERS[name]
    with jax.enable_x64(True):
        result = jax.jit(layer, static_argnums=1)(X, F.Products(dot_general=tripled))
    expected = reference(X, lambda x, kernel: 3 * (x @ kernel))
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


@layers
def test_products_and_their_gradients_have_a_precision(name):
    layer, _ = LAYERS[name]

    def total(x):
        return layer(x, F.Products(precision="highest")).sum()

    with jax.sharding.use_abstract_mesh(ONE_DEVICE):  # with the grouped product of experts, too
        program = str(jax.make_jaxpr(jax.value_and_grad(total))(jnp.float32(X)))
    assert "precision=Precision.HIGHEST" in program or "precision=(Precision.HIGHEST" in program
    assert "precision=None" not in program
    assert ("ragged_dot" in program) == (name == "experts")


def test_products_of_narrow_inputs_keep_the_dtype_that_the_layer_promises():
    wide = functools.partial(jax.lax.dot_general, preferred_element_type=jnp.float32)
    x, products = jnp.asarray(X, jnp.bfloat16), F.Products(dot_general=wide)
    assert F.linear(x, jnp.asarray(UP), products=products).dtype == jnp.bfloat16


@pytest.mark.parametrize("name", ["linear", "experts", "unembed"])
def test_products_are_refused_by_type(name):
    with pytest.raises(ShapeError, match=r"products must be a Products, got str; make one with"):
        LAYERS[name][0](jnp.float32(X), "highest")
