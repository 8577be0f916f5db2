import jax.numpy as jnp
import numpy as np
import pytest
import six_words
from scores import weights_of_scores
from self_attention_by_hand import DOCUMENT

from tests.experiments.printed import assert_printed, assert_shows

# All of them as the document prints them, by its lines.

KEYS = [  # 93 to 98
    [-4.8914e-01, -7.1363e-01], [-5.4880e-01, -8.0295e-01], [5.1548e-02, -4.6967e-01],
    [-5.8694e-01, -9.1428e-01], [-3.2846e-01, -7.2469e-01], [4.7331e-04, -5.4268e-01],
]  # fmt: skip
VALUES = [  # 101 to 106
    [0.3160, 0.6421], [0.2256, 0.2062], [0.3373, 0.6234],
    [0.3000, 0.3743], [0.1532, -0.1528], [0.0965, -0.3923],
]  # fmt: skip
QUERIES = [  # 109 to 114
    [-0.6176, 0.0433], [-0.8158, 0.1573], [-0.8079, -0.0725],
    [-0.9423, 0.1437], [-1.0144, 0.1871], [-1.1192, 0.1599],
]  # fmt: skip
SCORES = np.array([  # 150 to 155; the second row also 139 and 168
    [0.2712, 0.3042, -0.0522, 0.3229, 0.1715, -0.0238],
    [0.2868, 0.3214, -0.1159, 0.3350, 0.1540, -0.0857],
    [0.4469, 0.5016, -0.0076, 0.5405, 0.3179, 0.0390],
    [0.3583, 0.4017, -0.1161, 0.4217, 0.2053, -0.0784],
    [0.3627, 0.4065, -0.1402, 0.4244, 0.1976, -0.1020],
    [0.4333, 0.4858, -0.1328, 0.5107, 0.2517, -0.0873],
])  # fmt: skip
WEIGHTS_OF_BIG = np.array([0.1821, 0.1867, 0.1370, 0.1885, 0.1658, 0.1400])  # 171
CONTEXT_OF_BIG = [0.2413, 0.2311]  # 224
WRONG_WEIGHTS = np.array([  # 244 to 249
    [0.1678, 0.1681, 0.1644, 0.1683, 0.1667, 0.1647],
    [0.1681, 0.1685, 0.1639, 0.1686, 0.1667, 0.1642],
    [0.1681, 0.1687, 0.1634, 0.1691, 0.1668, 0.1639],
    [0.1683, 0.1688, 0.1634, 0.1690, 0.1667, 0.1638],
    [0.1684, 0.1689, 0.1632, 0.1691, 0.1667, 0.1636],
    [0.1686, 0.1692, 0.1628, 0.1694, 0.1667, 0.1632],
])  # fmt: skip
WRONG_CONTEXTS = [  # 252 to 257
    [0.2383, 0.2178], [0.2384, 0.2181], [0.2384, 0.2181],
    [0.2384, 0.2183], [0.2384, 0.2184], [0.2385, 0.2185],
]  # fmt: skip
SHARP = [0.1925, 0.1426, 0.2351, 0.1426, 0.2872]  # 185
SHARP_TIMES_8 = [0.0326, 0.0030, 0.1615, 0.0030, 0.8000]  # 186

# What matrices of 4 decimals leave open: of projections, of scores, and of contexts.
PROJECTION_ERROR = 0.5e-4 * np.abs(six_words.INPUTS).sum(1, keepdims=True)  # [6, 1]
SCORE_ERROR = (
    np.abs(QUERIES) @ np.broadcast_to(PROJECTION_ERROR, (6, 2)).T
    + np.broadcast_to(PROJECTION_ERROR, (6, 2)) @ np.abs(KEYS).T
)


def weight_error(weights, d_k):
    """A weight is exp(score) over a sum, and both can move by the largest error of the row."""
    return 2 * weights * SCORE_ERROR.max(1, keepdims=True) / d_k**0.5


def test_all_steps_show_in_the_order_of_the_document():
    assert assert_shows(DOCUMENT, 293) == ["scores", "weights"]


@pytest.mark.parametrize(
    ("part", "printed", "decimals"),
    [("keys", KEYS, 5), ("values", VALUES, 4), ("queries", QUERIES, 4)],
)
def test_projections_are_those_printed(part, printed, decimals):
    assert_printed(
        getattr(six_words, part)(), printed, decimals=decimals, input_error=PROJECTION_ERROR
    )


def test_scores_are_those_printed():
    assert_printed(six_words.scores(), SCORES, input_error=SCORE_ERROR)
    assert_printed(
        six_words.scores()[1, 1], 0.3214397430419922, decimals=9, input_error=SCORE_ERROR[1, 1]
    )
    assert SCORE_ERROR.max() < 3e-4


def test_weights_and_context_of_big_are_those_printed():
    error = weight_error(WEIGHTS_OF_BIG[None], 2)[0]
    assert error.max() < 1e-4
    assert_printed(six_words.weights()[1], WEIGHTS_OF_BIG, input_error=error)
    assert_printed(six_words.contexts()[1], CONTEXT_OF_BIG, input_error=1e-4)


def test_printed_tables_are_those_of_a_leaked_width():
    wrong = six_words.weights(six_words.LEAKED_D_K)
    assert_printed(wrong, WRONG_WEIGHTS, input_error=weight_error(WRONG_WEIGHTS, 256))
    assert_printed(six_words.contexts(six_words.LEAKED_D_K), WRONG_CONTEXTS, input_error=1e-4)


def test_sharpness_is_that_printed():
    assert_printed(weights_of_scores([six_words.SHARP])[0], SHARP)
    assert_printed(weights_of_scores([six_words.SHARP], scale=8.0)[0], SHARP_TIMES_8)


@pytest.mark.parametrize(("column", "width"), list(enumerate(six_words.WIDTHS)))
def test_variances_are_within_their_error(column, width):
    before, after = six_words.variances(width)
    error = six_words.standard_error(width)
    assert abs(before - width) < 3 * error
    assert abs(after - 1) < 3 * error / width
    assert error < 0.02 * width  # so that a variance of another width is not within it
    printed_before, printed_after = six_words.PRINTED_VARIANCES[:, column]
    assert abs(printed_before - width) < 3 * six_words.standard_error_of_all_pairs(width)
    assert_printed(printed_before / width, printed_after)


def test_module_with_the_printed_matrices_gives_the_contexts():
    batch = six_words.contexts_by_module(jnp.stack([six_words.INPUTS, six_words.INPUTS[::-1]]))
    np.testing.assert_allclose(batch[0], six_words.contexts(), rtol=0, atol=1e-6)
    np.testing.assert_allclose(batch[1, ::-1], batch[0], rtol=0, atol=1e-6)
