import from_scratch_attention as attention
import from_scratch_blocks as blocks
import from_scratch_heads as heads
import from_scratch_inputs as inputs
import from_scratch_positions as positions
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from histograms import draw_histograms
from positions import positions_by_array, positions_by_loop
from scores import weights_of_scores
from transformer_from_scratch import DOCUMENT

from jaxformer.functional import Causal
from tests.experiments.from_scratch_tables import (
    MASKED,
    POSITIONS_5_5,
    SCORES_SCALED,
    SHAPES,
    SUM_8_10,
    WEIGHTS_SCALED,
    WEIGHTS_UNSCALED,
)
from tests.experiments.printed import assert_printed, assert_shows

# What a score of 4 decimals leaves open: weights are exp(score), over their sum.
SCORE_ERROR = 0.5e-4


def five_digits(printed):
    """Half of the fifth digit of each number."""
    printed = np.abs(np.asarray(printed))
    return np.where(printed > 0, 0.5 * 10 ** (np.floor(np.log10(printed + (printed == 0))) - 4), 0)


def test_all_steps_show_in_the_order_of_the_document():
    assert len(assert_shows(DOCUMENT, 1289)) == 15


@pytest.mark.parametrize("make", [positions_by_loop, positions_by_array])
def test_positions_are_those_printed(make):
    printed = np.array(POSITIONS_5_5)
    assert_printed(make(5, 5), printed, decimals=9, input_error=five_digits(printed))


@pytest.mark.parametrize(("base", "radians"), [(10.0, 1.0), (1000.0, 0.013)])
def test_last_dimensions_turn_as_the_text_says(base, radians):
    sine, cosine = positions_by_array(10, 40, base=base)[9, -2:]
    assert_printed(np.arctan2(sine, cosine), radians, decimals=1 if base == 10 else 3)


def test_cosine_similarities_are_those_printed():
    table = positions_by_array(10, 25, base=100.0)
    similar = np.asarray(positions.cosine_similarities(table))
    assert_printed(similar[[0, 0, 1, 5], [1, 5, 2, 2]], [0.9245, 0.4458, 0.9245, 0.5639])
    # Nearly a function of the distance, as the width is odd, and not a falling one.
    assert 1e-6 < abs(similar[0, 3] - similar[2, 5]) < 1e-4
    assert similar[0, 6] > similar[0, 5] + 5e-3
    assert (np.diff(similar[0, :6]) < -1e-2).all()


def test_embeddings_and_positions_are_the_printed_sum():
    total = positions.embeddings_with_positions()
    assert total.shape == SHAPES["sum"]
    assert_printed(total, SUM_8_10, decimals=6, input_error=0.5e-6)
    assert str(SHAPES["batched sum"]) in positions.show_sum().text


def test_projections_have_the_printed_shapes():
    x = inputs.embed_words("I like learning NLP", 30)
    assert [part.shape for part in attention.project(x, 24, 30)] == SHAPES["projections"]
    assert attention.context_of_four_words().shape == SHAPES["attention"]


def test_softmax_examples_are_those_printed():
    assert_printed(weights_of_scores([[1.0, 1.0, 1.0, 1.0]]), [[0.25] * 4])
    rows = weights_of_scores([[1.0, 1.0, 1.0, -1.0], [1.0, 2.0, 1.0, 4.0]])
    assert_printed(rows, [[0.3189, 0.3189, 0.3189, 0.0432], [0.0403, 0.1096, 0.0403, 0.8098]])


def test_scaling_gives_the_printed_scores_and_weights():
    scores = attention.PRINTED_SCORES
    error = five_digits(WEIGHTS_UNSCALED) + 2 * SCORE_ERROR * WEIGHTS_UNSCALED
    unscaled = np.asarray(weights_of_scores(scores))
    assert (np.abs(unscaled - WEIGHTS_UNSCALED) <= error).all()
    scaled = weights_of_scores(scores, scale=24**-0.5, stage="scores")
    assert_printed(scaled, SCORES_SCALED, input_error=SCORE_ERROR / 24**0.5)
    error = 2 * SCORE_ERROR / 24**0.5 * WEIGHTS_SCALED
    assert_printed(weights_of_scores(scores, scale=24**-0.5), WEIGHTS_SCALED, input_error=error)


