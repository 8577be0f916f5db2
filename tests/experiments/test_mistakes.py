"""Each mistake happens as the museum says; its cure is right, and its guard holds."""

import math

import cures
import flax
import jax
import jax.numpy as jnp
import mistaken
import numpy as np
import pytest
from exhibits import MISTAKES
from positions import positions_by_array
from scores import weights_of_scores

from jaxformer import functional
from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError, ShapeError

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
ATTEND = {"query": jnp.ones((3, 1, 2)), "key": jnp.ones((3, 1, 2))}


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


def test_museum_names_the_document_and_every_place():
    step = find(3, 95).as_step()
    assert step.heading == (
        "Multi-Headed Attention: the mask is on when it is switched off (lines 95 to 99)"
    )
    assert step.show().text.endswith(" (Also line 326.)")
    three = find(1, 725).as_step().show().text
    assert three.endswith(" (Also lines 916 to 917 and lines 1000 to 1001.)")
    assert "Also" not in find(4, 165).as_step().show().text


def test_odd_width_keeps_a_column_of_0():
    wrong, right = both(1, 131)
    assert (wrong[:, 4] == 0).all()
    printed = [0, 6.3096e-4, 1.2619e-3, 1.8929e-3, 2.5238e-3]
    np.testing.assert_allclose(right[:, 4], printed, rtol=5e-5)
    angles = np.arange(5)[:, None] / 10_000 ** (np.array([0, 0, 2, 2, 4]) / 5)
    expected = np.where(np.arange(5) % 2, np.cos(angles), np.sin(angles))
    np.testing.assert_allclose(right, expected, atol=1e-6)
    np.testing.assert_allclose(wrong[:, :4], expected[:, :4], atol=1e-12)


def test_softmax_without_maximum_is_nan():
    wrong, right = both(1, 725)
    assert np.isnan(wrong[0, 0]) and np.isnan(wrong[1]).all()
    expected = softmax(find(1, 725).inputs[0])
    np.testing.assert_allclose(right, expected, atol=1e-7)
    np.testing.assert_allclose(wrong[2], expected[2], atol=1e-7)
    huge = weights_of_scores(np.array([[1e30, 0], [-1e30, -1e30]], np.float32))
    assert huge.tolist() == [[1.0, 0.0], [0.5, 0.5]]


def test_mask_by_value_hides_scores_of_0():
    wrong, right = both(1, 1060)
    expected = softmax(SCORES, LATER)
    assert np.isnan(wrong[1]).all()
    assert wrong[2, 1] == 0 and expected[2, 1] > 0.2
    np.testing.assert_allclose(right, expected, atol=1e-7)


def test_epsilon_subtracted_is_nan_or_blows_up():
    wrong, right = both(1, 1170)
    assert np.isnan(wrong[0]).all()
    assert np.abs(wrong[1]).min() > 3
    np.testing.assert_allclose(right, layer_norm(find(1, 1170).inputs[0]), atol=1e-5)
    with pytest.raises(ConfigError, match="norm_eps"):
        ModelConfig(max_len=3, num_layers=1, d_model=4, num_heads=2, norm_eps=-1e-5)
    with pytest.raises(ConfigError, match="eps must be at least 0"):
        functional.layer_norm(jnp.ones(3), eps=-1e-5)


def test_feed_forward_of_the_input_knows_no_other_word():
    wrong, right = both(1, 1216)
    np.testing.assert_array_equal(wrong[0], wrong[1])
    assert np.abs(right[0] - right[1]).max() > 0.1
    x = np.float64(cures.SENTENCES)
    params = jax.tree.map(np.float64, cures.block()[1]["params"])
    attention, inner = params["attention"], params["feed_forward"]
    heads = []
    for part in (slice(0, 2), slice(2, 4)):
        query, key, value = (
            x @ attention[f"{name}_kernel"][:, part] for name in ("query", "key", "value")
        )
        heads.append(softmax(query @ key.swapaxes(1, 2) / math.sqrt(2)) @ value)
    x = layer_norm(x + np.concatenate(heads, axis=-1) @ attention["output_kernel"])
    hidden = np.maximum(x @ inner["up_kernel"], 0)
    expected = layer_norm(x + hidden @ inner["down_kernel"])[:, -1]
    np.testing.assert_allclose(right, expected, atol=1e-5)
    assert wrong.var(axis=-1).max() < 0.5 and np.allclose(right.var(axis=-1), 1, atol=1e-3)


