"""Attention that every device computes for its own rows and heads."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxformer.errors import ConfigError
from jaxformer.functional import dot_product_attention, sharded_attention
from jaxformer.functional.attention import sharded
from jaxformer.functional.attention.kernels import splash
from jaxformer.functional.attention.program import attention_program
from tests.functional.attention.attention_cases import QUICK, assert_close, normal

B, T = 4, 128
AXES = {"batch_axes": ("data", "fsdp"), "head_axes": "tensor"}
SHAPES = (B, T, 4, 8), (B, T, 2, 8), (B, T, 2, 16), (B, T, 4, 16)
ids = np.sort(np.random.default_rng(0).integers(0, 3, (B, T), np.int32))
ROWS = {
    "query_segment_ids": ids,
    "key_value_segment_ids": ids,
    "query_seq_lengths": np.array([T, 20, 0, 7], np.int32),
    "key_value_seq_lengths": np.array([T, 0, 3, 9], np.int32),
}


@pytest.fixture(autouse=True)
def mesh():
    axes = (2, 2, 2), ("data", "fsdp", "tensor")
    mesh = jax.make_mesh(*axes, axis_types=(AxisType.Auto,) * 3)
    with jax.set_mesh(mesh):
        yield mesh


@pytest.fixture
def interpreted(monkeypatch):
    monkeypatch.setattr(splash, "_INTERPRET", True)
    splash._kernel.cache_clear()
    yield
    splash._kernel.cache_clear()


@functools.partial(jax.jit, compiler_options=QUICK, static_argnums=(0, 1))
def evaluate(attend, static, arrays, options):
    """Output, residual if it is returned, and gradients."""
    *inputs, cotangent = arrays
    results, pull = jax.vjp(functools.partial(attend, **options, **dict(static)), *inputs)
    if isinstance(results, tuple):
        return *results, *pull((cotangent, jnp.cos(results[1])))
    return results, *pull(cotangent)


def split_arrays(mesh):
    split = NamedSharding(mesh, PartitionSpec(("data", "fsdp"), None, "tensor"))
    return [jax.device_put(normal(*shape, seed=i), split) for i, shape in enumerate(SHAPES)]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("lengths", [ROWS, {"query_seq_lengths": 100, "key_value_seq_lengths": 9}])
def test_splash_on_a_mesh_equals_one_device(mesh, lengths):
    options = {name: length for name, length in lengths.items() if isinstance(length, np.ndarray)}
    numbers = {name: length for name, length in lengths.items() if name not in options}
    static = tuple({"is_causal": True, "query_offset": 0, **numbers}.items())
    attend = functools.partial(sharded_attention, **AXES)
    kernel = (*static, ("implementation", "splash"))
    got = evaluate(attend, kernel, split_arrays(mesh), options)
    arrays = [normal(*shape, seed=i) for i, shape in enumerate(SHAPES)]
    expected = evaluate(dot_product_attention, static, arrays, options)
    assert got[0].sharding.spec == PartitionSpec(("data", "fsdp"), None, "tensor")
    jax.tree.map(functools.partial(assert_close, tolerance=1e-5), got, expected)


@pytest.mark.usefixtures("interpreted")
def test_kernels_of_one_mesh_serve_another_with_equal_shapes():
    """The arrays of a kernel, which is built once, belong to no mesh."""
    x = normal(1, T, 2, 8)
    expected = dot_product_attention(x, x, x, is_causal=True)
    for size in (4, 2):
        devices = jax.devices()[:size]
        mesh = jax.make_mesh((size,), ("data",), axis_types=(AxisType.Auto,), devices=devices)
        attend = functools.partial(sharded_attention, batch_axes="data", implementation="splash")
        with jax.set_mesh(mesh):
            whole = np.repeat(x, size, axis=0)
            output = jax.jit(functools.partial(attend, is_causal=True))(whole, whole, whole)
        assert_close(output, np.repeat(expected, size, axis=0), 1e-5)


def test_residual_on_a_mesh_equals_that_of_one_device(mesh):
    attend = functools.partial(sharded_attention, **AXES, implementation="dense")
    static = tuple({"is_causal": True, "return_residual": True}.items())
    got = evaluate(attend, static, split_arrays(mesh), {})
    arrays = [normal(*shape, seed=i) for i, shape in enumerate(SHAPES)]
    expected = evaluate(dot_product_attention, static, arrays, {})
    assert got[1].sharding.spec == PartitionSpec(("data", "fsdp"), None, "tensor")
    jax.tree.map(functools.partial(assert_close, tolerance=1e-5), got, expected)


def test_each_device_computes_its_own_rows_and_heads(monkeypatch, mesh):
    seen = []

    def note(inputs):
        seen.append((inputs.query.shape, inputs.key.shape))
        return attention_program(inputs)

    monkeypatch.setattr(sharded, "attention_program", note)

    def shapes(q=SHAPES[0], k=SHAPES[1], **options):
        attend = functools.partial(sharded_attention, **AXES, **options)
        jax.eval_shape(attend, *[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (q, k, k)])
        return seen.pop()

    local, whole = ((1, T, 2, 8), (1, T, 1, 8)), SHAPES[:2]
    assert shapes() == shapes(query_seq_lengths=7, dropout_rate=0.0) == local
    assert shapes(query_seq_lengths=jnp.full(1, 7)) == local
    # What no kernel supports is left to jit.
    assert shapes(bias=jnp.zeros((T, T))) == shapes(mask=jnp.ones((T, T), bool)) == whole
    assert shapes(dropout_rate=0.5, dropout_rng=jax.random.key(0)) == whole
    assert shapes(query_offset=jnp.zeros(B, int), is_causal=True) == whole
    odd = ((B - 1, T, 4, 8), (B - 1, T, 2, 8)), ((B, T, 3, 8), (B, T, 1, 8))
    assert [shapes(*shapes_of_inputs) for shapes_of_inputs in odd] == list(odd)
    assert shapes((B, T, 4, 8), (B, T, 1, 8)) == ((B, T, 4, 8), (B, T, 1, 8))


def test_what_is_left_to_jit_keeps_its_arguments():
    query, key, value, _ = (normal(*shape, seed=i) for i, shape in enumerate(SHAPES))
    arguments = {"bias": normal(T, T), "mask": normal(T, T, seed=1) > 0, "softcap": 2.0}
    attend = jax.jit(
        functools.partial(sharded_attention, **AXES, **arguments, return_residual=True)
    )
    expected = dot_product_attention(query, key, value, **arguments, return_residual=True)
    got = attend(query, key, value)
    jax.tree.map(functools.partial(assert_close, tolerance=1e-5), got, expected)


def test_axes_that_the_mesh_lacks_are_named():
    x = jnp.ones((B, T, 2, 8))
    with pytest.raises(ConfigError, match="got 'rows', and the mesh has data, fsdp, tensor"):
        sharded_attention(x, x, x, batch_axes=("data", "rows"))
