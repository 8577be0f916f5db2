import math

import four_words as script
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


def test_document_shows_every_step_in_order():
    assert assert_shows(DOCUMENT, 174) == [
        "score_distributions", "four_words_scores", "four_words_weights", "four_words_heads"
    ]  # fmt: skip
    figure = DOCUMENT.steps[4].show().figures["four_words_scores"]
    assert [axes.get_title() for axes in figure.axes[:3]] == ["raw", "scaled", "masked"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["my", "name", "is", "prathamesh"]
