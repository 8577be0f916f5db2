"""Attention weights, stage by stage."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.functional import attention_weights
from tests.functional import oracle
from tests.functional.attention.attention_cases import (
    CASES,
    HIDING,
    assert_close,
    assert_same_bits,
    inputs_of,
    normal,
    unattended,
)


@functools.cache
def compiled_stages(**static):
    def stages(query, key, options):
        return {
            stage: attention_weights(query, key, **options, **static, stage=stage)
            for stage in ("scores", "capped", "biased", "masked", "softmax")
        } | {"default": attention_weights(query, key, **options, **static)}

    return jax.jit(stages)


@pytest.mark.parametrize("case", ["everything", "two leading axes", "bias of -inf"])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_weights_equal_the_reference_at_every_stage(case, dtype):
    sizes, options, static = CASES[case]
    inputs = inputs_of(sizes, dtype)
    query, key = inputs["query"], inputs["key"]
    results = compiled_stages(**static)(query, key, options)
    assert_same_bits(results["default"], results["softmax"])
    del results["default"]
    for stage, got in results.items():
        expected = oracle.attention_weights(query, key, **options, **static, stage=stage)
        assert got.dtype == np.float32
        hidden = expected == -np.inf
        assert ((got == -np.inf) == hidden).all()
        assert_close(np.where(hidden, 0, got), np.where(hidden, 0, expected), 1e-6)


def test_weights_sum_to_one_or_to_zero():
    sizes, options, static = CASES["everything"]
    inputs = inputs_of(sizes)
    weights = compiled_stages(**static)(inputs["query"], inputs["key"], options)["softmax"]
    sums = np.asarray(weights).sum(-1)
    assert (np.abs(sums[sums != 0] - 1) <= 1e-6).all()
    assert 0 < (sums == 0).mean() < 1


def test_weights_and_their_gradient_are_untouched_by_poison_that_nothing_sees():
    sizes, options, _ = HIDING["mask"]
    rows, keys = unattended(*HIDING["mask"])
    cotangent = normal(*sizes.weights)

    @jax.jit
    def outcome(query, key):
        weights, pull = jax.vjp(lambda q, k: attention_weights(q, k, **options), query, key)
        return weights, *pull(cotangent)

    outcomes = []
    for poison in (0, np.nan):
        inputs = inputs_of(sizes)
        inputs["query"][rows], inputs["key"][keys] = poison, poison
        outcomes.append(jax.tree.map(np.asarray, outcome(inputs["query"], inputs["key"])))
    assert_same_bits(*outcomes)


def test_weights_are_float64_for_float64():
    sizes, options, static = CASES["everything"]
    inputs = inputs_of(sizes, np.float64)
    with jax.enable_x64(True):
        weights = compiled_stages(**static)(inputs["query"], inputs["key"], options)["softmax"]
        expected = oracle.attention_weights(inputs["query"], inputs["key"], **options, **static)
        assert weights.dtype == np.float64
        assert_close(weights, expected, 1e-14)
