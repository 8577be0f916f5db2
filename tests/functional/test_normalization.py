import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from jaxformer.functional import layer_norm, rms_norm

SHAPE = (2, 3, 5, 7)
layer = jax.jit(layer_norm, static_argnames=("eps", "axis"))
rms = jax.jit(rms_norm, static_argnames=("eps", "axis"))


def normal(seed, shape=SHAPE, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def reference_layer_norm(x, scale=1.0, bias=0.0, eps=1e-5, axis=(-1,)):
    x = np.asarray(x, np.float64)
    mean, variance = x.mean(axis, keepdims=True), x.var(axis, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * np.asarray(scale) + np.asarray(bias)


def reference_rms_norm(x, scale=1.0, eps=1e-6, axis=(-1,)):
    x = np.asarray(x, np.float64)
    return x / np.sqrt(np.mean(x**2, axis, keepdims=True) + eps) * np.asarray(scale)


@pytest.mark.parametrize("axis", [(-1,), (-2, -1), (-3, -2, -1), (0, 1, 2, 3)])
def test_layer_norm_equals_float64(axis):
    x = 3 * normal(0) + 2
    trailing = SHAPE[-len(axis) :]
    scale, bias = normal(1, trailing), normal(2, trailing)
    result = layer(x, scale, bias, axis=axis, eps=0.1)
    expected = reference_layer_norm(x, scale, bias, 0.1, axis)
    np.testing.assert_allclose(result, expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize("axis", [(-1,), (-2, -1)])
def test_rms_norm_equals_float64(axis):
    x = 3 * normal(3) + 2
    scale = normal(4, SHAPE[-len(axis) :])
    result = rms(x, scale, axis=axis, eps=0.1)
    expected = reference_rms_norm(x, scale, 0.1, axis)
    np.testing.assert_allclose(result, expected, rtol=0, atol=5e-6)


def test_norms_name_axes_from_either_end():
    x = normal(5)
    np.testing.assert_array_equal(layer(x, axis=3), layer(x))
    np.testing.assert_array_equal(layer(x, axis=(3, 2)), layer(x, axis=(-2, -1)))
    np.testing.assert_array_equal(rms(x, axis=(3,)), rms(x, axis=-1))


def test_norms_use_their_documented_eps():
    x = normal(6) * 1e-3
    np.testing.assert_allclose(layer(x), reference_layer_norm(x), rtol=0, atol=1e-6)
    np.testing.assert_allclose(rms(x), reference_rms_norm(x), rtol=0, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sign=st.sampled_from([-1, 1]))
def test_layer_norm_is_accurate_far_from_zero(seed, sign):
    # Rows of 509 standard normal values around +-1e4, rounded to float32 before both sides: one
    # subtraction of a float32 mean is off by up to 1e-3 here.
    x = normal(seed, (11, 509)) + np.float32(sign * 1e4)
    result = layer(x)
    np.testing.assert_allclose(result, reference_layer_norm(x), rtol=0, atol=1e-4)
    assert np.abs(np.mean(np.asarray(result, np.float64), axis=-1)).max() < 1e-6


@pytest.mark.parametrize("norm", [layer, rms])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_norms_keep_the_dtype_and_compute_in_float32(norm, dtype):
    x, scale = (100 * normal(7)).astype(dtype), normal(8, SHAPE[-1:])
    result = norm(x, scale)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, norm(x.astype(jnp.float32), scale).astype(dtype))


def test_norms_of_float64_stay_float64():
    with jax.enable_x64(True):
        x = normal(9, dtype=np.float64)
        by_layer, by_rms = np.array(layer(x)), np.array(rms(x))
    assert by_layer.dtype == by_rms.dtype == np.float64
    np.testing.assert_allclose(by_layer, reference_layer_norm(x), rtol=0, atol=1e-13)
    np.testing.assert_allclose(by_rms, reference_rms_norm(x), rtol=0, atol=1e-13)


def test_norm_gradients_equal_finite_differences():
    with jax.enable_x64(True):
        x, scale, bias = (normal(i, (3, 5), np.float64) for i in range(3))
        scale, bias = scale[0], bias[0]
        check_grads(layer, (x, scale, bias), order=1, atol=1e-7, rtol=1e-7)
        check_grads(rms, (x, scale), order=1, atol=1e-7, rtol=1e-7)


def test_norms_of_constant_rows_are_finite_with_their_gradients():
    ones, scale = np.ones((3, 7), np.float32), normal(10, (7,))
    np.testing.assert_array_equal(layer(ones, scale, scale), np.tile(scale, (3, 1)))
    np.testing.assert_array_equal(rms(0 * ones, scale), np.zeros((3, 7)))
    for norm, x in ((layer, ones), (rms, 0 * ones)):
        gradient = jax.jit(jax.grad(lambda x, norm=norm: norm(x, scale).sum()))(x)
        assert np.isfinite(gradient).all()


@pytest.mark.essential
def test_norms_equal_flax_linen():
    x, scale, bias = normal(11), normal(12, SHAPE[-1:]), normal(13, SHAPE[-1:])
    params = {"params": {"scale": scale, "bias": bias}}
    np.testing.assert_allclose(
        layer(x, scale, bias), nn.LayerNorm(epsilon=1e-5).apply(params, x), rtol=0, atol=5e-6
    )
    del params["params"]["bias"]
    np.testing.assert_allclose(
        rms(x, scale), nn.RMSNorm(epsilon=1e-6).apply(params, x), rtol=0, atol=5e-6
    )


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_epsilon_of_norms_may_be_traced(norm):
    assert np.isfinite(jax.jit(lambda eps: norm(jnp.asarray(normal(0)), eps=eps))(1e-5)).all()
