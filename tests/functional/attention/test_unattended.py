"""Rows with nothing to attend to, and keys that no query may attend to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.functional import dot_product_attention
from tests.functional.attention import attention_cases as cases

EACH = pytest.mark.parametrize("implementation", cases.IMPLEMENTATIONS)
CHUNKED = {"implementation": "chunked"}
EACH_CASE = pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"dense-{name}") for name, case in cases.HIDING.items()]
    + [
        pytest.param((sizes, options, static | CHUNKED), id=f"chunked-{name}")
        for name, (sizes, options, static) in (cases.MERGED | cases.REST).items()
    ],
)


def assert_empty_rows_are_zero(sizes, options, static, dtype=np.float32):
    rows, _ = cases.unattended(sizes, options, static)
    inputs, cotangent = cases.inputs_of(sizes, dtype), cases.cotangent_of(sizes, dtype)
    _, output, gradients = cases.run(sizes, options, static, inputs, cotangent, optimized=True)
    assert (output[rows] == 0).all()
    assert (gradients["query"][rows] == 0).all()
    if "bias" in gradients and gradients["bias"].shape == sizes.weights:
        assert (np.swapaxes(gradients["bias"], -2, -3)[rows] == 0).all()
    assert (output[~rows] != 0).all()
    for result in (output, *gradients.values()):
        assert np.isfinite(result).all()
    # Nothing of such a row reaches any gradient, however large its cotangent.
    cotangent[rows] = 6e4
    _, _, louder = cases.run(sizes, options, static, inputs, cotangent, optimized=True)
    cases.assert_same_bits(louder, gradients)


def assert_poison_changes_nothing(sizes, options, static, dtype=np.float32, unseen=None):
    """Poison in queries that see nothing, and in keys that no query sees, as two bool arrays."""
    rows, keys = cases.unattended(sizes, options, static) if unseen is None else unseen

    def outcome(poison):
        inputs = cases.inputs_of(sizes, dtype)
        for name, unseen in (("query", rows), ("key", keys), ("value", keys)):
            inputs[name][unseen] = poison
        return cases.run(sizes, options, static, inputs, optimized=True)[1:]

    clean = outcome(0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(clean))
    assert all((clean[1][name][keys] == 0).all() for name in ("key", "value"))
    assert (clean[0][rows] == 0).all() and (clean[1]["query"][rows] == 0).all()
    for poison in (np.nan, np.inf, -np.inf, jnp.finfo(dtype).max):
        cases.assert_same_bits(outcome(poison), clean)


@pytest.mark.essential
@EACH_CASE
def test_attention_of_a_row_that_sees_nothing_is_zero(case):
    assert_empty_rows_are_zero(*case)


@EACH_CASE
def test_attention_is_untouched_by_poison_that_nothing_sees(case):
    assert_poison_changes_nothing(*case)


@EACH
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_attention_ignores_the_unattended_in_low_precision(dtype, implementation):
    for sizes, options, static in cases.MERGED.values():
        static = static | {"implementation": implementation}
        assert_empty_rows_are_zero(sizes, options, static, dtype)
        assert_poison_changes_nothing(sizes, options, static, dtype)


@EACH
@pytest.mark.parametrize("how", ["mask", "bias", "key_value_seq_lengths"])
def test_attention_that_sees_nothing_at_all_has_no_gradient(how, implementation):
    nothing = {
        "mask": np.zeros((2, 6, 5, 7), bool),
        "bias": np.full((2, 6, 5, 7), -np.inf, np.float32),
        "key_value_seq_lengths": np.array([0, 0]),
    }
    options = cases.NEUTRAL | {how: nothing[how]}
    inputs = cases.inputs_of(cases.GROUPED)
    inputs["key"][:], inputs["value"][:] = np.nan, np.inf
    static = {"is_causal": True, "implementation": implementation}
    _, output, gradients = cases.run(cases.GROUPED, options, static, inputs)
    assert all((result == 0).all() for result in (output, *gradients.values()))


@EACH
def test_attention_is_untouched_by_poisoned_queries_beyond_their_length(implementation):
    options, static = {"query_seq_lengths": np.array([3, 4])}, {"implementation": implementation}
    beyond = np.arange(5) >= options["query_seq_lengths"][:, None]
    unseen = beyond, np.zeros((2, 7), bool)
    assert_poison_changes_nothing(cases.GROUPED, options, static, unseen=unseen)


@pytest.mark.essential
@EACH
def test_query_that_does_not_see_the_only_key_is_zero(implementation):
    """XLA's reduction over one element leaves out the number to start from."""
    query, key, value = cases.normal(1, 2, 1, 4), cases.normal(1, 1, 1, 4), cases.normal(1, 1, 1, 3)
    output = dot_product_attention(
        query, key, value, is_causal=True, query_offset=-1, implementation=implementation
    )
    np.testing.assert_array_equal(output, np.concatenate([np.zeros_like(value), value], axis=1))


def test_dense_attention_zeroes_unattended_keys_for_gradients_alone():
    """In decoding, that pass over the cache would cost as much as the scores."""
    query, key, value = cases.normal(2, 1, 3, 4), cases.normal(2, 9, 3, 4), cases.normal(2, 9, 3, 5)

    def total(*arrays):
        options = {"key_value_seq_lengths": np.array([9, 4]), "implementation": "dense"}
        return dot_product_attention(*arrays, **options).sum()

    zeroed_keys, zeroed_values = ":f32[2,3,9,4] = select_n", ":f32[2,3,9,5] = select_n"
    program = str(jax.make_jaxpr(total)(query, key, value))
    assert zeroed_values in program and zeroed_keys not in program
    assert zeroed_keys in str(jax.make_jaxpr(jax.grad(total))(query, key, value))
