import from_scratch_attention as attention
import from_scratch_blocks as blocks
import from_scratch_heads as heads
import from_scratch_inputs as inputs
import from_scratch_positions as positions
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from positions import positions_by_array, positions_by_loop
from scores import weights_of_scores
from transformer_from_scratch import DOCUMENT

from jaxformer.functional import causal, layer_norm
from tests.experiments.from_scratch_tables import (
    MASKED,
    POSITIONS_4_4,
    POSITIONS_5_5,
    POSITIONS_8_10,
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


def test_word_ids_are_the_same_in_every_run():
    assert inputs.word_tokenizer().words == {
        "i": 1, ".": 2, "am": 3, "deep": 4, "learning": 5, "like": 6, "nlp": 7, "to": 8, "and": 9,
        "combine": 10, "it": 11, "new": 12, "trying": 13, "with": 14,
    }  # fmt: skip
    assert inputs.word_tokenizer().encode("i like chess").tolist() == [1, 6, 0]


def test_byte_pairs_stay_within_a_word():
    pieces = [row[1] for row in inputs.show_byte_pairs().tables.popitem()[1].as_text()[1:]]
    pieces = [piece.strip("'") for piece in pieces]
    assert "".join(pieces) == "I am new to NLP with Deep Learning."
    assert not any(" " in piece[1:] for piece in pieces)
    assert max(map(len, pieces)) > 3


def test_embedding_gives_a_word_one_vector():
    vectors = inputs.embed_words("I like NLP", 10)
    assert vectors.shape == SHAPES["embedding"]
    np.testing.assert_array_equal(vectors, inputs.embed_words("NLP like I", 10)[::-1])
    shapes = inputs.show_embedding().tables["Shapes"].as_text()
    assert shapes[2][1] == str(SHAPES["batch"])


@pytest.mark.parametrize("make", [positions_by_loop, positions_by_array])
def test_positions_are_those_printed(make):
    printed = np.array(POSITIONS_5_5)
    assert_printed(make(5, 5), printed, decimals=9, input_error=five_digits(printed))
    assert_printed(make(4, 4, base=100.0), POSITIONS_4_4, decimals=6)
    assert_printed(make(8, 10, base=100.0), POSITIONS_8_10, decimals=6)


def test_loop_of_the_document_leaves_the_last_odd_column_at_zero():
    right, printed = positions_by_loop(5, 5), positions.PRINTED_POSITIONS_BY_LOOP
    assert_printed(right[:, :4], printed[:, :4])
    assert (printed[:, 4] == 0).all()
    assert_printed(right[:, 4], [0, 0.00063, 0.00126, 0.00189, 0.00252], decimals=5)
    assert (np.abs(right[1:, 4] - printed[1:, 4]) > 6e-4).all()


@pytest.mark.parametrize("width", [1, 4, 5, 25])
def test_positions_by_loop_are_those_by_array(width):
    by_array = positions_by_array(10, width)
    np.testing.assert_allclose(by_array, positions_by_loop(10, width), rtol=0, atol=2e-7)


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


def test_even_widths_are_similar_by_distance_alone():
    similar = np.asarray(positions.cosine_similarities(positions_by_array(8, 10, base=100.0)))
    np.testing.assert_allclose(similar[0, 3], similar[2, 5], rtol=0, atol=3e-7)


def test_embeddings_and_positions_are_the_printed_sum():
    total = positions.embeddings_with_positions()
    assert total.shape == SHAPES["sum"]
    assert_printed(total, SUM_8_10, decimals=6, input_error=0.5e-6)
    assert str(SHAPES["batched sum"]) in positions.show_sum().text


def test_projections_have_the_printed_shapes():
    x = inputs.embed_words("I like learning NLP", 30)
    assert [part.shape for part in attention.project(x, 24, 30)] == SHAPES["projections"]
    assert attention.context_of_four_words().shape == SHAPES["attention"]


def test_positive_kernels_make_scores_of_nearly_rank_one():
    printed = attention.singular_values(attention.PRINTED_SCORES)
    assert_printed(printed, [14.88, 0.20, 0.18, 0.01], decimals=2)
    drawn = attention.singular_values(attention.scores_of_positive_kernels())
    around_zero = np.array(
        attention.show_scores().tables["Singular values of the scores"].cells[2], np.float64
    )
    assert drawn[0] > 10 * drawn[1]
    assert around_zero[0] < 5 * around_zero[1]


def test_softmax_examples_are_those_printed():
    assert_printed(weights_of_scores([[1.0, 1.0, 1.0, 1.0]]), [[0.25] * 4])
    rows = weights_of_scores([[1.0, 1.0, 1.0, -1.0], [1.0, 2.0, 1.0, 4.0]])
    assert_printed(rows, [[0.3189, 0.3189, 0.3189, 0.0432], [0.0403, 0.1096, 0.0403, 0.8098]])


def test_softmax_of_large_scores_is_finite_where_the_documents_is_not():
    scores = np.array([[89.0, 0.0], [-200.0, -200.0]], np.float32)
    np.testing.assert_allclose(weights_of_scores(scores), [[1, 0], [0.5, 0.5]], atol=1e-7)
    with np.errstate(over="ignore", invalid="ignore"):
        unstable = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert np.isnan(unstable).any(axis=1).all()


def test_scaling_gives_the_printed_scores_and_weights():
    scores = attention.PRINTED_SCORES
    error = five_digits(WEIGHTS_UNSCALED) + 2 * SCORE_ERROR * WEIGHTS_UNSCALED
    unscaled = np.asarray(weights_of_scores(scores))
    assert (np.abs(unscaled - WEIGHTS_UNSCALED) <= error).all()
    scaled = weights_of_scores(scores, scale=24**-0.5, stage="scores")
    assert_printed(scaled, SCORES_SCALED, input_error=SCORE_ERROR / 24**0.5)
    error = 2 * SCORE_ERROR / 24**0.5 * WEIGHTS_SCALED
    assert_printed(weights_of_scores(scores, scale=24**-0.5), WEIGHTS_SCALED, input_error=error)


def test_fair_game_rows_sum_to_one_and_columns_do_not():
    weights = np.asarray(weights_of_scores(attention.fair_game_scores()))
    fair = attention.FAIR_GAME.index("fair")
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)
    assert weights[:, fair].sum() > 2 and weights[0, fair] == pytest.approx(1 / 8)
    marked = {"to", "be", "a", "fair", "game"}
    looked_at = [
        word for word, w in zip(attention.FAIR_GAME, weights[fair], strict=True) if w > 0.1
    ]
    assert set(looked_at) == marked


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
    np.testing.assert_array_equal(weights_of_scores(scores, mask=causal(5, 5)), weights)


