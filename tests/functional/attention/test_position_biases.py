"""Position biases as values: equal to the array that they stand for, in every implementation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import functional as F
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.positions.biases import relative_buckets
from tests.functional.attention import attention_cases as cases

N, BUCKETS, FARTHEST = 6, 8, 7
PARAMS = F.MultiHeadParams(*(cases.normal(12, 12, seed=i) for i in range(4)))
EACH = pytest.mark.parametrize("implementation", cases.IMPLEMENTATIONS)
ALIBI, RELATIVE, BOTH_WAYS = "alibi", "relative", "relative, both ways"
KINDS = pytest.mark.parametrize("kind", [ALIBI, RELATIVE, BOTH_WAYS])


def numbers_of(kind, dtype=np.float32):
    """Slopes or a table, of which each head and bucket has its own."""
    return cases.normal(*((N,) if kind == ALIBI else (BUCKETS, N)), seed=11).astype(dtype)


def value_of(kind, numbers):
    if kind == ALIBI:
        return F.AlibiBias(numbers)
    return F.RelativeBias(numbers, bidirectional=kind == BOTH_WAYS, max_distance=FARTHEST)


def array_of(kind, numbers, num_queries, num_keys, offset):
    """`[..., N, T, S]` by its definition, element by element."""
    offset = np.asarray(offset)[..., None, None]
    distance = np.arange(num_keys)[None] - np.arange(num_queries)[:, None] - offset
    if kind == ALIBI:
        distance = np.abs(distance)[..., None, :, :].astype(numbers.dtype)
        slopes = numbers.reshape((1,) * (distance.ndim - 3) + (-1, 1, 1))
        return -slopes * distance
    buckets = relative_buckets(
        distance, num_buckets=BUCKETS, max_distance=FARTHEST, bidirectional=kind == BOTH_WAYS
    )
    return jnp.moveaxis(numbers[buckets], -1, -3)


def evaluate(inputs, numbers, bias_of, options):
    """Output and residual, and the gradients of a function of both."""

    def loss(inputs, numbers):
        output, residual = F.dot_product_attention(
            **inputs, bias=bias_of(numbers), return_residual=True, **options
        )
        finite = jnp.where(residual == -jnp.inf, 0, residual)
        return (output * jnp.cos(output)).sum() + jnp.sin(finite).sum(), (output, residual)

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True), compiler_options=cases.QUICK)
    gradients, results = gradient(inputs, numbers)
    return jax.tree.leaves((results, gradients))


HIDING = np.where(cases.normal(2, 1, 5, 7, seed=4) > 1, -np.inf, cases.normal(2, 1, 5, 7, seed=5))
OPTIONS = {
    "causal": (cases.GROUPED, {"is_causal": True, "query_offset": 2}),
    "an offset per row": (cases.GROUPED, {"query_offset": np.array([-3, 4])}),
    "causal, an offset per row": (
        cases.GROUPED,
        {"is_causal": True, "query_offset": np.array([2, 4])},
    ),
    "no offset": (cases.SQUARE, {"local_window_size": (3, 2)}),
    "lengths, soft cap": (
        cases.SQUARE,
        {"query_seq_lengths": np.array([5, 7]), "key_value_seq_lengths": 4, "softcap": 2.0},
    ),
    "an array in addition": (
        cases.GROUPED,
        {"query_offset": 1, "array": HIDING.astype(np.float32)},
    ),
}


@pytest.mark.parametrize(
    ("case", "kind"),
    [*((case, kind) for case in OPTIONS for kind in (ALIBI, RELATIVE)), ("no offset", BOTH_WAYS)],
)
def test_value_equals_its_array(case, kind):
    sizes, options = OPTIONS[case]
    options = {**options}
    array, inputs, numbers = options.pop("array", None), cases.inputs_of(sizes), numbers_of(kind)
    offset = options.get("query_offset", 0)

    def as_array(numbers):
        whole = array_of(kind, numbers, sizes.T, sizes.S, offset)
        whole = jnp.broadcast_to(whole, sizes.weights)
        return whole if array is None else whole + array

    def as_value(numbers):
        value = value_of(kind, numbers)
        return value if array is None else (array, value)

    expected = evaluate(inputs, numbers, as_array, {**options, "implementation": "dense"})
    for name in cases.IMPLEMENTATIONS:
        results = evaluate(inputs, numbers, as_value, {**options, "implementation": name})
        for result, reference in zip(results, expected, strict=True):
            hidden = np.isneginf(reference)
            np.testing.assert_array_equal(np.isneginf(result), hidden)
            cases.assert_close(np.where(hidden, 0, result), np.where(hidden, 0, reference), 1e-5)
    assert np.abs(expected[-1]).max() > 1e-2  # the gradient of slopes or table


@pytest.mark.parametrize("kind", [ALIBI, RELATIVE])
@EACH
def test_value_in_float64_is_as_exact(kind, implementation):
    with jax.enable_x64(True):
        inputs, numbers = cases.inputs_of(cases.GROUPED, np.float64), numbers_of(kind, np.float64)
        array = functools.partial(array_of, kind, num_queries=5, num_keys=7, offset=2)
        options = {"query_offset": 2, "implementation": implementation}
        expected = evaluate(inputs, numbers, lambda n: array(n)[None], options)
        results = evaluate(inputs, numbers, functools.partial(value_of, kind), options)
        for result, value in zip(results, expected, strict=True):
            assert result.dtype == np.float64
            cases.assert_close(result, value, 1e-14)


@pytest.mark.parametrize("kind", [ALIBI, RELATIVE])
@EACH
def test_dropout_is_that_of_an_array(kind, implementation):
    inputs, numbers = cases.inputs_of(cases.SQUARE), numbers_of(kind)
    attend = jax.jit(
        functools.partial(
            F.dot_product_attention,
            **inputs,
            dropout_rate=0.3,
            dropout_rng=jax.random.key(1),
            implementation=implementation,
        )  # fmt: skip
    )
    expected = attend(bias=array_of(kind, numbers, 7, 7, 0)[None])
    cases.assert_close(attend(bias=value_of(kind, numbers)), expected, 1e-6)


@EACH
def test_gradient_of_a_bfloat16_table_is_summed_in_float32(implementation):
    shape = (1, 300, N, 4)
    query, key, value = (cases.normal(*shape, seed=i) for i in range(3))
    table = numbers_of(RELATIVE).astype(jnp.bfloat16)

    def gradient(implementation, table):
        def loss(table):
            bias = value_of(RELATIVE, table)
            output = F.dot_product_attention(query, key, value, bias, implementation=implementation)
            return (output * cases.normal(*output.shape, seed=7)).sum()

        return np.asarray(jax.jit(jax.grad(loss))(table), np.float64)

    expected = gradient("dense", table.astype(np.float32))
    error = np.abs(gradient(implementation, table) - expected)
    assert (error <= np.abs(expected) * 2**-8 + 1e-5 * np.abs(expected).max()).all()


@pytest.mark.essential
@KINDS
def test_weights_are_those_of_an_array(kind):
    inputs, numbers = cases.inputs_of(cases.GROUPED), numbers_of(kind)
    query, key, offset = inputs["query"], inputs["key"], np.array([2, 4])
    array = array_of(kind, numbers, 5, 7, offset)
    for stage in ("capped", "biased", "softmax"):
        options = {"stage": stage, "is_causal": True, "query_offset": offset, "softcap": 3.0}
        got = F.attention_weights(query, key, value_of(kind, numbers), **options)
        cases.assert_close(got, F.attention_weights(query, key, array, **options), 1e-6)


def test_values_hide_no_key():
    inputs = cases.inputs_of(cases.SQUARE)
    mask = F.attention_mask(inputs["query"], inputs["key"], bias=F.AlibiBias(numbers_of(ALIBI)))
    assert mask is None


@KINDS
def test_values_are_pytrees_that_vmap_maps(kind):
    inputs = cases.inputs_of(cases.SQUARE)
    numbers = np.stack([numbers_of(kind), 2 * numbers_of(kind)])
    attend = functools.partial(F.dot_product_attention, **inputs)
    mapped = jax.vmap(lambda bias: attend(bias=bias))(value_of(kind, numbers))
    for result, row in zip(mapped, numbers, strict=True):
        cases.assert_close(result, attend(bias=value_of(kind, row)), 1e-6)


def test_choice_takes_values_and_shapes_of_them():
    x = jax.ShapeDtypeStruct((1, 4096, N, 64), jnp.float32)
    slopes = jax.ShapeDtypeStruct((N,), jnp.float32)
    for bias in (F.AlibiBias(slopes), (np.zeros((1, 1, 1, 4096), np.float32), F.AlibiBias(slopes))):
        choice = F.attention_implementation(x, x, x, bias, is_causal=True, platform="cpu")
        assert choice.name == "chunked"
    on_tpu = F.attention_implementation(
        x, x, x, F.AlibiBias(slopes), is_causal=True, platform="tpu"
    )
    assert on_tpu.name == "dense"
    for name in ("cudnn", "splash"):
        with pytest.raises(ConfigError, match=f"implementation='{name}' cannot serve"):
            inputs = cases.inputs_of(cases.SQUARE, np.float32)
            attend = functools.partial(F.dot_product_attention, **inputs, implementation=name)
            attend(bias=F.AlibiBias(numbers_of(ALIBI)))


def test_values_go_with_a_cache_whose_rows_differ():
    """Without causality too, where only the bias needs the position of the first query."""
    x, bias = cases.normal(2, 5, 12, seed=9), F.AlibiBias(numbers_of(ALIBI))
    layer = functools.partial(F.multi_head_attention, PARAMS, num_heads=N)
    mask, lengths = np.tri(5, 8, dtype=bool)[None, None], np.array([1, 3])
    expected = layer(x, bias=bias, is_causal=True).output
    cache = F.KVCache.init(2, 8, num_kv_heads=N, head_dim=2)
    _, cache, _ = layer(x[:, :3], bias=bias, mask=mask[:, :, :3], cache=cache, num_tokens=lengths)
    later = np.stack([x[0, 1:3], x[1, 3:5]])
    masks = np.stack([mask[0, :, 1:3], mask[0, :, 3:5]])
    got = layer(later, bias=bias, mask=masks, cache=cache).output
    cases.assert_close(got, np.stack([expected[0, 1:3], expected[1, 3:5]]), 1e-5)


def test_attention_functions_of_ones_own_get_an_array():
    x, value, biases = cases.normal(2, 5, 12, seed=9), F.AlibiBias(numbers_of(ALIBI)), []
    layer = functools.partial(F.multi_head_attention, PARAMS, x, num_heads=N)

    def attend(query, key, value, bias):  # takes no query_offset
        biases.append(bias)
        return F.dot_product_attention(query, key, value, bias)

    expected = layer(bias=value).output
    cases.assert_close(layer(bias=value, attention_fn=attend).output, expected, 1e-6)
    np.testing.assert_allclose(biases[0], array_of(ALIBI, value.slopes, 5, 5, 0)[None], rtol=1e-6)
    array = cases.normal(1, 1, 5, 5)
    output = layer(bias=(array, value), attention_fn=attend).output
    cases.assert_close(output, layer(bias=(array, value)).output, 1e-6)
    cache = F.KVCache.init(2, 8, num_kv_heads=N, head_dim=2)
    mask = np.tri(5, 8, dtype=bool)[None, None]

    def masked(query, key, value, bias, mask, query_seq_lengths=None, key_value_seq_lengths=None):
        return F.dot_product_attention(query, key, value, bias, mask)

    got = layer(bias=value, mask=mask, cache=cache, attention_fn=masked).output
    cases.assert_close(got, layer(bias=value, is_causal=True).output, 1e-5)


@pytest.mark.parametrize("function", [F.dot_product_attention, F.sharded_attention])
def test_partial_of_our_functions_gets_the_value(function):
    """A block of chunked attention is as far as the bias is computed."""
    chunked = functools.partial(function, implementation="chunked")
    layer = functools.partial(
        F.multi_head_attention, PARAMS, num_heads=N, bias=F.AlibiBias(numbers_of(ALIBI))
    )
    x = cases.normal(2, 5, 12, seed=9)
    program = str(jax.make_jaxpr(functools.partial(layer, attention_fn=chunked))(x))
    assert "5,5]" not in program
    assert "5,5]" in str(jax.make_jaxpr(functools.partial(layer, implementation="dense"))(x))


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        (F.AlibiBias(np.ones(5)), ["slopes of AlibiBias must be [N=6]", "(5,)"]),
        (F.AlibiBias(np.ones(6, int)), ["slopes of AlibiBias must be floating"]),
        (F.RelativeBias(np.ones((6, 8))), ["table of RelativeBias must be [num_buckets, N=6]"]),
        ((F.AlibiBias(np.ones(6)), np.ones((5, 7))), ["(array, AlibiBias or RelativeBias)"]),
        ((F.AlibiBias(np.ones(6)),) * 2, ["got (AlibiBias, AlibiBias)"]),
        (F.AlibiBias(np.ones(6)), ["position biases need query_offset", "T=5 and S=7"]),
        (F.RelativeBias(np.ones((7, 6), np.float32)), ["num_buckets must be even"]),
    ],
)
def test_errors_name_the_field_and_the_remedy(bias, words):
    inputs = cases.inputs_of(cases.GROUPED)
    options = {"query_offset": 2} if isinstance(bias, F.RelativeBias) else {}
    with pytest.raises((ShapeError, ConfigError)) as caught:
        F.dot_product_attention(**inputs, bias=bias, **options)
    for word in words:
        assert word in str(caught.value)
