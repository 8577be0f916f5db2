"""What chunked attention promises beyond the contract: memory, skipped blocks, real sizes."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core

from jaxformer.functional import dot_product_attention
from tests.functional.attention_cases import assert_close, normal

# 2 rows of 3 blocks and a rest, where each block has several key heads.
LEADING, T, N, K, H = 2, 809, 6, 3, 8
LONG = 4096

pytestmark = pytest.mark.usefixtures("real_blocks")


def gradients(attend, *arrays):
    output, pull = jax.vjp(attend, *arrays)
    return output, *pull(jnp.cos(output.astype(jnp.float32)).astype(output.dtype))


def by(implementation, **options):
    attend = functools.partial(dot_product_attention, implementation=implementation, **options)
    return functools.partial(gradients, attend)


def exact(query, key, value, is_causal=False, window=(None, None)):
    """Attention of `[T, N, H]` with equal heads, in float64 NumPy, one row of weights at a time."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    result = np.zeros((*query.shape[:2], value.shape[-1]))
    for t in range(len(query)):
        first = 0 if window[0] is None else max(0, t - window[0])
        last = t + 1 if is_causal else len(key)
        scores = np.einsum("nh,snh->ns", query[t], key[first:last]) / np.sqrt(query.shape[-1])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        result[t] = np.einsum("ns,snv->nv", weights, value[first:last])
    return result


@pytest.mark.parametrize(
    ("static", "arrays"),
    [
        ({"is_causal": True}, {}),
        ({"local_window_size": (100, 30)}, {"bias": normal(1, 1, T, T)}),
        (
            {"is_causal": True, "key_value_seq_lengths": 700, "query_seq_lengths": 790},
            {"query_offset": np.array([-300, 7]), "mask": normal(T, T) > -1},
        ),
    ],
    ids=["causal", "window and bias", "lengths, offsets and mask"],
)
def test_chunked_equals_dense_in_real_blocks(static, arrays):
    shapes = (LEADING, T, N, H), (LEADING, T, K, H), (LEADING, T, K, H)
    inputs = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    chunked, dense = (
        jax.jit(by(name, **static, **arrays))(*inputs) for name in ("chunked", "dense")
    )
    for got, expected in zip(chunked, dense, strict=True):
        assert_close(got, expected, 2e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (jnp.bfloat16, 2.5e-3)])
def test_chunked_error_at_length_4096_is_within(dtype, tolerance):
    inputs = [normal(LONG, 2, 64, seed=i).astype(dtype) for i in range(3)]
    attend = functools.partial(dot_product_attention, is_causal=True, implementation="chunked")
    got = np.asarray(jax.jit(attend)(*inputs)).astype(np.float64)
    expected = exact(*inputs, is_causal=True)
    error = np.sqrt(np.square(got - expected).mean() / np.square(expected).mean())
    print(f"{dtype.__name__}: relative RMS error {error:.2e} at T = {LONG}")
    assert error <= tolerance


def cost(implementation, num_tokens, key=None, **options):
    shape = jax.ShapeDtypeStruct((1, num_tokens, 2, 64), jnp.float32)
    compiled = jax.jit(by(implementation, **options)).lower(shape, shape, shape).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_chunked_takes_a_sixteenth_of_the_memory_at_length_16384():
    chunked, dense = (cost(name, 16_384, is_causal=True) for name in ("chunked", "dense"))
    print(f"temporary memory at T = 16,384: chunked {chunked:,} bytes, dense {dense:,}")
    assert chunked <= dense / 16


def test_chunked_memory_grows_with_the_length_not_its_square():
    # A traced offset, so that there is one loop to compile.
    offset = {"query_offset": np.array([0])}
    short, long = (cost("chunked", n, is_causal=True, **offset) for n in (8192, 32_768))
    assert long <= 4.5 * short


def shapes_of(jaxpr, shapes):
    """Collects the shapes of everything that a program computes, calls included."""
    for equation in jaxpr.eqns:
        shapes |= {variable.aval.shape for variable in equation.outvars}
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: isinstance(x, core.ClosedJaxpr)
        ):
            if isinstance(inner, core.ClosedJaxpr):
                shapes_of(inner.jaxpr, shapes)
            elif isinstance(inner, core.Jaxpr):
                shapes_of(inner, shapes)
    return shapes


STRUCTURES = {
    "causal": {"is_causal": True},
    "causal, an offset a row": {"is_causal": True, "query_offset": np.array([3])},
    "window": {"local_window_size": (50, 20)},
    "lengths": {
        "query_seq_lengths": np.array([LONG - 3]),
        "key_value_seq_lengths": np.array([LONG - 7]),
    },
    "segments": {
        "query_segment_ids": np.arange(LONG)[None] // 1000,
        "key_value_segment_ids": np.arange(LONG)[None] // 1000,
    },
}


@pytest.mark.parametrize("options", STRUCTURES.values(), ids=STRUCTURES)
def test_chunked_draws_no_mask_of_all_queries_and_keys(options):
    shape = jax.ShapeDtypeStruct((1, LONG, 2, 64), jnp.float32)
    shapes = shapes_of(jax.make_jaxpr(by("chunked", **options))(shape, shape, shape).jaxpr, set())
    assert max(map(math.prod, shapes)) < LONG * LONG / 8
    dense = shapes_of(jax.make_jaxpr(by("dense", **options))(shape, shape, shape).jaxpr, set())
    assert max(map(math.prod, dense)) >= LONG * LONG


def products(jaxpr, times=1):
    """Counts the multiplications in matrix products, loops included."""
    total = 0
    for equation in jaxpr.eqns:
        repeats = times * equation.params.get("length", 1)
        if equation.primitive.name == "dot_general":
            ((contracted, _), _), out = equation.params["dimension_numbers"], equation.outvars[0]
            inner = np.prod([equation.invars[0].aval.shape[axis] for axis in contracted])
            total += times * inner * out.aval.size
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: isinstance(x, core.ClosedJaxpr)
        ):
            if isinstance(inner, core.ClosedJaxpr):
                total += products(inner.jaxpr, repeats)
            elif isinstance(inner, core.Jaxpr):
                total += products(inner, repeats)
    return total


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({"is_causal": True}, 0.57),
        ({"local_window_size": 64}, 0.11),
        ({"is_causal": True, "local_window_size": (64, None)}, 0.09),
        ({"key_value_seq_lengths": LONG // 4}, 0.25),
        ({"query_seq_lengths": LONG // 4}, 0.25),
        ({"is_causal": True, "query_offset": -LONG // 2}, 0.2),
    ],
    ids=str,
)
def test_chunked_skips_what_is_hidden(options, share):
    shape = jax.ShapeDtypeStruct((1, LONG, 2, 64), jnp.float32)

    def count(**options):
        program = jax.make_jaxpr(functools.partial(by("chunked", **options)))(shape, shape, shape)
        return products(program.jaxpr)

    assert 0 < count(**options) <= share * count()
