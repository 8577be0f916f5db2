import functools

import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import DataError, ShapeError
from jaxformer.functional import dot_product_attention
from jaxformer.testing import assert_packing_invariant
from tests.testing.foreign import attention

RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(11, size=(2, 7))
IDS = np.array([[1, 1, 1, 2, 2, 2, 0], [4, 4, 4, 0, 0, 0, 0]])
EMBEDDINGS = RANDOM.standard_normal((2, 7, 1, 3))  # [B, T, N, H]
TABLE, PLACES = jnp.asarray(RANDOM.standard_normal((2, 11, 1, 3)))


def same(ids):
    return ids[:, None, :, None] == ids[:, None, None, :]


def model(tokens, ids, positions, *, mask=same, restart=True):
    """A decoder of one attention layer, and ways to get packing wrong."""
    if not restart:
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1])[None], tokens.shape)
    x = TABLE[tokens] + PLACES[positions]
    return attention(x, x, x, mask=mask(ids), is_causal=True)


def test_attention_is_held_to_it_by_segment_ids_or_by_a_mask():
    def by_ids(x, ids, positions):
        return dot_product_attention(x, x, x, query_segment_ids=ids, key_value_segment_ids=ids)

    assert_packing_invariant(by_ids, EMBEDDINGS, IDS)
    assert_packing_invariant(model, TOKENS, IDS)


def no_mask(ids):
    return jnp.ones((1, 1, 1, 1), bool)


@pytest.mark.essential
@pytest.mark.parametrize("restart", [False, True])
def test_packing_check_catches_attention_across_documents_whatever_the_positions(restart):
    """The two states of huggingface/nanoVLM before its pull request 204."""
    broken = functools.partial(model, mask=no_mask, restart=restart)
    with pytest.raises(AssertionError) as caught:
        assert_packing_invariant(broken, TOKENS, IDS)
    message = str(caught.value)
    assert message.startswith(
        "packing: the outputs of a document must not depend on other documents or padding of its "
        "row\n  where:        output[b=0, t=3] of document 2, input[b=0, t=0] of document 1; 9 "
        "such pairs in total\n  got:          relative change of the output"
    )
    assert "likely cause: attention does not use the segment ids (causal" in message


def test_packing_check_names_positions_that_do_not_restart():
    with pytest.raises(AssertionError) as caught:
        assert_packing_invariant(functools.partial(model, restart=False), TOKENS, IDS)
    message = str(caught.value)
    assert "its place in the row (got: packed; expected: each document alone)" in message
    assert "likely cause: positions continue through the row" in message


def shifted(x, ids, positions):
    return x + 0.5 * jnp.roll(x, 1, axis=1).at[:, 0].set(0)


def normalized_over_the_row(x, ids, positions):
    return x - x.mean(axis=1, keepdims=True)


def padding_seen(x, ids, positions):
    return attention(x, x, x, mask=same(ids) | (ids == 0)[:, None, None, :])


def divided_by_the_row(x, ids, positions):
    return jnp.einsum("bnts,bsnh->btnh", same(ids) / x.shape[1], x)


def other_key_0(x, ids, positions):
    return attention(x, x.at[:, 0].multiply(3.0), x, mask=same(ids), is_causal=True)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (shifted, r"output\[b=0, t=3\] .*input\[b=0, t=2\] of document 1; 1 such pairs"
         r"(.*\n)*.*one document influences the next"),
        (normalized_over_the_row, "a mean or normalization is computed over the whole row"),
        (padding_seen, r"input\[b=0, t=6\] of the padding; 18 such pairs"),
        (divided_by_the_row, "depends on the length of the row"),
        (other_key_0, r"use the given positions\), attention treats key 0 specially"),
    ],
)  # fmt: skip
def test_packing_check_names_the_mistake(broken, message):
    with pytest.raises(AssertionError, match=message):
        assert_packing_invariant(broken, EMBEDDINGS, IDS)


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (IDS[:, :6], ShapeError, r"\[B, T\] of the inputs, \(2, 7\), got int64 of shape \(2, 6\)"),
        (IDS.astype(float), ShapeError, "got float64"),
        (IDS - 1, DataError, r"got \[0, 0, 0, 1, 1, 1, -1\] in row 0"),
        (IDS * (IDS != 1), DataError, r"0 in the padding at its end, got \[0, 0, 0, 2, 2, 2, 0\]"),
        (IDS + (IDS == 0), DataError, r"for each document .*, got \[1, 1, 1, 2, 2, 2, 1\]"),
        ([[1] * 7, [2] * 6 + [0]], DataError, r"two documents or more, got \[1, 1\] in the rows"),
    ],
)
def test_packing_check_says_what_it_cannot_check(ids, error, message):
    with pytest.raises(error, match=message):
        assert_packing_invariant(model, TOKENS, ids)
