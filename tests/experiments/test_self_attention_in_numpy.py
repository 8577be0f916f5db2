import math

import four_words as script
import jax
import numpy as np
import pytest
from self_attention_in_numpy import DOCUMENT

from tests.experiments.printed import assert_shows


def attend_by_loops(drawn, *, is_causal):
    """Scores, weights and values in float64, one number after the other."""
    length, width = drawn.query.shape
    scores = np.full((length, length), -math.inf)
    for t in range(length):
        for s in range(t + 1 if is_causal else length):
            scores[t, s] = sum(drawn.query[t] * drawn.key[s]) / math.sqrt(width)
    weights = np.zeros_like(scores)
    for t in range(length):
        for s in range(length):
            weights[t, s] = 1 / sum(math.exp(other - scores[t, s]) for other in scores[t]) if (
                scores[t, s] > -math.inf
            ) else 0  # fmt: skip
    values = np.array(
        [sum(w * v for w, v in zip(row, drawn.value, strict=True)) for row in weights]
    )
    return scores, weights, values


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize(
    ("function", "tolerance"), [(script.attend, 1e-6), (script.attend_in_numpy, 1e-14)]
)
def test_attention_equals_loops_in_float64(function, tolerance, is_causal):
    drawn = script.draw()
    assert [part.shape for part in drawn] == [(4, 8)] * 3
    scores, weights, values = attend_by_loops(drawn, is_causal=is_causal)
    result = {
        name: np.asarray(array) for name, array in function(drawn, is_causal=is_causal).items()
    }
    np.testing.assert_allclose(result["raw"], drawn.query @ drawn.key.T, atol=8 * tolerance)
    np.testing.assert_allclose(
        result["scaled"] * math.sqrt(8), drawn.query @ drawn.key.T, atol=8 * tolerance
    )
    np.testing.assert_allclose(result["masked"], scores, atol=2 * tolerance)
    np.testing.assert_allclose(result["weights"], weights, atol=tolerance)
    np.testing.assert_allclose(result["values"], values, atol=tolerance)


def test_attention_of_the_draw_is_what_it_was():
    causal = script.attend(script.draw(), is_causal=True)
    printed = [
        [0.8268, 0.1732, 0, 0],
        [0.3401, 0.4126, 0.2474, 0],
        [0.1022, 0.0310, 0.6839, 0.1829],
    ]
    np.testing.assert_allclose(causal["weights"][1:], printed, rtol=0, atol=5.1e-5)
    np.testing.assert_array_equal(causal["values"][0], np.float32(script.draw().value[0]))
    full = script.attend(script.draw(), is_causal=False)
    np.testing.assert_allclose(full["weights"][3], causal["weights"][3], atol=1e-7)
    assert full["weights"][0, 3] > 0


def test_scaling_brings_the_variance_of_scores_to_1_over_many_draws_and_not_in_one():
    raw, scaled = map(np.asarray, script.sample_scores())
    assert raw.shape == scaled.shape == (10_000, 4, 4)
    assert 7.9 < raw.var() < 8.1 and 0.99 < scaled.var() < 1.01
    np.testing.assert_allclose(raw, scaled * math.sqrt(8), atol=1e-5)
    low, high = np.quantile(raw.var(axis=(1, 2)), [0.05, 0.95])
    assert low < 3 and high > 14


def test_mask_and_bias_hide_the_same():
    by_mask, by_bias = script.weights_by_mask_and_by_bias()
    np.testing.assert_allclose(by_mask, by_bias, rtol=0, atol=1e-7)
    _, weights, _ = attend_by_loops(script.draw(), is_causal=True)
    np.testing.assert_allclose(by_mask, weights, atol=1e-6)


def test_scores_take_the_square_of_the_length():
    assert script.attend(script.draw(), is_causal=True)["raw"].nbytes == script.score_bytes(4) == 64


def test_words_are_four_vectors_with_their_positions():
    x = np.asarray(script.embed_words())
    assert x.shape == (1, 4, 512)
    positions = np.arange(4)[:, None] / 10_000 ** (np.arange(0, 512, 2) / 512)
    encoding = np.stack([np.sin(positions), np.cos(positions)], axis=-1).reshape(4, 512)
    table = np.asarray(jax.random.normal(jax.random.key(1), (6, 512)))  # unknown and end as well
    distances = np.abs((x[0] - encoding)[:, None] - table).max(axis=-1)
    assert (distances.min(axis=1) < 1e-5).all() and len(set(distances.argmin(axis=1))) == 4


def test_layer_equals_one_head_after_the_other_in_float64():
    _, variables = script.multi_head_layer()
    params = {name: np.asarray(leaf, np.float64) for name, leaf in variables["params"].items()}
    shapes = {name: leaf.shape for name, leaf in params.items()}
    assert shapes == {
        f"{part}_{kind}": shape
        for part in ("query", "key", "value", "output")
        for kind, shape in (("kernel", (512, 512)), ("bias", (512,)))
    }
    x = np.asarray(script.embed_words()[0], np.float64)
    result, heads = script.run_layer(), []
    for head in range(8):
        columns = slice(64 * head, 64 * head + 64)
        drawn = script.Draw(
            *(x @ params[f"{part}_kernel"][:, columns] for part in ("query", "key", "value"))
        )
        _, weights, values = attend_by_loops(drawn, is_causal=True)
        np.testing.assert_allclose(result.weights[0, head], weights, atol=1e-5)
        heads.append(values)
    output = np.concatenate(heads, axis=-1) @ params["output_kernel"]
    np.testing.assert_allclose(result.output[0], output, atol=1e-5)


def test_layer_drops_in_training_alone_and_returns_weights_from_before():
    outputs = [script.run_layer(dropout_seed=seed) for seed in (None, None, 0, 1)]
    evaluated, again, dropped, dropped_again = jax.tree.map(np.asarray, outputs)
    np.testing.assert_array_equal(evaluated.output, again.output)
    assert np.abs(dropped.output - dropped_again.output).max() > 0.1
    for trained in (dropped, dropped_again):
        np.testing.assert_allclose(trained.weights, evaluated.weights, atol=1e-7)
    np.testing.assert_allclose(dropped.weights.sum(-1), 1, atol=1e-6)


def test_uneven_heads_are_refused_by_rule_values_and_remedy():
    message = script.message_of_uneven_heads()
    assert "d_model must be a multiple of num_heads" in message
    assert "d_model=10 and num_heads=4" in message and "head_dim" in message


def test_document_shows_every_step_in_order():
    assert assert_shows(DOCUMENT, 174) == [
        "score_distributions", "four_words_scores", "four_words_weights", "four_words_heads"
    ]  # fmt: skip
    figure = DOCUMENT.steps[4].show().figures["four_words_scores"]
    assert [axes.get_title() for axes in figure.axes[:3]] == ["raw", "scaled", "masked"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["my", "name", "is", "prathamesh"]
