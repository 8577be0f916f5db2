import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.inference.beams import largest
from tests.inference.beams_by_hand import (
    END,
    assert_same_hypotheses,
    by_hand,
    hypotheses,
    next_node,
    random_tables,
    search_with,
    searcher,
)

STOPPING = {"beam_size": 3, "max_new_tokens": 7, "num_best": 3}


@pytest.mark.essential
@pytest.mark.parametrize(
    ("early_stopping", "length_penalty"),
    [(True, 1.0), (False, 1.0), ("never", 1.0), (False, -0.5), ("never", -0.5)],
)
def test_beam_search_equals_lists_of_hypotheses(early_stopping, length_penalty):
    batch = 100
    tables, start = random_tables(11, batch, 5, end_bias=1.0), np.arange(batch) % 5
    beams = searcher(**STOPPING, early_stopping=early_stopping, length_penalty=length_penalty)(
        tables, start
    )
    stopped = 0
    for row in range(batch):
        arguments = (tables[row], int(start[row]), 3, 7, length_penalty)
        expected = by_hand(*arguments, early_stopping)
        assert_same_hypotheses(beams, row, expected)
        stopped += expected != by_hand(*arguments, None)
    # Only where nothing better can come does stopping change nothing.
    assert (stopped == 0) == (
        early_stopping == "never" or (length_penalty < 0 and not early_stopping)
    )


@pytest.mark.parametrize("ends", [(END, 2), ()])
def test_beam_search_ends_with_any_of_several_tokens_or_at_the_longest_length_alone(ends):
    batch = 100
    tables, start = random_tables(11, batch, 5, end_bias=2.0), np.arange(batch) % 5
    tables[..., 2] += 2.0  # so that of 2W continuations fewer than W would run on
    options = {"early_stopping": "never", "length_penalty": 3.0, "end_tokens": ends}
    beams = searcher(**STOPPING, **options)(tables, start)
    for row in range(batch):
        expected = by_hand(tables[row], int(start[row]), 3, 7, 3.0, "never", ends)
        assert_same_hypotheses(beams, row, expected)


def test_beam_search_rows_do_not_depend_on_each_other():
    batch = 100
    tables, start = random_tables(11, batch, 5, end_bias=1.0), np.arange(batch) % 5
    search = searcher(**STOPPING, early_stopping=True, length_penalty=1.0)
    together = search(tables, start)
    for row in range(0, batch, 4):
        alone = search(tables[row : row + 1], start[row : row + 1])
        chex.assert_trees_all_equal(
            alone, jax.tree.map(lambda leaf, i=row: leaf[i : i + 1], together)
        )


# Probabilities of the next token by (tokens so far, last token); 0 ends.
MARKOV = np.zeros((6, 3, 3))
MARKOV[0, 0] = [0.3, 0.7, 0]
MARKOV[1, 1] = [0.3, 0, 0.7]
MARKOV[2, 2] = [0.9, 0, 0.1]
MARKOV[3, 2] = MARKOV[4, 2] = [0, 0, 1]
MARKOV[5, 2] = [1, 0, 0]


@pytest.mark.parametrize(
    ("early_stopping", "expected", "steps"),
    [
        # After two tokens there are two: ln(0.7 * 0.3) / 2 = -0.780 and ln(0.3) = -1.204.
        (True, [((1, 0), 0.21), ((0,), 0.3)], 2),
        # But 1 2 runs with ln(0.49) / 2 = -0.357; 1 2 0 then has ln(0.441) / 3 = -0.273, and what
        # runs has ln(0.049) / 3 = -1.005, below -0.780.
        (False, [((1, 2, 0), 0.441), ((1, 0), 0.21)], 3),
        # At six tokens the same has ln(0.049) / 6 = -0.503.
        ("never", [((1, 2, 0), 0.441), ((1, 2, 2, 2, 2, 0), 0.049)], 6),
    ],
)
def test_beam_search_early_stopping(early_stopping, expected, steps):
    with np.errstate(divide="ignore"):
        table = jnp.log(jnp.asarray(MARKOV, jnp.float32))
    calls = []

    def step(tokens, cache):
        jax.debug.callback(lambda _: calls.append(1), tokens)
        return table[cache, tokens], cache + 1

    beams = search_with(
        step, jnp.zeros(1, jnp.int32), jnp.zeros(1, jnp.int32), beam_size=2, max_new_tokens=6,
        end_tokens=[0], early_stopping=early_stopping, num_best=2,
    )  # fmt: skip
    jax.effects_barrier()
    assert len(calls) == steps
    assert_same_hypotheses(
        jax.tree.map(np.asarray, beams), 0,
        [(tokens, np.log(total) / len(tokens)) for tokens, total in expected],
    )  # fmt: skip


