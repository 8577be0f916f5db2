import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from jaxformer.functional import layer_norm, rms_norm

SHAPE = (2, 3, 5, 7)
layer = jax.jit(layer_norm, static_argnames="eps")
rms = jax.jit(rms_norm, static_argnames="eps")


def normal(seed, shape=SHAPE, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def reference_layer_norm(x, scale=1.0, bias=0.0, eps=1e-5):
    x = np.asarray(x, np.float64)
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * np.asarray(scale) + np.asarray(bias)


def reference_rms_norm(x, scale=1.0, eps=1e-6):
    x = np.asarray(x, np.float64)
    return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + eps) * np.asarray(scale)


NORMS = pytest.mark.parametrize(
    ("norm", "reference"), [(layer, reference_layer_norm), (rms, reference_rms_norm)],
    ids=["layer", "rms"],
)  # fmt: skip


def parameters(norm, seed, dtype=np.float32):
    """Scale, and bias of a layer norm."""
    return [normal(seed + i, SHAPE[-1:], dtype) for i in range(2 if norm is layer else 1)]


@pytest.mark.essential
@NORMS
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 5e-6), (np.float64, 1e-13)])
def test_norm_equals_float64(norm, reference, dtype, tolerance):
    with jax.enable_x64(dtype == np.float64):
        x, arrays = 3 * normal(0, dtype=dtype) + 2, parameters(norm, 1, dtype)
        result = norm(x, *arrays, eps=0.1)
        chex.assert_type(result, dtype)
        chex.assert_trees_all_close(result, reference(x, *arrays, eps=0.1), rtol=0, atol=tolerance)


@NORMS
def test_norm_uses_its_documented_eps(norm, reference):
    x = normal(6) * 1e-3
    chex.assert_trees_all_close(norm(x), reference(x), rtol=0, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sign=st.sampled_from([-1, 1]))
def test_layer_norm_is_accurate_far_from_zero(seed, sign):
    # Rows of 509 standard normal values around +-1e4, rounded to float32 before both sides: one
    # subtraction of a float32 mean is off by up to 1e-3 here.
    x = normal(seed, (11, 509)) + np.float32(sign * 1e4)
    result = layer(x)
    chex.assert_trees_all_close(result, reference_layer_norm(x), rtol=0, atol=1e-4)
    assert np.abs(np.mean(np.asarray(result, np.float64), axis=-1)).max() < 1e-6


@NORMS
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_norm_keeps_the_dtype_and_computes_in_float32(norm, reference, dtype):
    x, scale = (100 * normal(7)).astype(dtype), normal(8, SHAPE[-1:])
    result = norm(x, scale)
    chex.assert_type(result, dtype)
    chex.assert_trees_all_equal(result, norm(x.astype(jnp.float32), scale).astype(dtype))


@NORMS
def test_norm_gradient_equals_finite_differences(norm, reference):
    with jax.enable_x64(True):
        inputs = normal(0, (3, 7), np.float64), *parameters(norm, 1, np.float64)
        check_grads(norm, inputs, order=1, atol=1e-7, rtol=1e-7)


def test_norms_of_constant_rows_are_finite_with_their_gradients():
    ones, scale = np.ones((3, 7), np.float32), normal(10, (7,))
    chex.assert_trees_all_equal(layer(ones, scale, scale), np.tile(scale, (3, 1)))
    chex.assert_trees_all_equal(rms(0 * ones, scale), 0 * ones)
    for norm, x in ((layer, ones), (rms, 0 * ones)):
        chex.assert_tree_all_finite(jax.jit(jax.grad(lambda x, n=norm: n(x, scale).sum()))(x))


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_epsilon_of_norms_may_be_traced(norm):
    chex.assert_tree_all_finite(jax.jit(lambda eps: norm(jnp.asarray(normal(0)), eps=eps))(1e-5))
