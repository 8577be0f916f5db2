"""Attention weights, stage by stage."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.functional import attention_weights
from tests.functional import oracle
from tests.functional.attention import attention_cases as cases


@functools.cache
def compiled_stages(**static):
    def stages(query, key, options):
        return {
            stage: attention_weights(query, key, **options, **static, stage=stage)
            for stage in ("scores", "capped", "biased", "masked", "softmax")
        } | {"default": attention_weights(query, key, **options, **static)}

    return jax.jit(stages)


@pytest.mark.parametrize("case", ["everything", "two leading axes", "bias of -inf"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float32, 1e-6), (jnp.bfloat16, 1e-6), (np.float64, 1e-14)]
)
def test_weights_equal_the_reference_at_every_stage(case, dtype, tolerance):
    sizes, options, static = cases.CASES[case]
    inputs = cases.inputs_of(sizes, dtype)
    query, key = inputs["query"], inputs["key"]
    with jax.enable_x64(dtype == np.float64):
        results = jax.tree.map(np.asarray, compiled_stages(**static)(query, key, options))
    chex.assert_type([*results.values()], np.float64 if dtype == np.float64 else np.float32)
    cases.assert_same_bits(results.pop("default"), results["softmax"])
    for stage, got in results.items():
        expected = oracle.attention_weights(query, key, **options, **static, stage=stage)
        hidden = expected == -np.inf
        assert ((got == -np.inf) == hidden).all()
        cases.assert_close(np.where(hidden, 0, got), np.where(hidden, 0, expected), tolerance)


def test_weights_sum_to_one_or_to_zero():
    sizes, options, static = cases.CASES["everything"]
    inputs = cases.inputs_of(sizes)
    weights = compiled_stages(**static)(inputs["query"], inputs["key"], options)["softmax"]
    sums = np.asarray(weights).sum(-1)
    assert (np.abs(sums[sums != 0] - 1) <= 1e-6).all()
    assert 0 < (sums == 0).mean() < 1


def test_weights_and_their_gradient_are_untouched_by_poison_that_nothing_sees():
    sizes, options, _ = cases.HIDING["mask"]
    rows, keys = cases.unattended(*cases.HIDING["mask"])
    cotangent = cases.normal(*sizes.weights)

    @jax.jit
    def outcome(query, key):
        weights, pull = jax.vjp(lambda q, k: attention_weights(q, k, **options), query, key)
        return weights, *pull(cotangent)

    outcomes = []
    for poison in (0, np.nan):
        inputs = cases.inputs_of(sizes)
        inputs["query"][rows], inputs["key"][keys] = poison, poison
        outcomes.append(jax.tree.map(np.asarray, outcome(inputs["query"], inputs["key"])))
    cases.assert_same_bits(*outcomes)
