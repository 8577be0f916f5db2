"""Attention of a block whose backward pass is written by hand, in float64."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.functional.attention import block, recomputed
from jaxformer.functional.attention.block import StaticOptions

B, G, T, S, H, V = 2, 3, 5, 7, 11, 13


def normal(*shape, seed):
    return np.random.default_rng(seed).standard_normal(shape)


def block_inputs(bias_shape=None, mask_shape=None, dropout=False):
    """Query, key, value, bias, mask and keep; the first query of the first row sees nothing."""
    mask = None
    if mask_shape is not None:
        mask = np.random.default_rng(4).random(mask_shape) < 0.6
        mask[0, ..., 0, :] = False
    return (
        normal(B, G, T, H, seed=0),
        normal(B, S, H, seed=1),
        normal(B, S, V, seed=2),
        None if bias_shape is None else normal(*bias_shape, seed=3),
        mask,
        np.random.default_rng(5).random((B, G, T, S)) < 0.5 if dropout else None,
    )


SHAPES = [(B, G, T, S), (1, G, T, S), (B, 1, T, S), (B, G, 1, S), (B, G, T, 1), (1, 1, 1, S)]
CASES = {
    **{f"bias {shape}": (block_inputs(shape), {}) for shape in SHAPES},
    **{f"mask {shape}": (block_inputs(None, shape), {}) for shape in SHAPES},
    "dropout": (block_inputs(dropout=True), {"dropout_rate": 0.5}),
    "soft cap": (block_inputs((B, 1, T, S), (1, G, T, S)), {"softcap": 0.7}),
    "all": (
        block_inputs(SHAPES[2], SHAPES[1], dropout=True), {"softcap": 2.0, "dropout_rate": 0.5}
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request):
    """Functions of (query, key, value, bias): recomputed, and dense attention's; and its inputs."""
    (query, key, value, bias, mask, keep), options = CASES[request.param]
    static = StaticOptions(scale=0.3, **options)
    floats = [x for x in (query, key, value, bias) if x is not None]

    def of_floats(attend, *floats):
        return attend(static, *(*floats, None)[:4], mask, keep)

    def recomputing(static, query, key, value, bias, mask, keep):
        masks = None if mask is None else recomputed.Masks(mask, mask.swapaxes(-1, -2))
        inputs = recomputed.Block(query, key, value, bias, masks, keep)
        return recomputed.attend_recomputing(static, inputs)

    with jax.enable_x64(True):
        arrays = [jnp.asarray(x) for x in floats]
        yield (
            functools.partial(of_floats, recomputing),
            functools.partial(of_floats, block.attend),
            arrays,
        )


def finite(outputs):
    output, residual = outputs
    return output, jnp.where(residual == -jnp.inf, 0, residual)


def check_close(got, expected):
    chex.assert_trees_all_close(got, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.essential
def test_backward_pass_is_the_transpose_of_the_forward_map(case):
    attend, _, inputs = case
    tangents = [normal(*x.shape, seed=10 + i) for i, x in enumerate(inputs)]
    (output, residual), dots = jax.jvp(attend, inputs, tangents)
    cotangents = normal(*output.shape, seed=20), normal(*residual.shape, seed=21)
    bars = jax.vjp(attend, *inputs)[1](cotangents)
    forward = sum((a * b).sum() for a, b in zip(dots, cotangents, strict=True))
    backward = sum((a * b).sum() for a, b in zip(tangents, bars, strict=True))
    np.testing.assert_allclose(forward, backward, rtol=1e-11)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_values_and_derivatives_are_those_of_dense_attention(case, order):
    attend, dense, inputs = case
    numbers = tuple(range(len(inputs)))

    def loss(attend, *inputs):
        output, residual = finite(attend(*inputs))
        return jnp.sin(output).sum() + (residual**2).sum()

    def derivative(function):
        return lambda *arrays: sum((g**2).sum() for g in jax.grad(function, numbers)(*arrays))

    got, expected = (functools.partial(loss, attention) for attention in (attend, dense))
    for _ in range(order - 1):
        got, expected = derivative(got), derivative(expected)
    if order:
        got, expected = jax.grad(got, numbers), jax.grad(expected, numbers)
    check_close(got(*inputs), expected(*inputs))