def test_mask_by_value_hides_scores_of_zero():
    scores = heads.PRINTED_RANDOM.copy()
    np.testing.assert_allclose(
        heads.masked_by_value(scores), weights_of_scores(scores, is_causal=True)
    )
    scores[2, 0], scores[4] = 0, 0
    wrong, right = heads.masked_by_value(scores), weights_of_scores(scores, is_causal=True)
    assert wrong[2, 0] == 0 and (wrong[4] == 0).all()
    assert_printed(right[2], [0.2228, 0.4018, 0.3754, 0, 0], input_error=3e-5)
    np.testing.assert_allclose(right[4], 0.2, atol=1e-6)


def test_masked_heads_see_no_later_word():
    x, params = (
        inputs.embed_words(" ".join(attention.SIX_WORDS), 100),
        heads.multi_head_params(),
    )
    masked = heads.multi_head_fused(params, x, is_causal=True)
    assert (np.asarray(masked.weights)[:, ~np.tri(6, dtype=bool)] == 0).all()
    np.testing.assert_allclose(masked.weights.sum(-1), 1, atol=1e-6)
    changed = heads.multi_head_fused(params, x.at[3:].add(1), is_causal=True)
    np.testing.assert_allclose(masked.output[:3], changed.output[:3], rtol=0, atol=1e-6)
    assert float(jnp.abs(masked.output[3] - changed.output[3]).max()) > 0.1


def test_block_by_functions_is_that_of_the_module():
    by_hand = blocks.block_by_hand()
    assert by_hand.shape == SHAPES["output"]
    np.testing.assert_allclose(by_hand, blocks.block_by_module(), rtol=0, atol=2e-5)


def test_layer_norm_keeps_the_shape_of_the_distribution():
    before = blocks.residual_sum()
    assert before.shape == SHAPES["six words"]
    for token, normalized in zip(before, layer_norm(before), strict=True):
        old, new = blocks.moments(token), blocks.moments(normalized)
        np.testing.assert_allclose(new[:2], [0, 1], atol=1e-4)
        assert abs(old[0]) > 1e-3 and abs(old[1] - 1) > 0.1
        np.testing.assert_allclose(new[2:], old[2:], atol=1e-4)
        assert np.abs(old[2:]).max() > 0.1


def test_moments_are_those_of_known_values():
    np.testing.assert_allclose(blocks.moments([0, 0, 0, 4]), [1, 3, 2 / 3**0.5, 7 / 3 - 3])


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


def test_next_token_is_the_most_likely_of_the_last_position():
    logits = np.asarray(blocks.next_token_logits())
    assert logits.shape == (1, 6, inputs.word_tokenizer().vocab_size)
    assert np.abs(logits[0, -1] - logits[0, 0]).max() > 0.1
    shown = blocks.show_next_token()
    assert f"token {logits[0, -1].argmax()}," in shown.text
    likeliest = np.sort(np.exp(logits[0, -1]) / np.exp(logits[0, -1]).sum())[::-1][:4]
    column = [float(row[3]) for row in shown.tables.popitem()[1].as_text()[1:]]
    assert_printed(column, likeliest)
