"""Kernels with a correction of low rank, against float64 and against their merged kernels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import functional as F
from jaxformer.errors import ShapeError

D, R, OUT = 5, 3, 7
RNG = np.random.default_rng(0)
X, WEIGHTS = RNG.standard_normal((2, 11, D)), RNG.standard_normal((2, 11, OUT))
BASE, DOWN, UP = (RNG.standard_normal(shape) for shape in ((D, OUT), (D, R), (R, OUT)))
SCALE = 0.75


def kernel(dtype=jnp.float32, base=BASE, down=DOWN, up=UP):
    return F.LowRankKernel(*(jnp.asarray(part, dtype) for part in (base, down, up)), SCALE)


@pytest.mark.essential
def test_linear_equals_float64():
    x, bias = jnp.asarray(X, jnp.float32), jnp.ones(OUT)
    expected = X @ (BASE + SCALE * DOWN @ UP) + 1
    np.testing.assert_allclose(F.linear(x, kernel(), bias), expected, rtol=0, atol=2e-5)
    result = F.linear(x.astype(jnp.bfloat16), kernel(), bias)
    assert result.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float64(result), expected, rtol=0.05, atol=0.2)


def test_merged_kernel_equals_float64_with_any_leading_axes():
    base = np.stack([BASE, 2 * BASE])
    stacked = kernel(base=base, down=np.stack([DOWN, -DOWN]), up=np.stack([UP, UP]))
    product = SCALE * DOWN @ UP
    np.testing.assert_allclose(
        stacked.merge(), base + np.stack([product, -product]), rtol=0, atol=1e-5
    )
    assert (stacked.shape, stacked.ndim, stacked.dtype) == ((2, D, OUT), 3, jnp.float32)
    assert kernel(jnp.bfloat16).merge().dtype == jnp.bfloat16
    with pytest.raises(ShapeError, match=r"kernel.up must be \[axis0=2, R=3, F=7\].* \(3, 7\)"):
        kernel(base=base, down=np.stack([DOWN, DOWN])).merge()


def test_zeros_change_no_bit():
    x = jnp.asarray(X, jnp.float32)
    np.testing.assert_array_equal(
        F.linear(x, kernel(up=np.zeros_like(UP))), F.linear(x, jnp.asarray(BASE, jnp.float32))
    )


def test_gradients_equal_float64_and_none_is_made_of_the_base():
    def loss(trained):
        parts = F.LowRankKernel(jnp.asarray(BASE, jnp.float32), *trained, SCALE)
        return (F.linear(jnp.asarray(X, jnp.float32), parts) * WEIGHTS).sum()

    trained = (jnp.asarray(DOWN, jnp.float32), jnp.asarray(UP, jnp.float32))
    down, up = jax.grad(loss)(trained)
    of_product = SCALE * np.einsum("btd,btf->df", X, WEIGHTS)
    np.testing.assert_allclose(down, of_product @ UP.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(up, DOWN.T @ of_product, rtol=1e-4, atol=1e-4)
    shapes = [
        var.aval.shape
        for equation in jax.make_jaxpr(jax.grad(loss))(trained).eqns
        for var in equation.outvars
    ]
    assert (D, R) in shapes and (D, OUT) not in shapes and (OUT, D) not in shapes
