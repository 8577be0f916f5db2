"""The one mask that stands for all that hides keys from queries."""

import chex
import jax
import numpy as np
import pytest

from jaxformer.functional import attention_mask, dot_product_attention
from tests.functional import oracle
from tests.functional.attention import attention_cases as cases

OF_WEIGHTS_ONLY = ("scale", "softcap")


def mask_of(sizes, options, static):
    inputs = cases.inputs_of(sizes)
    structure = {n: o for n, o in (options | static).items() if n not in OF_WEIGHTS_ONLY}
    return attention_mask(inputs["query"], inputs["key"], **structure)


@pytest.mark.parametrize("case", cases.CASES.values(), ids=cases.CASES)
def test_mask_is_where_the_reference_has_weights(case):
    sizes, options, static = case
    inputs = cases.inputs_of(sizes)
    weights = oracle.attention_weights(inputs["query"], inputs["key"], **options, **static)
    mask = mask_of(*case)
    if mask is None:
        assert (weights > 0).all()
        return
    chex.assert_type(mask, bool)
    chex.assert_rank(mask, weights.ndim)
    chex.assert_trees_all_equal(np.broadcast_to(mask, weights.shape), weights > 0)
    traced = jax.jit(lambda traced: mask_of(sizes, traced, static))(options)
    chex.assert_trees_all_equal(np.broadcast_to(traced, weights.shape), weights > 0)


@pytest.mark.parametrize("name", ["window and causal", "segments", "bias of -inf", "everything"])
def test_mask_alone_gives_the_output_of_what_it_stands_for(name):
    sizes, options, static = cases.CASES[name]
    inputs = cases.inputs_of(sizes)
    mask = mask_of(*cases.CASES[name])
    unmasked = {n: o for n, o in (options | static).items() if n in (*OF_WEIGHTS_ONLY, "bias")}
    if "bias" in unmasked:  # The mask has its -inf.
        unmasked["bias"] = np.where(unmasked["bias"] == -np.inf, np.float32(0), unmasked["bias"])

    @jax.jit
    def both(inputs, options, mask):
        whole = dot_product_attention(**inputs, **options, **static)
        return whole, dot_product_attention(**inputs, **unmasked, mask=mask)

    whole, by_mask = both.lower(inputs, options, mask).compile(cases.QUICK)(inputs, options, mask)
    cases.assert_close(by_mask, whole, 1e-6)


def test_mask_that_does_not_vary_has_size_one():
    causal = mask_of(cases.SQUARE, {}, {"is_causal": True})
    chex.assert_shape(causal, (1, 1, 7, 7))
    lengths = mask_of(cases.GROUPED, {"key_value_seq_lengths": np.array([3, 5])}, {})
    chex.assert_shape(lengths, (2, 1, 1, 7))
    heads = mask_of(cases.GROUPED, {"mask": np.ones((1, 6, 1, 7), bool)}, {})
    chex.assert_shape(heads, (1, 6, 1, 7))