# As printed, with the d_k of 256.
LEAKED_WEIGHTS = np.array(
    [[0.1678, 0.1681, 0.1644, 0.1683, 0.1667, 0.1647],
     [0.1681, 0.1685, 0.1639, 0.1686, 0.1667, 0.1642],
     [0.1681, 0.1687, 0.1634, 0.1691, 0.1668, 0.1639],
     [0.1683, 0.1688, 0.1634, 0.1690, 0.1667, 0.1638],
     [0.1684, 0.1689, 0.1632, 0.1691, 0.1667, 0.1636],
     [0.1686, 0.1692, 0.1628, 0.1694, 0.1667, 0.1632]]
)  # fmt: skip
LEAKED_CONTEXTS = np.array(
    [[0.2383, 0.2178], [0.2384, 0.2181], [0.2384, 0.2181],
     [0.2384, 0.2183], [0.2384, 0.2184], [0.2385, 0.2185]]
)  # fmt: skip


def test_leaked_width_makes_the_tables_that_are_printed():
    """Contexts to 1e-4: the matrices they are of are printed to 5e-5, and rounded again."""
    wrong, right = both(2, 202)
    np.testing.assert_allclose(wrong[:, :6], LEAKED_WEIGHTS, rtol=0, atol=6e-5)
    np.testing.assert_allclose(wrong[:, 6:], LEAKED_CONTEXTS, rtol=0, atol=1.1e-4)
    inputs, *kernels = (np.float64(part) for part in find(2, 202).inputs)
    query, key, value = (inputs @ kernel for kernel in kernels)
    weights = softmax(query @ key.T / math.sqrt(2))
    np.testing.assert_allclose(right[:, :6], weights, atol=1e-6)
    np.testing.assert_allclose(right[:, 6:], weights @ value, atol=1e-6)
    printed = [0.1821, 0.1867, 0.1370, 0.1885, 0.1658, 0.1400]  # of "big", before the leak
    np.testing.assert_allclose(right[1, :6], printed, rtol=0, atol=6e-5)
    np.testing.assert_allclose(right[1, 6:], [0.2413, 0.2311], rtol=0, atol=6e-5)


def test_mask_switched_off_by_false_is_on():
    wrong, right = both(3, 95)
    np.testing.assert_allclose(wrong, softmax(SCORES, LATER), atol=1e-7)
    np.testing.assert_allclose(right, softmax(SCORES), atol=1e-7)
    for switch in (None, 0, 1):
        with pytest.raises(ConfigError, match="is_causal must be True or False"):
            functional.attention_weights(**ATTEND, is_causal=switch)


def test_odd_width_is_an_error_of_shapes():
    mistake = find(3, 222)
    with pytest.raises(ValueError, match=r"\(10,3\) into shape \(10,2\)"):
        mistake.mistaken(*mistake.inputs)
    table = np.asarray(mistake.cure(*mistake.inputs))
    angles = np.arange(10)[:, None] / 10_000 ** (np.array([0, 0, 2, 2, 4]) / 5)
    expected = np.where(np.arange(5) % 2, np.cos(angles), np.sin(angles))
    np.testing.assert_allclose(table, expected, atol=1e-6)
    assert table.shape == (10, 5) and (table[1] != 0).all()
    assert positions_by_array(10, 1).shape == (10, 1)
    wrong, right = mistake.tables()
    assert "could not broadcast" in wrong.as_text()[1][1] and wrong.marked == [[True]]
    assert right.as_text()[1][1:] == ["0.0000", "1.0000", "0.0000", "1.0000", "0.0000"]


def test_layer_norm_over_the_batch_moves_a_sentence_by_its_neighbour():
    wrong, right = both(3, 271)
    assert np.abs(wrong[0] - wrong[1]).max() == pytest.approx(3.088, abs=1e-3)
    assert wrong[0, 0] > 0.8 and wrong[1, 0] < -2.2
    np.testing.assert_array_equal(right[0], right[1])
    np.testing.assert_allclose(right[0], layer_norm(cures.SENTENCE), atol=1e-4)
    alone = mistaken.layer_norm_over_batch(np.array([cures.SENTENCE]))
    np.testing.assert_allclose(alone[0], layer_norm(cures.SENTENCE), atol=1e-12)
    with pytest.raises(ShapeError, match="axis must name the last axes"):
        functional.layer_norm(jnp.ones((2, 5, 3)), axis=(0, 2))


