"""What chunked attention promises beyond the contract: memory, skipped blocks, real sizes."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import functional as F
from tests.functional.attention import attention_cases as cases
from tests.functional.programs import called_by, shapes_of

# 2 rows of 3 blocks and a rest, where each block has several key heads.
LEADING, T, N, K, H = 2, 809, 6, 3, 8
LONG = 4096

EACH = pytest.mark.parametrize("implementation", cases.IMPLEMENTATIONS)
pytestmark = pytest.mark.usefixtures("real_blocks")


def gradients(attend, *arrays):
    output, pull = jax.vjp(attend, *arrays)
    return output, *pull(jnp.cos(output.astype(jnp.float32)).astype(output.dtype))


def by(implementation, **options):
    attend = functools.partial(F.dot_product_attention, implementation=implementation, **options)
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
        ({"local_window_size": (100, 30)}, {"bias": cases.normal(1, 1, T, T)}),
        (
            {"is_causal": True, "key_value_seq_lengths": 700, "query_seq_lengths": 790},
            {"query_offset": np.array([-300, 7]), "mask": cases.normal(T, T) > -1},
        ),
    ],
    ids=["causal", "window and bias", "lengths, offsets and mask"],
)
def test_chunked_equals_dense_in_real_blocks(static, arrays):
    shapes = (LEADING, T, N, H), (LEADING, T, K, H), (LEADING, T, K, H)
    inputs = [cases.normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    chunked, dense = (
        jax.jit(by(name, **static, **arrays))(*inputs) for name in ("chunked", "dense")
    )
    for got, expected in zip(chunked, dense, strict=True):
        cases.assert_close(got, expected, 2e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (jnp.bfloat16, 2.5e-3)])
def test_chunked_error_at_length_4096_is_within(dtype, tolerance):
    inputs = [cases.normal(LONG, 2, 64, seed=i).astype(dtype) for i in range(3)]
    attend = functools.partial(F.dot_product_attention, is_causal=True, implementation="chunked")
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


@pytest.mark.parametrize(
    "bias",
    [F.AlibiBias(F.alibi_slopes(2)), F.RelativeBias(cases.normal(32, 2), bidirectional=False)],
    ids=type,
)
def test_chunked_memory_of_a_position_bias_is_that_of_a_block(bias):
    """An array of it would take 2 GiB, and its gradient as much."""
    shape = jax.ShapeDtypeStruct((1, 16_384, 2, 64), jnp.float32)

    def attend(query, key, value, bias):
        return F.dot_product_attention(
            query, key, value, bias, is_causal=True, implementation="chunked"
        )

    compiled = jax.jit(functools.partial(gradients, attend)).lower(*[shape] * 3, bias).compile()
    took = compiled.memory_analysis().temp_size_in_bytes
    print(f"temporary memory at T = 16,384 with {type(bias).__name__}: {took:,} bytes")
    block = 4 * 128 * 16_384  # of the bias, float32 `[t, S]`, and its gradient
    assert took <= cost("chunked", 16_384, is_causal=True) + 2.5 * block


@pytest.mark.parametrize(
    ("options", "most_bytes"),  # for each number of the query
    [
        ({"query_offset": np.array([0])}, math.inf),  # traced, so that there is one loop to compile
        ({"local_window_size": 63}, 100),
    ],
)
def test_chunked_memory_grows_with_the_length_not_its_square(options, most_bytes):
    short, long = (cost("chunked", n, is_causal=True, **options) for n in (8192, 32_768))
    assert long <= 4.5 * short
    assert long <= most_bytes * 32_768 * 2 * 64


def test_chunked_takes_lengths_and_offsets_of_narrow_dtypes():
    """Whose sums with a position beyond 127 would wrap."""
    query = cases.normal(1, 700, 1, 8)
    attend = jax.jit(by("chunked", is_causal=True))
    for dtype in (np.int8, np.uint8):
        got = jax.jit(by("chunked", is_causal=True, query_offset=np.zeros(1, dtype)))(*[query] * 3)
        for result, expected in zip(got, attend(*[query] * 3), strict=True):
            cases.assert_close(result, expected, 1e-6)
    poisoned = np.array(query)
    poisoned[:, 250:] = np.nan
    lengths = {"query_seq_lengths": np.array([200], np.uint8)}
    output = F.dot_product_attention(
        query, poisoned, poisoned, is_causal=True, implementation="chunked", **lengths
    )
    assert np.isfinite(output).all()


@pytest.mark.parametrize("empty", ["batch", "T", "N", "Hv", "S"])
def test_chunked_of_an_empty_axis_is_empty_or_zero(empty):
    sizes = {"batch": 2, "T": 5, "S": 7, "N": 6, "H": 3, "Hv": 4} | {empty: 0}
    batch, queries, keys, heads, width, value_width = sizes.values()
    query = jnp.ones((batch, queries, heads, width))
    key, value = (
        jnp.ones((batch, keys, max(heads, 1), width)),
        jnp.ones((batch, keys, max(heads, 1), value_width)),
    )
    output, *gradients = by("chunked")(query, key, value)
    assert output.shape == (batch, queries, heads, value_width)
    assert not output.any()
    assert [g.shape for g in gradients] == [query.shape, key.shape, value.shape]


def test_chunked_called_again_does_not_compile_again(caplog):
    query = jnp.asarray(cases.normal(1, 300, 2, 8))
    attend = functools.partial(F.dot_product_attention, is_causal=True, implementation="chunked")
    gradient = jax.grad(lambda query: attend(query, query, query).sum())

    def compiled():
        caplog.clear()
        with jax.log_compiles(True):
            attend(query, query, query), gradient(query)
        return [text for text in caplog.messages if text.startswith("Compiling")]

    assert compiled()
    assert not compiled()


def test_chunked_bias_that_all_heads_share_is_rounded_once():
    """Its gradient is summed over blocks and heads in float32."""
    query, key, value = (cases.normal(1, 1024, 4, 8, seed=i) for i in range(3))
    bias = cases.normal(1, 1, 1, 1024)

    def gradient(implementation, bias):
        def loss(bias):
            output = F.dot_product_attention(query, key, value, bias, implementation=implementation)
            return (output * cases.normal(*output.shape, seed=7)).sum()

        return np.asarray(jax.jit(jax.grad(loss))(bias), np.float64)

    expected = gradient("dense", bias.astype(jnp.bfloat16).astype(np.float32))
    error = np.abs(gradient("chunked", bias.astype(jnp.bfloat16)) - expected)
    assert (error <= np.abs(expected) * 2**-8 + 1e-5 * np.abs(expected).max()).all()


@EACH
def test_nan_in_a_bias_is_not_taken_for_a_hidden_key(implementation):
    inputs = [cases.normal(1, 5, 1, 4, seed=i) for i in range(3)]
    bias = np.full((5, 5), np.nan, np.float32)
    output = F.dot_product_attention(*inputs, bias, implementation=implementation)
    assert np.isnan(output).all()


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


def traced(implementation="chunked", shape=(1, LONG, 2, 64), **options):
    """The program of attention and its gradients."""
    shape = jax.ShapeDtypeStruct(shape, jnp.float32)
    return jax.make_jaxpr(by(implementation, **options))(shape, shape, shape).jaxpr


def largest(jaxpr):
    """Size of the largest array of a program."""
    return max(map(math.prod, shapes_of(jaxpr, set())))


@pytest.mark.parametrize("options", STRUCTURES.values(), ids=STRUCTURES)
def test_chunked_draws_no_mask_of_all_queries_and_keys(options):
    assert largest(traced(**options)) <= LONG * LONG / 8  # a block of 512 queries
    assert largest(traced("dense", **options)) >= LONG * LONG


def primitives(jaxpr):
    """Names of the operations of a program, loops and calls included."""
    inner = [primitives(inner) for equation in jaxpr.eqns for inner in called_by(equation)]
    return {equation.primitive.name for equation in jaxpr.eqns}.union(*inner)


def test_chunked_of_few_blocks_slices_at_fixed_places():
    # The gradient of a gather writes all keys anew for each block; that of a slice is a pad.
    used = primitives(traced(is_causal=True))
    assert "slice" in used and not {"dynamic_slice", "gather"} & used
    assert "gather" in primitives(traced(local_window_size=64))  # too many blocks to compile each


@pytest.mark.parametrize("shape", [(16, 256, 6, 1), (8, 512, 8, 1), (1, 1024, 8, 1)], ids=str)
def test_chunked_weights_of_the_heads_computed_at_once_fit_a_cache(shape):
    assert largest(traced(shape=shape, is_causal=True)) == 2**19  # 2 MiB


def products(jaxpr, times=1):
    """Counts the multiplications in matrix products, loops included."""
    total = 0
    for equation in jaxpr.eqns:
        repeats = times * equation.params.get("length", 1)
        if equation.primitive.name == "dot_general":
            ((contracted, _), _), out = equation.params["dimension_numbers"], equation.outvars[0]
            inner = np.prod([equation.invars[0].aval.shape[axis] for axis in contracted])
            total += times * inner * out.aval.size
        for inner in called_by(equation):
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
    assert 0 < products(traced(**options)) <= share * products(traced())


def test_key_of_dropout_may_be_a_raw_one_of_numpy():
    query = jnp.ones((1, 3, 2, 5))
    run = by("chunked", dropout_rate=0.5, dropout_rng=np.array([0, 7], np.uint32))
    wrapped = by("chunked", dropout_rate=0.5, dropout_rng=jnp.array([0, 7], jnp.uint32))
    np.testing.assert_array_equal(run(query, query, query), wrapped(query, query, query))
