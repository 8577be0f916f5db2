"""Linear maps with a transpose of their own, under the transformations of JAX."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.functional.linear_map import linear_map

MATRIX = np.array([[1.0, 2.0, 0.5], [-1.0, 0.3, 4.0]], np.float32)
VECTOR = np.array([0.2, -1.5, 3.0], np.float32)


def forward(residuals, tangents):
    return {"product": jnp.sin(residuals["matrix"]) @ tangents["vector"]}


def backward(residuals, cotangents):
    return {"vector": cotangents["product"] @ jnp.sin(residuals["matrix"])}


def product(matrix, vector, backward=backward):
    return linear_map(forward, backward, {"matrix": matrix}, {"vector": vector})["product"]


def plain(matrix, vector):
    return jnp.sin(matrix) @ vector


def check_same(transform, *arrays):
    got, expected = transform(product)(*arrays), transform(plain)(*arrays)
    chex.assert_trees_all_close(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.essential
@pytest.mark.parametrize("transform", [
    lambda f: f,
    jax.jit,
    lambda f: lambda *inputs: jax.jvp(f, inputs, inputs),
    lambda f: jax.jacrev(f, argnums=(0, 1)),
    lambda f: jax.jacfwd(f, argnums=(0, 1)),
    lambda f: jax.jit(jax.hessian(lambda *inputs: (f(*inputs) ** 2).sum(), argnums=(0, 1))),
    lambda f: jax.jacrev(jax.jacrev(f, argnums=0), argnums=1),
    lambda f: jax.grad(jax.checkpoint(lambda *inputs: (f(*inputs) ** 3).sum()), argnums=(0, 1)),
])  # fmt: skip
def test_transformations_are_those_of_the_map(transform):
    check_same(transform, MATRIX, VECTOR)


@pytest.mark.parametrize(("axes", "shapes"), [
    ((0, 0), ((4, 2, 3), (4, 3))),
    ((None, 1), ((2, 3), (3, 4))),
    ((2, None), ((2, 3, 4), (3,))),
])  # fmt: skip
def test_vectorized_maps_have_vectorized_transposes(axes, shapes):
    arrays = [np.random.default_rng(i).standard_normal(s, np.float32) for i, s in enumerate(shapes)]
    check_same(lambda f: jax.vmap(f, axes), *arrays)
    check_same(lambda f: jax.grad(lambda *a: (jax.vmap(f, axes)(*a) ** 2).sum(), (0, 1)), *arrays)
    check_same(lambda f: jax.vmap(jax.grad(lambda *a: (f(*a) ** 2).sum(), (0, 1)), axes), *arrays)


def test_reverse_mode_uses_the_given_transpose():
    def doubled(residuals, cotangents):
        return jax.tree.map(lambda x: 2 * x, backward(residuals, cotangents))

    _, pull = jax.vjp(lambda vector: product(MATRIX, vector, doubled), VECTOR)
    cotangent = np.ones(2, np.float32)
    np.testing.assert_allclose(pull(cotangent)[0], 2 * cotangent @ np.sin(MATRIX), rtol=1e-6)


@pytest.mark.parametrize("varying", ["matrix", "vector"])
@pytest.mark.parametrize("inside", [False, True])
def test_gradients_of_what_is_the_same_everywhere_are_summed_in_a_shard_map(varying, inside):
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    data, everywhere = jax.sharding.PartitionSpec("data"), jax.sharding.PartitionSpec()
    arrays = {"matrix": MATRIX, "vector": VECTOR}
    arrays[varying] = np.stack([arrays[varying], 2 * arrays[varying]])
    axes = [0 if name == varying else None for name in arrays]
    specs = tuple(data if name == varying else everywhere for name in arrays)

    def loss(function, matrix, vector):
        return (jax.vmap(function, axes)(matrix, vector) ** 2).sum()

    def total(matrix, vector):
        return jax.lax.psum(loss(product, matrix, vector), "data")

    shard = functools.partial(jax.shard_map, mesh=mesh, in_specs=specs)
    if inside:
        gradients = shard(jax.grad(total, (0, 1)), out_specs=specs)
    else:
        gradients = jax.grad(shard(total, out_specs=everywhere), (0, 1))
    expected = jax.grad(functools.partial(loss, plain), (0, 1))(*arrays.values())
    for a, b in zip(jax.jit(gradients)(*arrays.values()), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_integer_residuals_and_unused_tangents():
    def run(signs, x, y):
        return linear_map(
            lambda signs, dots: signs * dots["x"] + 3 * dots["y"],
            lambda signs, bar: {"x": signs * bar, "y": 3 * bar, "none": None},
            signs,
            {"x": x, "y": y, "none": None},
        )

    signs = np.array([1, -1, 1])
    gradient = jax.grad(lambda x: (run(signs, x, VECTOR) ** 2).sum())(VECTOR)
    np.testing.assert_allclose(gradient, 2 * signs * (signs + 3) * VECTOR, rtol=1e-6)
    _, dot = jax.jvp(lambda x: run(signs, x, VECTOR), (VECTOR,), (VECTOR,))
    np.testing.assert_allclose(dot, signs * VECTOR, rtol=1e-6)
