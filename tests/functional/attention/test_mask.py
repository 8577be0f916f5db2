"""The one mask that stands for all that hides keys from queries."""

import jax
import numpy as np
import pytest

from jaxformer.functional import attention_mask, dot_product_attention
from tests.functional import oracle
from tests.functional.attention.attention_cases import (
    CASES,
    GROUPED,
    QUICK,
    SQUARE,
    assert_close,
    inputs_of,
)

OF_WEIGHTS_ONLY = ("scale", "softcap")


def mask_of(sizes, options, static):
    inputs = inputs_of(sizes)
    structure = {n: o for n, o in (options | static).items() if n not in OF_WEIGHTS_ONLY}
    return attention_mask(inputs["query"], inputs["key"], **structure)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_mask_is_where_the_reference_has_weights(case):
    sizes, options, static = case
    inputs = inputs_of(sizes)
    weights = oracle.attention_weights(inputs["query"], inputs["key"], **options, **static)
    mask = mask_of(*case)
    if mask is None:
        assert (weights > 0).all()
        return
    assert mask.dtype == bool
    assert mask.ndim == weights.ndim
    np.testing.assert_array_equal(np.broadcast_to(mask, weights.shape), weights > 0)


@pytest.mark.parametrize("name", ["window and causal", "segments", "bias of -inf", "everything"])
def test_mask_alone_gives_the_output_of_what_it_stands_for(name):
    sizes, options, static = CASES[name]
    inputs = inputs_of(sizes)
    mask = mask_of(*CASES[name])
    unmasked = {n: o for n, o in (options | static).items() if n in (*OF_WEIGHTS_ONLY, "bias")}
    if "bias" in unmasked:  # The mask has its -inf.
        unmasked["bias"] = np.where(unmasked["bias"] == -np.inf, np.float32(0), unmasked["bias"])

    @jax.jit
    def both(inputs, options, mask):
        whole = dot_product_attention(**inputs, **options, **static)
        return whole, dot_product_attention(**inputs, **unmasked, mask=mask)

    whole, by_mask = both.lower(inputs, options, mask).compile(QUICK)(inputs, options, mask)
    assert_close(by_mask, whole, 1e-6)


def test_mask_that_does_not_vary_has_size_one():
    causal = mask_of(SQUARE, {}, {"is_causal": True})
    assert causal.shape == (1, 1, 7, 7)
    lengths = mask_of(GROUPED, {"key_value_seq_lengths": np.array([3, 5])}, {})
    assert lengths.shape == (2, 1, 1, 7)
    heads = mask_of(GROUPED, {"mask": np.ones((1, 6, 1, 7), bool)}, {})
    assert heads.shape == (1, 6, 1, 7)


def test_mask_takes_traced_options():
    inputs = inputs_of(GROUPED)
    options = {"query_offset": np.array([-1, 4]), "key_value_seq_lengths": np.array([6, 5])}
    traced = jax.jit(lambda i, o: attention_mask(i["query"], i["key"], is_causal=True, **o))
    expected = mask_of(GROUPED, options, {"is_causal": True})
    np.testing.assert_array_equal(traced(inputs, options), expected)
