"""Attention against a float64 reference, and its numerics."""

import functools
import inspect

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import ConfigError
from jaxformer.functional import dot_product_attention
from tests.functional import oracle
from tests.functional.attention import attention_cases as cases

EACH = pytest.mark.parametrize("implementation", cases.IMPLEMENTATIONS)


@pytest.mark.essential
@EACH
@pytest.mark.parametrize("case", cases.CASES.values(), ids=cases.CASES)
def test_attention_and_its_gradient_equal_the_reference(case, implementation):
    sizes, options, static = case
    cases.assert_equals_the_reference(sizes, options, static | {"implementation": implementation})


@EACH
def test_attention_and_its_gradient_equal_the_reference_in_float64(implementation):
    with jax.enable_x64(True):
        sizes, options, static = cases.CASES["everything"]
        static = static | {"implementation": implementation}
        inputs = cases.inputs_of(sizes, np.float64)
        options = options | {"bias": options["bias"].astype(np.float64)}
        cases.assert_equals_the_reference(
            sizes, options, static, inputs, forward=1e-14, backward=1e-11
        )


@pytest.mark.essential
@pytest.mark.parametrize(
    ("sizes", "static", "dtype"),
    [
        (cases.GROUPED, {"is_causal": True}, np.float32),
        (cases.GROUPED, {"local_window_size": (2, 1)}, np.float32),
        (cases.NESTED, {"local_window_size": (None, 3), "softcap": 3.0}, np.float32),
        (cases.PLAIN, {"is_causal": True, "local_window_size": (3, 0)}, np.float32),
        (cases.GROUPED, {"is_causal": True}, np.float16),
        (cases.NESTED, {"local_window_size": (2, 1)}, jnp.bfloat16),
    ],
)  # fmt: skip
@EACH
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=20, deadline=None)
def test_attention_equals_the_reference_for_any_values(sizes, static, dtype, implementation, data):
    def integers(low, high, *shape):
        return data.draw(hnp.arrays(np.int32, shape, elements=st.integers(low, high)))

    leading, queries, keys = sizes.leading, sizes.T, sizes.S
    options = {
        "mask": data.draw(hnp.arrays(bool, sizes.weights)),
        "bias": cases.hiding(
            cases.normal(*sizes.weights), data.draw(hnp.arrays(bool, (queries, keys)))
        ),
        "query_offset": integers(-queries, keys, *leading),
        "query_seq_lengths": integers(0, queries, *leading),
        "key_value_seq_lengths": integers(0, keys, *leading),
        "query_segment_ids": integers(0, 1, *leading, queries),
        "key_value_segment_ids": integers(0, 1, *leading, keys),
    }
    inputs = cases.inputs_of(sizes, dtype, seed=data.draw(st.integers(0, 1000)))
    static = static | {"implementation": implementation}
    # In 16 bits, one rounding of the largest entry, and of each gradient.
    rounding = float(jnp.finfo(dtype).eps)
    forward, backward = (max(tolerance, rounding) for tolerance in (1e-6, 1e-5))
    cases.assert_equals_the_reference(
        sizes, options, static, inputs, forward, backward, optimized=True
    )


def test_attention_takes_the_arguments_of_jax_nn_in_their_order():
    parameters = inspect.signature(dot_product_attention).parameters
    names_of_jax = list(inspect.signature(jax.nn.dot_product_attention).parameters)
    assert [name for name in parameters if name in names_of_jax] == names_of_jax
    positional = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == ["query", "key", "value", "bias", "mask"]


DIAGONAL = np.eye(7, dtype=bool)
AGREEING = {
    "nothing": {},
    "causal": {"is_causal": True},
    "an int window": {"local_window_size": 2},
    "a window": {"local_window_size": (1, 3), "is_causal": True},
    "lengths": {
        "query_seq_lengths": np.array([4, 7], np.int32),
        "key_value_seq_lengths": np.array([5, 3], np.int32),
    },
    "bias and mask": {
        "bias": cases.normal(1, 6, 7, 7),
        "mask": cases.bits(2, 1, 7, 7) | DIAGONAL,
        "scale": 0.2,
    },
}


@pytest.mark.parametrize("options", AGREEING.values(), ids=AGREEING)
def test_attention_agrees_with_jax_nn_where_both_are_defined(options):
    @functools.partial(jax.jit, compiler_options=cases.QUICK)
    def both(inputs):
        return (
            dot_product_attention(**inputs, **options),
            jax.nn.dot_product_attention(**inputs, **options),
        )

    output, expected = both({n: jnp.asarray(a) for n, a in cases.inputs_of(cases.SQUARE).items()})
    cases.assert_close(output, expected, 1e-6)


