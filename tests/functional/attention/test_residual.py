"""The log-sum-exp that attention returns with return_residual."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.functional import dot_product_attention
from tests.functional import oracle
from tests.functional.attention import attention_cases as cases

EACH = pytest.mark.parametrize("implementation", cases.IMPLEMENTATIONS)


def compiled(implementation, **static):
    def attend(inputs, **options):
        return dot_product_attention(**inputs, **options, **static, implementation=implementation)

    return jax.jit(attend, compiler_options=cases.QUICK)


def expected_residual(inputs, options):
    """float64 `[..., T, N]`, from the reference's scores."""
    arrays = {name: array for name, array in inputs.items() if name != "value"}
    scores = oracle.attention_weights(**arrays, **options, stage="masked")
    largest = scores.max(axis=-1, initial=-np.inf, keepdims=True)
    largest = np.where(largest == -np.inf, 0, largest)
    with np.errstate(divide="ignore"):
        residual = np.log(np.exp(scores - largest).sum(axis=-1)) + largest[..., 0]
    return np.swapaxes(residual, -1, -2)


def cotangents_of(sizes, residual):
    """Of the output, and of the residual where it is finite."""
    rows = (*sizes.leading, sizes.T, sizes.N)
    loud = np.where(np.isfinite(residual), cases.normal(*rows, seed=7), 6e4)
    return cases.normal(*rows, sizes.Hv, seed=5).astype(np.float64), loud.astype(np.float64)


def assert_residual_and_gradient_equal_the_reference(sizes, options, static, implementation):
    inputs = cases.inputs_of(sizes, np.float64)
    options = dict(options)
    if "bias" in options:
        inputs["bias"] = options.pop("bias").astype(np.float64)
    expected = expected_residual(inputs, options | static)
    cotangents = cotangents_of(sizes, expected)
    directions = cases.directions_of(inputs, np.float64)

    @functools.partial(jax.jit, compiler_options=cases.QUICK)
    def evaluate(inputs, options):
        def attend(inputs):
            return dot_product_attention(
                **inputs, **options, **static, implementation=implementation, return_residual=True
            )

        results, pull = jax.vjp(attend, inputs)
        pushed = jax.jvp(attend, (inputs,), (directions,))[1]
        return *results, pull(cotangents)[0], pushed

    output, residual, gradients, pushed = evaluate(inputs, options)
    assert residual.dtype == np.float64
    seen = np.isfinite(expected)
    assert (np.asarray(residual)[~seen] == -np.inf).all()
    if seen.any():
        cases.assert_close(np.asarray(residual)[seen], expected[seen], 1e-14)

    def total(moved):
        arguments = options | static
        finite = np.where(seen, expected_residual(moved, arguments), 0)
        return np.sum(cotangents[0] * oracle.attention(**moved, **arguments)) + np.sum(
            np.where(seen, cotangents[1], 0) * finite
        )

    slope = oracle.slope(total, inputs, directions)
    backward = sum(np.sum(np.asarray(gradients[n]) * directions[n]) for n in inputs)
    forward = sum(np.sum(np.asarray(p) * c) for p, c in zip(pushed, cotangents, strict=True))
    assert backward == pytest.approx(slope, rel=1e-8, abs=1e-12)
    assert forward == pytest.approx(backward, rel=1e-12)
    # Nothing of a row that attends to nothing reaches a gradient, though its cotangent is loud.
    assert (np.asarray(gradients["query"])[~seen] == 0).all()
    assert (np.asarray(output)[~seen] == 0).all()


@pytest.mark.essential
@pytest.mark.parametrize(
    ("name", "implementation"),
    [
        ("everything", "dense"),
        ("everything", "chunked"),
        ("no keys at all", "chunked"),
        ("lengths for all rows", "dense"),
        ("causal, negative offset", "chunked"),
    ],
)
def test_residual_and_its_gradients_equal_the_reference(name, implementation):
    with jax.enable_x64(True):
        assert_residual_and_gradient_equal_the_reference(*cases.CASES[name], implementation)


@EACH
def test_residual_in_half_precision_is_not_rounded(implementation):
    inputs = cases.inputs_of(cases.GROUPED, jnp.bfloat16)
    output, residual = compiled(implementation, return_residual=True)(inputs)
    assert (output.dtype, residual.dtype) == (jnp.bfloat16, np.float32)
    cases.assert_close(residual, expected_residual(inputs, {}), 1e-6)


@EACH
def test_asking_for_the_residual_changes_no_bit_of_the_output(implementation):
    causal = functools.partial(compiled, implementation, is_causal=True)
    output, _ = causal(return_residual=True)(cases.inputs_of(cases.SQUARE))
    cases.assert_same_bits(np.asarray(output), np.asarray(causal()(cases.inputs_of(cases.SQUARE))))


def test_attention_to_parts_of_the_keys_merges_by_their_residuals():
    inputs = cases.inputs_of(cases.GROUPED._replace(S=8))
    query = inputs.pop("query")
    attend = compiled("dense", return_residual=True)
    parts = [
        attend({"query": query} | {name: array[:, part] for name, array in inputs.items()})
        for part in (slice(0, 4), slice(4, 8))
    ]
    outputs, residuals = (np.stack(arrays) for arrays in zip(*parts, strict=True))
    merged = (jax.nn.softmax(residuals, axis=0)[..., None] * outputs).sum(axis=0)
    cases.assert_close(merged, oracle.attention(query, **inputs), 1e-6)


@EACH
def test_residual_does_not_depend_on_dropout_or_on_the_width_of_values(implementation):
    inputs = cases.inputs_of(cases.PLAIN)
    expected = expected_residual(inputs, {})
    dropped = compiled(implementation, return_residual=True, dropout_rate=0.5)
    _, residual = dropped(inputs, dropout_rng=jax.random.key(0))
    cases.assert_close(residual, expected, 1e-6)
    attend = compiled(implementation, return_residual=True)
    output, residual = attend(inputs | {"value": inputs["value"][..., :0]})
    assert output.shape == (5, 6, 0)
    cases.assert_close(residual, expected, 1e-6)


def test_residual_agrees_with_jax_nn_in_place_and_value():
    @functools.partial(jax.jit, compiler_options=cases.QUICK)
    def both(inputs):
        return [
            attend(**inputs, is_causal=True, return_residual=True)
            for attend in (dot_product_attention, jax.nn.dot_product_attention)
        ]

    results, expected = both(cases.inputs_of(cases.SQUARE))
    for result, value in zip(results, expected, strict=True):
        cases.assert_close(result, value, 1e-6)
