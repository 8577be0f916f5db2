import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.functional import linear

RNG = np.random.default_rng(0)
KERNEL, BIAS = RNG.standard_normal((5, 7)), RNG.standard_normal(7)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 1, 3), (0,), (2, 0)])
def test_linear_equals_numpy_on_any_leading_axes(leading):
    x = np.random.default_rng(1).standard_normal((*leading, 5))
    inputs = [jnp.asarray(array, jnp.float32) for array in (x, KERNEL, BIAS)]
    plain, biased = jax.jit(lambda x, k, b: (linear(x, k), linear(x, k, b)))(*inputs)
    assert plain.shape == biased.shape == (*leading, 7)
    np.testing.assert_allclose(plain, x @ KERNEL, rtol=0, atol=5e-6)
    np.testing.assert_allclose(biased, x @ KERNEL + BIAS, rtol=0, atol=5e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_linear_computes_in_the_dtype_of_x(dtype):
    x = jnp.asarray(RNG.standard_normal((3, 5)), dtype)
    kernel, bias = jnp.asarray(KERNEL, jnp.float32), jnp.asarray(BIAS, jnp.float32)
    result = linear(x, kernel, bias)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, linear(x, kernel.astype(dtype), bias.astype(dtype)))
    expected = np.asarray(x, np.float64) @ KERNEL + BIAS
    np.testing.assert_allclose(np.asarray(result, np.float64), expected, rtol=0, atol=0.1)
