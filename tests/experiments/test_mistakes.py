"""Each mistake happens as the museum says; its cure is right, and its guard holds."""

import math

import cures
import numpy as np
import pytest
import six_words
from exhibits import MISTAKES

# What of the four documents changes a result: document, and a line of it.
RESULT_CHANGING = [
    (1, 131), (1, 725), (1, 1060), (1, 1170), (1, 1216), (2, 202), (3, 95), (3, 222), (3, 271),
    (4, 96), (4, 102), (4, 94), (4, 163), (4, 165),
]  # fmt: skip


def find(document, line):
    return MISTAKES[RESULT_CHANGING.index((document, line))]


def both(document, line):
    """What the mistake gives, and what its cure does."""
    mistake = find(document, line)
    wrong, right = mistake.mistaken(*mistake.inputs), mistake.cure(*mistake.inputs)
    return np.asarray(wrong), np.asarray(right)


def softmax(scores, hidden=False):
    """In float64; a row of which all is hidden is 0."""
    scores = np.where(hidden, -np.inf, np.asarray(scores, np.float64))
    largest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    return powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300)


def layer_norm(x):
    x = np.asarray(x, np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + 1e-5)


SCORES = np.float64(cures.QUERY) @ np.float64(cures.KEY).T / math.sqrt(2)
LATER = np.arange(3) > np.arange(3)[:, None]


def test_museum_has_every_mistake_that_changes_a_result():
    assert len(MISTAKES) == len(RESULT_CHANGING) == 14
    for mistake, (document, line) in zip(MISTAKES, RESULT_CHANGING, strict=True):
        assert mistake.document == document
        assert any(first <= line <= last for first, last in mistake.lines), mistake.title
    assert len({mistake.title for mistake in MISTAKES}) == 14


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_museum_shows_wrong_beside_right(mistake):
    step = mistake.as_step()
    shown = step.show()
    assert mistake.happens in shown.text and mistake.guard in shown.text
    wrong, right = shown.sides
    assert (wrong.title, right.title) == ("Mistaken", "Right")
    assert (wrong.function, right.function) == (mistake.mistaken, mistake.cure)
    assert wrong.formula != right.formula
    assert {side.caption for side in shown.sides} == {mistake.caption}
    assert "nan" not in str(right.table.as_text()) and right.table.marked is None
    lines = [wrong.table.as_text()[1:], right.table.as_text()[1:]]
    if wrong.table.columns == right.table.columns:
        differ = [
            [cell != right_cell for cell, right_cell in zip(a[1:], b[1:], strict=True)]
            for a, b in zip(*lines, strict=True)
        ]
        assert np.array(differ).any()
        np.testing.assert_array_equal(wrong.table.marked, differ)
    else:
        assert lines[0] != lines[1] and wrong.table.marked is not None


def is_nan_in(*rows):
    return lambda wrong: np.isnan(wrong[list(rows)]).any(axis=-1).all()


@pytest.mark.parametrize(
    ("place", "happens", "expected"),
    [
        ((1, 725), is_nan_in(0, 1), lambda scores, *_: softmax(scores)),
        ((1, 1060), is_nan_in(1), lambda *_: softmax(SCORES, LATER)),
        ((1, 1170), is_nan_in(0), lambda x, *_: layer_norm(x)),
        ((3, 95), lambda wrong: np.allclose(wrong, softmax(SCORES, LATER)),
         lambda *_: softmax(SCORES)),
        ((3, 271), lambda wrong: np.abs(wrong[0] - wrong[1]).max() > 3,
         lambda *_: np.stack([layer_norm(cures.SENTENCE)] * 2)),
        ((4, 96), is_nan_in(0, 1, 2), lambda *_: softmax(SCORES, LATER)),
        ((4, 102), lambda wrong: np.abs(wrong.sum(axis=-1) - 1).max() > 0.3,
         lambda query, key: softmax(np.float64(query) @ np.swapaxes(key, 1, 2) / math.sqrt(2))),
        ((4, 94), lambda wrong: (wrong[:2][~LATER[:2]] == 0).all(),
         lambda *_: softmax(SCORES, LATER)),
        ((4, 163), is_nan_in(1), lambda *_: softmax(SCORES, ~cures.SECOND_SEES_NOTHING)),
    ],
    ids=lambda value: str(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_mistake_happens_and_its_cure_is_right(place, happens, expected):
    wrong, right = both(*place)
    assert happens(wrong)
    np.testing.assert_allclose(right, expected(*find(*place).inputs), atol=1e-4)


def test_feed_forward_of_the_input_knows_no_other_word():
    wrong, right = both(1, 1216)
    np.testing.assert_array_equal(wrong[0], wrong[1])
    assert np.abs(right[0] - right[1]).max() > 0.1


def test_odd_width_is_an_error_of_shapes():
    mistake = find(3, 222)
    with pytest.raises(ValueError, match=r"\(10,3\) into shape \(10,2\)"):
        mistake.mistaken(*mistake.inputs)
    assert np.asarray(mistake.cure(*mistake.inputs)).shape == (10, 5)


def test_dropout_in_evaluation_changes_the_weights_from_call_to_call():
    wrong, right = both(4, 165)
    assert np.abs(wrong[0] - wrong[1]).max() > 0.1
    np.testing.assert_array_equal(right[0], right[1])


def test_odd_width_keeps_a_column_of_0():
    wrong, right = both(1, 131)
    assert (wrong[:, 4] == 0).all()
    printed = [0, 6.3096e-4, 1.2619e-3, 1.8929e-3, 2.5238e-3]
    np.testing.assert_allclose(right[:, 4], printed, rtol=5e-5)
    angles = np.arange(5)[:, None] / 10_000 ** (np.array([0, 0, 2, 2, 4]) / 5)
    expected = np.where(np.arange(5) % 2, np.cos(angles), np.sin(angles))
    np.testing.assert_allclose(right, expected, atol=1e-6)
    np.testing.assert_allclose(wrong[:, :4], expected[:, :4], atol=1e-12)


def test_leaked_width_makes_the_tables_of_its_document():
    """As test_self_attention_by_hand.py compares them with what is printed."""
    for d_k, columns in zip((six_words.LEAKED_D_K, 2), both(2, 202), strict=True):
        expected = np.hstack([six_words.weights(d_k), six_words.contexts(d_k)])
        np.testing.assert_allclose(columns, expected, rtol=0, atol=1e-6)