def test_mask_edited_in_another_order_or_again_hides_all():
    wrong, right = both(4, 96)
    assert np.isnan(wrong).all() and not hasattr(np, "infty")
    np.testing.assert_allclose(right, softmax(SCORES, LATER), atol=1e-7)
    mask = np.tril(np.ones((3, 3)))
    for run in range(2):
        mask[mask == 0] = -np.inf
        mask[mask == 1] = 0
        assert np.isneginf(mask).all() == (run == 1)
    fixed = functional.causal(3, 3)
    with pytest.raises(TypeError):
        fixed[fixed] = False


def test_all_axes_reversed_is_another_product_or_an_error():
    wrong, right = both(4, 102)
    query, key = (np.float64(part) for part in find(4, 102).inputs)
    alone = [softmax(q @ k.T / math.sqrt(2)) for q, k in zip(query, key, strict=True)]
    np.testing.assert_allclose(right, alone, atol=1e-7)
    powers = np.exp(np.einsum("btd,sdb->bts", query, key) / math.sqrt(2))
    np.testing.assert_allclose(wrong, powers / powers.sum(axis=-1).T[..., None], rtol=1e-6)
    assert np.abs(wrong - right).max() > 0.5
    assert np.abs(wrong.sum(axis=-1) - 1).max() > 0.3
    sentence = mistaken.attend_by_transposing(query[0], key[0])  # two axes are what it is for
    np.testing.assert_allclose(sentence, alone[0], atol=1e-12)
    with pytest.raises(ValueError):
        mistaken.attend_by_transposing(np.ones((2, 3, 5)), np.ones((2, 3, 5)))
    assert np.isnan(mistaken.softmax_by_transposing(np.float32([[89, 0]]))).any()


def test_mask_of_the_other_convention_attends_to_the_forbidden():
    wrong, right = both(4, 94)
    assert (wrong[:2][~LATER[:2]] == 0).all()
    np.testing.assert_allclose(wrong[:2].sum(axis=-1), 1, atol=1e-6)
    assert np.isnan(wrong[2]).all()
    np.testing.assert_allclose(right, softmax(SCORES, LATER), atol=1e-7)
    with pytest.raises(ShapeError, match="mask must be bool.*bias"):
        functional.attention_weights(**ATTEND, mask=jnp.asarray(cures.ADDED_MASK))
    with pytest.raises(ShapeError, match="bias must be floating"):
        functional.attention_weights(**ATTEND, bias=functional.causal(3, 3))


def test_row_that_sees_nothing_is_nan_and_here_0():
    wrong, right = both(4, 163)
    assert np.isnan(wrong[1]).all() and not np.isnan(wrong[[0, 2]]).any()
    assert (right[1] == 0).all()
    hidden = ~cures.SECOND_SEES_NOTHING
    np.testing.assert_allclose(right, softmax(SCORES, hidden), atol=1e-7)

    def total(query):
        key = jnp.asarray(cures.KEY)[:, None]
        mask = jnp.asarray(cures.SECOND_SEES_NOTHING)
        return functional.dot_product_attention(query, key, 2 * key, mask=mask)[..., 0].sum()

    gradient = jax.jit(jax.grad(total))(jnp.asarray(cures.QUERY)[:, None])
    gradient = np.asarray(gradient)
    assert (gradient[1] == 0).all() and np.isfinite(gradient).all() and (gradient[2] != 0).any()


def test_dropout_in_evaluation_changes_the_weights_from_call_to_call():
    wrong, right = both(4, 165)
    assert np.abs(wrong[0] - wrong[1]).max() > 0.1
    assert (np.abs(wrong[:, 3] - 1) > 0.1).all()
    assert ((wrong[:, :3] == 0).sum(axis=1) == 1).all()
    np.testing.assert_array_equal(right[0], right[1])
    layer, variables = cures.dropping_layer()
    params, x = jax.tree.map(np.float64, variables["params"]), np.float64(cures.SENTENCES[0])
    query, key = (x @ params[f"{name}_kernel"][:, :2] for name in ("query", "key"))
    expected = softmax(query @ key.T / math.sqrt(2))[-1]
    np.testing.assert_allclose(right[0], [*expected, 1], atol=1e-6)
    with pytest.raises(flax.errors.InvalidRngError):
        layer.apply(variables, jnp.asarray(cures.SENTENCES), deterministic=False)
    with pytest.raises(ConfigError, match="dropout_rng"):
        functional.dot_product_attention(ATTEND["query"], ATTEND["key"], ATTEND["key"],
                                         dropout_rate=0.1)  # fmt: skip
