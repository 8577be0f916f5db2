"""Tokens that beam search must not choose, and those that it must."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.inference.beams_by_hand import (
    END,
    assert_same_hypotheses,
    everything,
    random_tables,
    search_with,
    searcher,
)
from tests.inference.by_hand import repeated_by_hand


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {(1, 2, 0): 0.54, (0,): 0.4}),
        ({"forbidden_tokens": (2,)}, {(0,): 0.4, (1, 0): 0.06}),
        ({"forbidden_tokens": (2,), "renormalize": True}, {(1, 0): 0.6, (0,): 0.4}),
        ({"forbidden_tokens": (0, 1)}, {}),
        ({"forced_first_token": 1}, {(1, 2, 0): 0.9, (1, 0): 0.1}),
        ({"forced_first_token": 2}, {(2, 0): 1.0}),  # impossible by its logits
        ({"forced_first_token": 1, "max_new_tokens": 1}, {(1,): 1.0}),
        ({"forced_last_token": 0, "max_new_tokens": 2}, {(1, 0): 0.6, (0,): 0.4}),
        ({"forced_last_token": 2, "max_new_tokens": 2}, {(1, 2): 0.6, (0,): 0.4}),
    ],
    ids=str,
)
def test_beam_search_forbids_tokens_and_forces_the_first_and_the_last(options, expected):
    with np.errstate(divide="ignore"):
        table = jnp.asarray(np.log([[0.4, 0.6, 0], [0.1, 0, 0.9], [1.0, 0, 0]]), jnp.float32)
    arguments = dict(beam_size=2, max_new_tokens=3, end_tokens=[0], num_best=2, length_penalty=0.0)
    search = functools.partial(
        search_with, lambda tokens, cache: (table[tokens], cache), (), **arguments | options
    )
    beams = jax.jit(search)(jnp.array([0]))
    probabilities = {
        tuple(tokens[:length].tolist()): float(np.exp(log_prob))
        for tokens, length, log_prob in zip(
            beams.tokens[0], beams.lengths[0], beams.log_probs[0], strict=True
        )
        if length
    }
    assert probabilities == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("size", "least", "rescale"), [(2, 0, False), (1, 0, True), (0, 3, False), (3, 2, True)]
)
def test_beam_search_repeats_no_ngram_and_ends_late_enough(size, least, rescale):
    batch, vocab, longest, count = 60, 3, 5, 7

    def ruled_out(tokens):
        ends = {END} if len(tokens) - 1 < least else set()
        return ends | (repeated_by_hand(tokens, size) if size else set())

    tables, start = random_tables(7, batch, vocab), np.arange(batch) % vocab
    beams = searcher(
        beam_size=48, max_new_tokens=longest, early_stopping="never", num_best=count,
        no_repeat_ngram_size=size, min_new_tokens=least, renormalize=rescale,
    )(tables, start)  # fmt: skip
    changed = 0
    for row in range(batch):
        arguments = (tables[row], int(start[row]), longest, 1.0, count)
        expected = everything(*arguments, ruled_out, rescale)
        assert_same_hypotheses(beams, row, expected)
        changed += expected != everything(*arguments)
    assert changed > batch // 2  # or the test shows nothing
