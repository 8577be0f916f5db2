"""N-grams that must not repeat, beside a plain Python reference."""

import jax
import numpy as np
import pytest

from jaxformer.inference.token_rules import repeated_ngrams
from tests.inference.by_hand import repeated_by_hand

VOCAB = 5


@pytest.mark.parametrize("size", [1, 2, 3, 7, 12])
def test_repeated_ngrams_are_those_of_a_search_by_hand(size):
    rows, width = 60, 11
    random = np.random.RandomState(size)
    tokens = random.randint(3, size=(rows, width))  # few, so that much repeats
    tokens[:20][tokens[:20] == 2] = VOCAB + 4  # beyond the vocabulary: ignored as the next token
    lengths = random.randint(width + 1, size=rows)
    banned = jax.jit(repeated_ngrams, static_argnums=(2, 3))(tokens, lengths, size, VOCAB)
    repeated = [set(np.flatnonzero(row).tolist()) for row in banned]
    expected = [
        {token for token in repeated_by_hand(row[:length].tolist(), size) if token < VOCAB}
        for row, length in zip(tokens, lengths, strict=True)
    ]
    assert repeated == expected
    assert any(expected) == (size < 7)  # or the test shows nothing
