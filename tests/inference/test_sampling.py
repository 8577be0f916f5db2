import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jaxformer.config import SamplingConfig
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.inference import sample
from jaxformer.inference.sampling import keep_min_p, keep_top_k, keep_top_p, penalize_repetition

VOCAB = 7
RNG = jax.random.key(0)
RNGS = jax.random.split(RNG, 2)
PENALTY = SamplingConfig(temperature=0, repetition_penalty=2.0)
LOGITS = arrays(np.float32, (VOCAB,), elements=st.floats(-9, 9, width=16), unique=True)


def candidates(filtered):
    return set(np.flatnonzero(np.isfinite(np.asarray(filtered))).tolist())


def probabilities(logits):
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return weights / weights.sum()


@pytest.mark.essential
@settings(deadline=None)
@given(LOGITS, st.integers(1, VOCAB + 3))
def test_top_k_keeps_the_k_largest(logits, k):
    assert candidates(keep_top_k(jnp.asarray(logits), k)) == set(np.argsort(-logits)[:k].tolist())


@pytest.mark.essential
@settings(deadline=None)
@given(LOGITS, st.floats(0.05, 0.95))
def test_top_p_keeps_the_fewest_that_reach_p(logits, p):
    order, total, expected = np.argsort(-logits), 0.0, set()
    for token in order:
        expected.add(int(token))
        total += probabilities(logits)[token]
        if total >= p:
            break
    boundary = np.cumsum(probabilities(logits)[order])
    if np.abs(boundary - p).min() > 1e-5:  # else rounding decides
        assert candidates(keep_top_p(jnp.asarray(logits), p)) == expected


@pytest.mark.essential
@settings(deadline=None)
@given(LOGITS, st.floats(0.01, 0.99))
def test_min_p_keeps_those_likely_enough(logits, p):
    ratio = probabilities(logits) / probabilities(logits).max()
    if np.abs(ratio - p).min() > 1e-5:
        assert candidates(keep_min_p(jnp.asarray(logits), p)) == set(
            np.flatnonzero(ratio >= p).tolist()
        )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_filtered_and_drawn_from_in_float32(dtype):
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(64, 5_000)) * 2, dtype)
    rngs, sampling = jax.random.split(RNG, 64), SamplingConfig(top_p=0.99, min_p=1e-4)
    expected = sample(logits.astype(jnp.float32), rngs, sampling)
    np.testing.assert_array_equal(sample(logits, rngs, sampling), expected)


def test_min_p_of_float64_compares_in_float64():
    with jax.enable_x64(True):
        logits = jnp.log(jnp.array([1.0, 0.3 + 1e-12, 0.3 - 1e-12], float))
        assert candidates(keep_min_p(logits, 0.3)) == {0, 1}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_equal_logits_in_half_precision_are_drawn_equally_often(dtype):
    rngs = jax.random.split(jax.random.key(0), 4000)
    tokens = sample(jnp.zeros((4000, 1000), dtype), rngs, SamplingConfig(temperature=1.0))
    assert abs(np.mean(tokens < 100) - 0.1) < 5 * (0.1 * 0.9 / 4000) ** 0.5


def test_filters_leave_the_kept_logits_as_they_are():
    logits = jnp.array([[2.0, 1.0, 0.5, -1.0], [0.0, 3.0, 2.5, 1.0]])
    for filtered in (keep_top_k(logits, 2), keep_top_p(logits, 0.8), keep_min_p(logits, 0.3)):
        finite = jnp.isfinite(filtered)
        assert 0 < int(finite.sum()) < logits.size
        np.testing.assert_array_equal(filtered[finite], logits[finite])


def test_neutral_settings_keep_everything_and_p_of_0_one_token():
    logits = jnp.array([2.0, 1.0, -jnp.inf])
    np.testing.assert_array_equal(keep_top_p(logits, 1.0), logits)
    np.testing.assert_array_equal(keep_min_p(logits, 0.0), logits)
    assert candidates(keep_top_p(logits, 0.0)) == {0}  # the most probable always stays