def test_beam_search_gathers_every_leaf_of_the_cache():
    batch, beam_size, longest = 3, 4, 5
    tables, start = random_tables(14, batch, 5), np.arange(batch)
    seen = {}

    def record(row, length, history):
        assert len(set(length.tolist())) == 1
        seen[int(length[0])] = row, history[:, 0]

    def step(tokens, cache):
        length = cache["length"]
        history = cache["history"].at[jnp.arange(len(tokens)), 0, length].set(tokens)
        jax.debug.callback(record, cache["row"], length, history)
        node = next_node(cache["nodes"][0], tokens)
        cache = {"history": history, "nodes": (node,), "length": length + 1, "row": cache["row"]}
        return jnp.asarray(tables)[cache["row"], node], cache

    cache = {
        "history": np.full((batch, 1, longest), -1), "nodes": (np.zeros(batch, int),),
        "length": np.zeros(batch, int), "row": np.arange(batch),
    }  # fmt: skip
    options = {"beam_size": beam_size, "max_new_tokens": longest, "num_best": beam_size}
    options |= {"end_tokens": (END,), "early_stopping": "never"}
    search = functools.partial(search_with, step, **options)
    beams = jax.jit(search)(cache, start)
    jax.effects_barrier()
    # What the history leaf says is what the nodes, and so the logits, came from.
    jitted = searcher(**options)(tables, start)
    chex.assert_trees_all_close(beams, jitted, rtol=1e-6)
    assert len(seen) == longest
    for row in range(batch):
        for tokens, _ in hypotheses(jitted, row):
            for length in range(len(tokens)):
                rows, histories = seen[length]
                np.testing.assert_array_equal(rows, np.arange(batch).repeat(beam_size))
                assert [int(start[row]), *tokens[:length]] in (
                    histories[rows == row, : length + 1].tolist()
                )


def constant(logits, beam_size, batch=1, dtype=jnp.float32, **options):
    """Searches with the same logits at every step."""

    def step(tokens, cache):
        return jnp.tile(jnp.asarray(logits, dtype), (len(tokens), 1)), cache

    start = jnp.zeros(batch, jnp.int32)
    return search_with(step, (), start, beam_size=beam_size, num_best=beam_size, **options)


def test_beam_search_ties_go_to_the_lower_beam_then_the_lower_token():
    beams = constant(np.zeros(700), 3, max_new_tokens=2, end_tokens=[1])
    # Step 1: 0, 1 (ends), 2 lead; 0, 2, 3 run on. Step 2: 0 0, 0 1, 0 2 lead. All score ln(1/700).
    assert beams.tokens[0].tolist() == [[1, 1], [0, 0], [0, 1]]
    assert beams.lengths[0].tolist() == [1, 2, 2]
    np.testing.assert_allclose(beams.scores[0], -np.log(700), rtol=1e-6)


@pytest.mark.parametrize("size", [4_100, 11 * 256, 10 * 256])  # the last is not grouped
def test_largest_of_large_rows_is_top_k(size):
    """Also among equal values and -inf, which fill whole groups of 256 elements, too."""
    rows = np.random.default_rng(0).integers(-3, 3, (6, size)).astype(np.float32)
    rows[0, 1_000] = 9  # in a later group than the next largest
    rows[1] = 0
    rows[2] = -np.inf
    rows[3, : size // 2], rows[3, -1] = -np.inf, 7
    rows[4] = np.arange(size)
    rows[5] = -np.arange(size)
    values, index = jax.jit(largest, static_argnums=1)(rows, 5)
    chex.assert_trees_all_equal([values, index], list(jax.lax.top_k(rows, 5)))


def test_beam_search_drops_an_end_that_ranks_below_the_beams():
    logits = np.log([0.5, 0.3, 0.2])
    beams = constant(logits, 2, max_new_tokens=2, end_tokens=[2], length_penalty=-1.0)
    # The end alone would score ln(0.2) = -1.61, and 0 0, the best of length 2, 2 ln(0.25) = -2.77.
    assert beams.tokens[0].tolist() == [[0, 0], [0, 1]]
    beams = constant(logits, 3, max_new_tokens=2, end_tokens=[2], length_penalty=-1.0)
    assert beams.tokens[0, 0].tolist() == [2, 2] and beams.lengths[0, 0] == 1


@pytest.mark.parametrize(
    ("padding", "dtype"),
    # NaN so that it shows wherever such logits have a part, or none but another dtype.
    [([jnp.nan, jnp.inf, 9.0], jnp.float32), ([], jnp.bfloat16)],
)
def test_beam_search_ignores_padded_tokens_and_the_dtype(padding, dtype):
    options = {"max_new_tokens": 3, "end_tokens": [0]}
    logits = [1.0, 2.0, 0.5]  # exact in bfloat16; their probabilities are not
    expected = constant(logits, 8, **options)
    assert np.isfinite(expected.scores).all()
    beams = constant([*logits, *padding], 8, vocab_size=3, dtype=dtype, **options)
    chex.assert_trees_all_equal(beams, expected, strict=True)


def test_beam_search_of_a_vocabulary_of_one():
    beams = constant([0.5], 2, max_new_tokens=3, end_tokens=[0])
    assert beams.lengths.tolist() == [[1, 0]]
    assert beams.scores.tolist() == [[0, -jnp.inf]]


@pytest.mark.parametrize(
    ("value", "early_stopping"), [(-jnp.inf, True), (-jnp.inf, False), (jnp.nan, False)]
)
def test_beam_search_stops_where_nothing_runs_on(value, early_stopping):
    calls = []

    def step(tokens, cache):
        jax.debug.callback(lambda _: calls.append(1), tokens)
        return jnp.full((len(tokens), 3), value), cache

    search = functools.partial(
        search_with, step, (), np.zeros(1, int), beam_size=2, max_new_tokens=3, end_tokens=[0],
        num_best=2, early_stopping=early_stopping,
    )  # fmt: skip
    beams = jax.jit(search)()
    jax.effects_barrier()
    assert len(calls) == 1
    if not np.isnan(value):
        assert beams.lengths.tolist() == [[0, 0]] and beams.tokens.tolist() == [[[0] * 3] * 2]
    np.testing.assert_array_equal(beams.scores, np.full((1, 2), value))
    np.testing.assert_array_equal(beams.log_probs, np.full((1, 2), value))