def test_heads_by_loop_are_those_all_at_once():
    x, params = (
        inputs.embed_words(" ".join(attention.SIX_WORDS), 100),
        heads.multi_head_params(),
    )
    by_head, output = heads.multi_head_by_loop(params, x)
    fused = heads.multi_head_fused(params, x)
    assert x.shape == SHAPES["six words"] and by_head.shape == SHAPES["heads"]
    assert fused.weights.shape == SHAPES["weights"] and fused.output.shape == SHAPES["output"]
    np.testing.assert_allclose(output, fused.output, rtol=0, atol=1e-5)
    # Heads differ, so that the order in which they are merged is seen.
    assert float(jnp.abs(by_head[0] - by_head[1]).max()) > 0.1


def test_causal_mask_gives_the_printed_scores():
    scores = heads.PRINTED_RANDOM
    masked = np.asarray(weights_of_scores(scores, is_causal=True, stage="masked"))
    seen = np.isfinite(MASKED)
    np.testing.assert_array_equal(np.isneginf(masked), ~seen)
    assert_printed(masked[seen], np.array(MASKED)[seen])
    weights = np.asarray(weights_of_scores(scores, is_causal=True))
    expected = np.exp(MASKED) / np.exp(MASKED).sum(1, keepdims=True)
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-6)
    assert (weights[~seen] == 0).all()  # exp(-inf), line 1048
    np.testing.assert_array_equal(weights_of_scores(scores, mask=Causal().array(5, 5)), weights)


def test_block_by_functions_is_that_of_the_module():
    by_hand = blocks.block_by_hand()
    assert by_hand.shape == SHAPES["output"]
    np.testing.assert_allclose(by_hand, blocks.block_by_module(), rtol=0, atol=2e-5)


def test_six_layers_have_six_times_the_parameters():
    shapes = [leaf.shape for leaf in jax.tree.leaves(blocks.linear_layers(6))]
    assert shapes == [(10, 10), (10,)] * 6  # 1253 to 1264
    assert blocks.count_numbers(blocks.linear_layers(6)) == 660
    rows = {row[0]: row[1:] for row in blocks.show_repeated_block().tables["Parameters"].as_text()}
    projections = 2 * (100 * 84 + 84) + (100 * 90 + 90) + (90 * 100 + 100)
    feed_forward, norm = (100 * 300 + 300) + (300 * 100 + 100), 200
    block = projections + feed_forward + 2 * norm
    assert rows["the block of the steps before"] == [str(block), str(6 * block)]
    crossed = block + projections + norm
    assert rows["with cross-attention"] == [str(crossed), str(6 * crossed)]
    assert rows["block of width 10"] == ["1330", "7980"]


def test_curves_are_the_rows_over_even_odd_and_all_dimensions():
    table = np.arange(10.0).reshape(2, 5)
    figure = positions.draw_curves(table)
    for panel, dimensions in zip(figure.axes, ([0, 2, 4], [1, 3], range(5)), strict=True):
        for row, line in enumerate(panel.lines):
            assert line.get_xdata().tolist() == [*dimensions]
            assert line.get_ydata().tolist() == table[row, [*dimensions]].tolist()
    assert [text.get_text() for text in figure.legends[0].texts] == ["position 0", "position 1"]


def test_histograms_are_densities_over_common_bins():
    figure = draw_histograms({"a": np.array([0, 0, 4]), "b": np.array([2])}, bins=2, x_label="x")
    labels = ["a: mean 1.33, std 1.89", "b: mean 2, std 0"]
    assert sorted(text.get_text() for text in figure.legends[0].texts) == labels
    densities = sorted(polygon.get_xy()[:, 1].max() for polygon in figure.axes[0].patches)
    np.testing.assert_allclose(densities, [1 / 3, 1 / 2])