def test_repetition_penalty_lowers_both_signs():
    logits, seen = jnp.array([3.0, -3.0, 3.0, -3.0]), jnp.array([True, True, False, False])
    assert penalize_repetition(logits, seen, 1.5).tolist() == [2.0, -4.5, 3.0, -3.0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
@pytest.mark.parametrize("vocab_size", [3, 4096])  # XLA's maximum of many leaves out a NaN
def test_row_that_no_token_can_be_drawn_from_gives_none(temperature, bad, vocab_size):
    logits = jnp.array([[0.0, 5.0, -9.0], [9.0, bad, 0.0], [-jnp.inf] * 3])
    logits = jnp.pad(logits, ((0, 0), (0, vocab_size - 3)), constant_values=-jnp.inf)
    rngs, sampling = jax.random.split(jax.random.key(0), 3), SamplingConfig(temperature=temperature)
    assert sample(logits, rngs, sampling)[1:].tolist() == [-1, -1]
    assert sample(logits, rngs, sampling)[0] >= 0


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (None, "must be a SamplingConfig, got None"),
        (PENALTY, "needs seen, got repetition_penalty=2.0 without"),
    ],
)
def test_impossible_settings_are_refused(sampling, message):
    with pytest.raises(ConfigError, match=message):
        sample(jnp.ones((2, 5)), RNGS, sampling)


def test_zero_temperature_is_greedy_also_with_a_repetition_penalty():
    logits = jnp.array([[3.0, 5.0, 4.9], [1.0, 0.0, -1.0]])
    assert sample(logits, RNGS, SamplingConfig(temperature=0)).tolist() == [1, 0]
    seen = jnp.array([[False, True, True], [False, True, True]])
    assert sample(logits, RNGS, PENALTY, seen).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (SamplingConfig(), [0.5, 0.3, 0.15, 0.05]),
        (SamplingConfig(temperature=0.5), [0.25, 0.09, 0.0225, 0.0025]),
        (SamplingConfig(top_k=2), [0.5, 0.3, 0, 0]),
        (SamplingConfig(top_p=0.85), [0.5, 0.3, 0.15, 0]),
        (SamplingConfig(min_p=0.5), [0.5, 0.3, 0, 0]),
        # Temperature first: the most likely token then has 0.68, and reaches top_p alone.
        (SamplingConfig(temperature=0.5, top_p=0.6), [1, 0, 0, 0]),
    ],
)
def test_frequencies_follow_the_distribution(sampling, expected):
    draws = 4096
    logits = jnp.tile(jnp.log(jnp.array([0.5, 0.3, 0.15, 0.05])), (draws, 1))
    tokens = sample(logits, jax.random.split(jax.random.key(1), draws), sampling)
    expected = np.asarray(expected) / np.sum(expected)
    # Five standard errors.
    margin = 5 * np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(np.bincount(tokens, minlength=4) / draws - expected) <= margin).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sample(jnp.ones((2, 5)), RNGS, PENALTY, jnp.ones((2, 3)) > 0), "seen"),
        (lambda: sample(jnp.ones((2, 5)), RNGS, PENALTY, jnp.ones((2, 5))), "seen"),
        (lambda: sample(jnp.ones(5), jax.random.split(RNG, 5), SamplingConfig()), "logits"),
        (lambda: sample(jnp.ones((2, 5)), jax.random.split(RNG, 3), SamplingConfig()), "rngs"),
        (lambda: sample(jnp.ones((2, 5)), RNG, SamplingConfig()), "rngs"),
        (lambda: sample(jnp.ones((2, 5)), None, SamplingConfig()), "rngs"),
        (lambda: sample(jnp.ones((2, 5)), [RNG, RNG], SamplingConfig()), "rngs"),
        (lambda: sample(jnp.ones((2, 5)), jnp.ones((2, 2)), SamplingConfig()), "rngs"),
        (lambda: sample(jnp.ones((2, 5)) > 0, RNGS, SamplingConfig()), "logits"),
    ],
)
def test_wrong_arrays_are_refused_by_name(call, words):
    with pytest.raises(ShapeError, match=f"^{words} must"):
        call()
