"""What beam search refuses: options and arrays; damaged logits, whose scores are NaN."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import ConfigError, ShapeError
from tests.inference.beams_by_hand import search_with


def uniform(tokens, cache):
    return jnp.zeros((len(tokens), 5)), cache


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"forced_first_token": 9}, "forced_first_token must be .* got 9"),
        ({"forced_last_token": -1}, "forced_last_token must be .* got -1"),
        ({"forbidden_tokens": 1}, "forbidden_tokens must be a list of token ids, got 1"),
        ({"forbidden_tokens": (1, None)}, r"forbidden_tokens\[1\] must be .* got None"),
        ({"beam_size": 0}, "beam_size must be positive, got beam_size=0"),
        ({"max_new_tokens": 0}, "max_new_tokens must be an int at least 1, got 0"),
        ({"length_penalty": 63}, "length_penalty must be in -5 .. 5, got .*=63"),
        ({"vocab_size": 0}, "vocab_size must be an int in 1 .. 5, got 0"),
        ({"vocab_size": 6}, "vocab_size must be an int in 1 .. 5, got 6"),
        ({"end_tokens": 0}, "end_tokens must be a list of token ids, got 0"),
        ({"end_tokens": [0, -1]}, "end_tokens\\[1\\] must be an int in 0 .. 4, got -1"),
        ({"end_tokens": [1.0]}, "end_tokens\\[0\\] must be an int in 0 .. 4, got 1.0"),
        ({"end_tokens": [2**40]}, f"end_tokens\\[0\\] must be an int in 0 .. 4, got {2**40}"),
        ({"end_tokens": [3], "vocab_size": 3}, "end_tokens\\[0\\] must be an int in 0 .. 2, got 3"),
    ],
)  # fmt: skip
def test_beam_search_refuses_impossible_options(options, message):
    options = {"step": uniform, "beam_size": 2, "max_new_tokens": 3, "end_tokens": [0], **options}
    with pytest.raises(ConfigError, match=message):
        search_with(cache=(), start=np.zeros(1, int), **options)


@pytest.mark.parametrize(
    ("step", "cache", "start", "message"),
    [
        (None, (), np.zeros((1, 1), int), "start_tokens must be \\[B\\], got shape \\(1, 1\\)"),
        (None, (), [[0], [1, 2]], "start_tokens"),
        (None, (), np.zeros(1), "start_tokens must be integer, got dtype float32"),
        (None, {"key": np.zeros(3)}, [0, 1], "B=2, got shape \\(3,\\) at cache\\['key'\\]"),
        (None, [np.zeros(())], [0, 1], "B=2, got shape \\(\\) at cache\\[0\\]"),
        (lambda t, c: jnp.zeros((4, 5)), (), [0, 1], "must return .logits, cache., got ShapeDtype"),
        (lambda t, c: (jnp.zeros((2, 5)), c), (), [0, 1], "logits must be \\[B\\*W=4, V\\], got"),
        (lambda t, c: (jnp.zeros((4, 5), int), c), (), [0, 1], "logits must be floating"),
    ],
)  # fmt: skip
def test_beam_search_refuses_arrays_that_do_not_fit(step, cache, start, message):
    with pytest.raises(ShapeError, match=message):
        search_with(step or uniform, cache, start, beam_size=2, max_new_tokens=3, end_tokens=[0])


@pytest.fixture(scope="module")
def with_value():
    """Searches three rows, with `value` among the logits after one token at one step.

    Row 0 ends at once; row 1 runs to the third step with two hypotheses, row 2 with one.
    """
    rows = jnp.log(jnp.array([[1.0, 0, 0], [0, 0.7, 0.3], [0, 1, 0]]))

    @jax.jit
    def search(value, at_step, after):
        def step(tokens, cache):
            row, length = cache
            hit = (length == at_step) & (tokens == after)
            logits = rows[row].at[:, 1].set(jnp.where(hit, value, rows[row, 1]))
            return logits, (row, length + 1)

        cache, start = (jnp.arange(3), jnp.zeros(3, jnp.int32)), jnp.array([7, 1, 1])
        options = {"beam_size": 2, "max_new_tokens": 3, "end_tokens": [0], "num_best": 2}
        return search_with(step, cache, start, **options)

    return search


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_beam_search_scores_of_damaged_logits_are_nan(with_value, value):
    beams = with_value(value, 1, 2)  # after the second best hypothesis of row 1 alone
    assert np.isnan(beams.scores[1]).all() and np.isnan(beams.log_probs[1]).all()
    for row in (0, 2):
        assert beams.scores[row].tolist() == beams.log_probs[row].tolist() == [0, -jnp.inf]


def test_beam_search_ignores_logits_of_what_does_not_run(with_value):
    # Row 0 is done, and row 2 has a beam without hypothesis; what is left there is a token 0.
    clean, leftover = with_value(0.0, 9, 0), with_value(jnp.nan, 1, 0)
    assert np.isfinite(clean.scores[1]).all()
    chex.assert_trees_all_equal(leftover, clean)
