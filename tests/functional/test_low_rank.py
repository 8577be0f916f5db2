"""Kernels with a correction of low rank, against float64 and against their merged kernels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import functional as F
from jaxformer.errors import ShapeError
from tests.functional.experts import small_experts as experts

D, R, OUT = 5, 3, 7
RNG = np.random.default_rng(0)
X, WEIGHTS = RNG.standard_normal((2, 11, D)), RNG.standard_normal((2, 11, OUT))
BASE, DOWN, UP = (RNG.standard_normal(shape) for shape in ((D, OUT), (D, R), (R, OUT)))
SCALE = 0.75


def kernel(dtype=jnp.float32, base=BASE, down=DOWN, up=UP):
    return F.LowRankKernel(*(jnp.asarray(part, dtype) for part in (base, down, up)), SCALE)


def low_rank(array, seed):
    """A float32 kernel beside an array of any leading axes."""
    rng = np.random.default_rng(seed)
    *leading, width, output = array.shape
    shapes = ((*leading, width, 2), (*leading, 2, output))
    return kernel(base=array, down=rng.normal(size=shapes[0]), up=rng.normal(size=shapes[1]))


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
    with pytest.raises(ShapeError, match=r"kernel.up must be \[2, 3, 7\] .*, got shape \(3, 7\)"):
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


@pytest.mark.parametrize("num_tokens", [2, 6])  # in a scan over their choices, or over all experts
def test_experts_equal_those_of_merged_kernels(num_tokens):
    params = experts.arrays(experts.GATED)
    names = [name for name in params._fields if name.endswith("kernel")]
    parts = {name: low_rank(getattr(params, name), seed) for seed, name in enumerate(names)}
    merged = {name: kernel_parts.merge() for name, kernel_parts in parts.items()}
    x = jnp.asarray(experts.X, jnp.float32).reshape(6, -1)[:num_tokens]
    run = jax.jit(lambda params: F.mixture_of_experts(params, x, num_experts_per_token=3).output)
    result, expected = run(params._replace(**parts)), run(params._replace(**merged))
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)
    assert float(jnp.abs(expected - run(params)).max()) > 0.1