# Numerics.


@pytest.mark.essential
@EACH
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_attention_in_low_precision_rounds_only_its_results(dtype, implementation):
    options, static = {"bias": cases.normal(5, 7)}, {"implementation": implementation}
    inputs = cases.inputs_of(cases.GROUPED, dtype)
    exact = {n: np.asarray(a, np.float32) for n, a in inputs.items()}
    cotangent = cases.cotangent_of(cases.GROUPED, dtype)
    _, output, gradients = cases.run(
        cases.GROUPED, options, static, inputs, cotangent, optimized=True
    )
    _, _, exact_gradients = cases.run(
        cases.GROUPED, options, static, exact, cotangent.astype(np.float32)
    )

    def assert_rounded_once(got, expected, tolerance):
        assert got.dtype == dtype
        expected = np.asarray(expected, np.float64)
        error = np.abs(got.astype(np.float64) - expected)
        rounding = np.abs(expected.astype(dtype).astype(np.float64) - expected)
        assert (error <= rounding + tolerance * np.abs(expected).max()).all()

    assert_rounded_once(output, oracle.attention(**exact, **options), 1e-6)
    for name in inputs:
        assert_rounded_once(gradients[name], exact_gradients[name], 1e-5)
    assert gradients["bias"].dtype == np.float32
    cases.assert_close(gradients["bias"], exact_gradients["bias"], 1e-5)


LARGE_SCORES = {
    "beyond float16": (np.float16, lambda array: array * 200, 1e-3, 1e-3),
    "in the thousands": (np.float32, np.round, 1000.0, 1e-6),
}


@EACH
@pytest.mark.parametrize("case", LARGE_SCORES.values(), ids=LARGE_SCORES)
def test_attention_is_exact_for_large_scores(case, implementation):
    dtype, enlarge, scale, tolerance = case
    inputs = cases.inputs_of(cases.GROUPED, dtype)
    inputs |= {name: enlarge(inputs[name]) for name in ("query", "key")}
    static = {"scale": scale, "implementation": implementation}
    _, output, gradients = cases.run(cases.GROUPED, {}, static, inputs)
    cases.assert_close(output, oracle.attention(**inputs, scale=scale), tolerance)
    assert all(np.isfinite(g).all() for g in gradients.values())


@EACH
@pytest.mark.parametrize("lowest", [-1e4, -1e30, np.finfo(np.float32).min])
def test_attention_bias_hides_a_key_only_at_minus_infinity(lowest, implementation):
    bias = np.zeros((1, 1, 5, 7), np.float32)
    bias[..., 2, :] = lowest
    inputs = cases.inputs_of(cases.GROUPED)
    _, output, gradients = cases.run(
        cases.GROUPED, {"bias": bias}, {"implementation": implementation}, inputs
    )
    if lowest < -1e29:  # where scores of the query and the keys are lost
        mean = inputs["value"].mean(axis=-3).repeat(2, axis=-2)
        cases.assert_close(output[:, 2], mean, 1e-6)
    _, _, expected = cases.run(cases.GROUPED, {"bias": bias}, {"implementation": "dense"}, inputs)
    for name, gradient in gradients.items():
        cases.assert_close(gradient, expected[name], 1e-5)


@EACH
def test_scale_may_be_an_array_and_learned(implementation):
    inputs = cases.inputs_of(cases.GROUPED)
    attend = functools.partial(dot_product_attention, **inputs, implementation=implementation)
    for scale in (np.float32(0.3), np.array([0.3], np.float32), jnp.float32(0.3)):
        cases.assert_same_bits(attend(scale=scale), attend(scale=float(np.float32(0.3))))

    def total(scale):
        return attend(scale=scale).sum()

    for scale in (jnp.float32(0.3), jnp.full(1, 0.3)):
        value, slope = jax.jit(jax.value_and_grad(total))(scale)
        cases.assert_close(value, total(0.3), 1e-6)
        step = 1e-2
        cases.assert_close(slope.sum(), (total(0.3 + step) - total(0.3 - step)) / (2 * step), 1e-3)
    for attend_total in (total, jax.jit(total)):
        cases.assert_close(attend_total(jnp.int32(2)), total(2.0), 1e-6)
    with pytest.raises(ConfigError, match=r"an array of one, .*float32\[2\]"):
        jax.jit(total)(jnp.ones(2))
