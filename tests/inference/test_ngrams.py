"""N-grams that must not repeat, beside a plain Python reference."""

import chex
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.inference import repeated_ngrams
from tests.inference.by_hand import repeated_by_hand

VOCAB = 5


class RepeatedNgramsTest(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    @parameterized.parameters(1, 2, 3, 7, 12)
    def test_are_those_of_a_search_by_hand(self, size):
        rows, width = 60, 11
        random = np.random.RandomState(size)
        tokens = random.randint(3, size=(rows, width))  # few, so that much repeats
        lengths = random.randint(width + 1, size=rows)
        banned = self.variant(repeated_ngrams, static_argnums=(2, 3))(tokens, lengths, size, VOCAB)
        repeated = [set(np.flatnonzero(row).tolist()) for row in banned]
        expected = [
            repeated_by_hand(row[:length].tolist(), size)
            for row, length in zip(tokens, lengths, strict=True)
        ]
        assert repeated == expected
        assert any(expected) == (size < 7)  # or the test shows nothing


def test_repeated_ngrams_take_any_leading_axes():
    tokens = jnp.array([[[1, 2, 1], [0, 0, 0]]])
    repeated = repeated_ngrams(tokens, jnp.array([[3, 2]]), 2, 3)
    assert repeated.tolist() == [[[False, False, True], [True, False, False]]]
    assert repeated_ngrams(tokens[0, 0], jnp.array(3), 2, 3).tolist() == [False, False, True]


def test_repeated_ngrams_leave_out_tokens_beyond_the_vocabulary():
    tokens = jnp.array([1, 9, 1, -1, 1])
    assert not repeated_ngrams(tokens, jnp.array(5), 2, 3).any()


def test_repeated_ngrams_take_tokens_and_lengths_of_a_narrow_dtype():
    tokens, lengths = np.array([1, 2, 1], np.uint8), np.array(3, np.uint8)
    repeated = repeated_ngrams(tokens, lengths, 2, 300)
    assert np.flatnonzero(repeated).tolist() == [2]
    assert not repeated_ngrams(tokens, np.array(1, np.uint8), 3, 300).any()


def test_repeated_ngrams_refuse_what_does_not_fit():
    tokens = np.zeros((2, 3), int)
    with pytest.raises(ConfigError, match="size must be an int at least 1, got 0"):
        repeated_ngrams(tokens, np.zeros(2, int), 0, 3)
    with pytest.raises(ShapeError, match=r"lengths must have .* \(2,\), got \(3,\)"):
        repeated_ngrams(tokens, np.zeros(3, int), 2, 3)
    with pytest.raises(ShapeError, match="tokens must be integer"):
        repeated_ngrams(np.zeros((2, 3)), np.zeros(2, int), 2, 3)
