"""Attention of one head: projections, scores, why they are scaled, and weights.

The third part of `transformer_from_scratch`. The document is cited by its line numbers.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from from_scratch_inputs import embed_words, names
from positions import positions_by_array
from scores import weights_of_scores
from steps import Shown, Step, Table

from jaxformer import viz
from jaxformer.functional import (
    attention_weights,
    dot_product_attention,
    linear,
)

FAIR_GAME = ["I", "want", "this", "to", "be", "a", "fair", "game"]
LEARNING = ["i", "like", "learning", "nlp"]
SIX_WORDS = ["i", "like", "nlp", "with", "deep", "learning"]

PRINTED_SCORES = np.array([
    [1.5191, 0.4029, -2.6699, 2.6404],
    [0.6569, 0.3494, -1.4591, 1.3661],
    [-3.6791, -0.9588, 7.1673, -7.3582],
    [2.9663, 0.7670, -5.8728, 6.0410],
], np.float32)  # fmt: skip
"""Lines 753 to 756: drawn there, data here; made with d_k = 24."""


def fair_game_scores() -> np.ndarray:
    """Scores `[8, 8]`: 2 for the pairs of words that the document marks, else 0."""
    scores = np.zeros((8, 8), np.float32)
    fair = FAIR_GAME.index("fair")
    for word in ("to", "be", "a", "fair", "game"):
        other = FAIR_GAME.index(word)
        scores[other, fair] = scores[fair, other] = 2.0
    return scores


def draw_kernel(rows: int, columns: int, seed: int) -> jax.Array:
    """A projection `[rows, columns]`, normal around 0, which keeps the size of its inputs."""
    drawn = np.random.default_rng(seed).standard_normal((rows, columns), np.float32)
    return jnp.asarray(drawn / np.float32(rows**0.5))


@jax.jit
def unscaled_scores(query: jax.Array, key: jax.Array) -> jax.Array:
    """Dot products of queries `[T, H]` and keys `[S, H]`, `[T, S]`."""
    return attention_weights(query[:, None], key[:, None], scale=1.0, stage="scores")[0]


def scores_of_positive_kernels() -> jax.Array:
    """Scores of the same words by kernels from 0 to 0.1, as in the document; `[4, 4]`."""
    x = embed_words("I like learning NLP", 30)
    rng = np.random.default_rng(1)
    query, key = (linear(x, jnp.asarray(0.1 * rng.random((30, 24), np.float32))) for _ in range(2))
    return unscaled_scores(query, key)


def singular_values(scores: Any) -> np.ndarray:
    """Singular values of a matrix, largest first."""
    return np.linalg.svd(np.asarray(scores), compute_uv=False)


def project(
    x: jax.Array, d_k: int, d_v: int, *, seed: int = 1
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries `[T, d_k]`, keys `[T, d_k]` and values `[T, d_v]` of inputs `[T, D]`."""
    query, key, value = (
        linear(x, draw_kernel(x.shape[-1], width, seed + index))
        for index, width in enumerate((d_k, d_k, d_v))
    )
    return query, key, value


@jax.jit
def single_head(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Attention of one head without an axis for heads, `[T, d_v]`."""
    return dot_product_attention(query[:, None], key[:, None], value[:, None])[:, 0]


def context_of_four_words() -> jax.Array:
    """Attention over 'I like learning NLP', d_model 30, d_k 24, d_v 30; `[4, 30]`."""
    return single_head(*project(embed_words("I like learning NLP", 30), 24, 30))


def inputs_with_positions(d_model: int = 10) -> jax.Array:
    """Embeddings and positions of the six words, `[6, D]`."""
    embedded = embed_words(" ".join(SIX_WORDS), d_model)
    return embedded + positions_by_array(len(SIX_WORDS), d_model, base=100.0)


def show_fair_game() -> Shown:
    weights = weights_of_scores(fair_game_scores())
    fair = FAIR_GAME.index("fair")
    return Shown(
        "The document marks which words of a sentence belong to 'fair'. Here the marked pairs have "
        "a score of 2 and the others 0. Rows are queries and columns keys, the order of the "
        "library's [T, S]; the document's table has queries across and keys down. The order "
        "matters after softmax, though the marks are symmetric: each row sums to 1, a column need "
        f"not (that of 'fair' sums to {np.asarray(weights)[:, fair].sum():.2f}).",
        {"Weights, query by key": Table(FAIR_GAME, FAIR_GAME, weights)},
        {"fair_game": viz.attention_heatmaps(weights, FAIR_GAME)},
        {
            "fair_game": "The weights of eight words, query by key: the row of 'fair' shares its "
            "weight among five words, and four other words give half of theirs to 'fair'."
        },
    )


def show_projections() -> Shown:
    query, key, value = project(embed_words("I like learning NLP", 30), 24, 30)
    shapes = [[str(part.shape)] for part in (query, key, value)]
    return Shown(
        "Three projections of the same inputs, as x @ W throughout: the document's formulas have "
        "W @ x, its code x @ W transposed. Queries and keys must be equally wide (24) for their "
        "dot product; values may have another width (30). The scores are square because there are "
        "as many queries as keys, not because of that width. The kernels are drawn around 0; the "
        "document draws from 0 to 0.1, all positive, and multiplies after asking for gradients, "
        "which are then not kept for the weights. In JAX gradients are taken with respect to "
        "arguments.",
        {"Shapes": Table(["shape"], ["queries", "keys", "values"], shapes)},
    )


def show_scores() -> Shown:
    query, key, _ = project(embed_words("I like learning NLP", 30), 24, 30)
    raw = unscaled_scores(query, key)
    matrices = {
        "document": PRINTED_SCORES,
        "kernels from 0 to 0.1": scores_of_positive_kernels(),
        "kernels around 0": raw,
    }
    values = [singular_values(matrix) for matrix in matrices.values()]
    return Shown(
        "The dot product of every query with every key, [T, S]. The document's scores are nearly "
        "of rank one: their first singular value is 14.88 and the second 0.20, so that all its "
        "words want the same, more or less strongly, or the opposite. That comes from kernels with "
        "positive entries only: every query and key then is about the sum of its embedding. "
        "Drawn again in that way it comes out again; kernels around 0 use all directions.",
        {
            "Scores of drawn kernels": Table(LEARNING, LEARNING, raw),
            "Singular values of the scores": Table(names("value", 4), list(matrices), values),
        },
        {
            "printed_scores": viz.attention_heatmaps(
                PRINTED_SCORES, LEARNING, label="score", scores=True
            )
        },
        {
            "printed_scores": "The scores that the document prints: every row is about a "
            "multiple of every other, that of 'learning' with the opposite sign."
        },
    )


def show_softmax() -> Shown:
    ones = weights_of_scores([[1.0, 1.0, 1.0, 1.0]])
    rows = weights_of_scores([[1.0, 1.0, 1.0, -1.0], [1.0, 2.0, 1.0, 4.0]])
    large = weights_of_scores([[89.0, 0.0], [-200.0, -200.0]])
    return Shown(
        "Softmax makes positive weights that sum to 1: equal scores share equally, and a "
        "difference of 1 in the score is a factor of e in the weight. The document has "
        "the weights trained towards a one-hot target; there is none, the loss is on the model's "
        "output. Its softmax takes exponentials of the scores as they are, which in float32 gives "
        "NaN for [89, 0] and for [-200, -200]. Subtracting the largest first changes nothing else.",
        {
            "Equal scores": Table(names("", 4), ["1 1 1 1"], ones),
            "Rows of scores": Table(names("", 4), ["1 1 1 -1", "1 2 1 4"], rows),
            "Large scores": Table(names("", 2), ["89 0", "-200 -200"], large),
        },
    )


def show_scaling() -> Shown:
    raw = weights_of_scores(PRINTED_SCORES)
    scaled = weights_of_scores(PRINTED_SCORES, scale=24**-0.5, stage="scores")
    weights = weights_of_scores(PRINTED_SCORES, scale=24**-0.5)
    tables = {"Scores": PRINTED_SCORES, "Their weights": raw}
    tables |= {"Scores / sqrt(24)": scaled, "Weights of the scaled": weights}
    return Shown(
        "The scores that the document prints, and their weights before and after dividing by "
        "sqrt(d_k), with d_k = 24. Unscaled, the third word gives all but 0.0003 of its weight to "
        "itself; scaled, 0.74, and the others get a part. The reason is in the spread: a sum of "
        "d_k products of unit variance has variance d_k, and dividing brings it back to 1 whatever "
        "the width.",
        {title: Table(LEARNING, LEARNING, cells) for title, cells in tables.items()},
        {
            "printed_scores_scaled": viz.attention_heatmaps(
                scaled, LEARNING, label="scaled score", scores=True
            ),
            "weights_unscaled_and_scaled": viz.attention_heatmaps(
                np.stack([raw, weights]), LEARNING, names=["unscaled", "scaled"]
            ),
        },
        {
            "printed_scores_scaled": "The printed scores divided by the root of 24: the same "
            "pattern, between about -1.5 and 1.5.",
            "weights_unscaled_and_scaled": "The weights of the printed scores before and after "
            "scaling: unscaled, 'learning' gives nearly all to itself, and so does 'nlp'; scaled, "
            "every word gets a part.",
        },
    )


def show_attention() -> Shown:
    context = context_of_four_words()
    return Shown(
        "The weights times the values: each word gets the average of all words' values, [T, d_v] = "
        f"{context.shape}. The width is that of the values; the queries' and keys' has gone into "
        "the weights. One function does all of it, dot_product_attention, with any leading axes "
        "and a stable softmax over the last.",
        {"Context of each word, its first 6 numbers": Table(
            names("dim", 6), LEARNING, np.asarray(context)[:, :6]
        )},
    )  # fmt: skip


def show_attention_with_positions() -> Shown:
    context = single_head(*project(inputs_with_positions(), 10, 10))
    rows = [f"pos {i} {word}" for i, word in enumerate(SIX_WORDS)]
    return Shown(
        "The same from the start: embeddings of six words at width 10, positions added, three "
        "projections, attention. The output is as large as the input, (6, 10). Its rows "
        "differ less than the values do, as each is an average of the same six. The document "
        "sets d_k twice in one line, for the widths of queries and of keys: they cannot differ.",
        {"Context of each word": Table(names("dim", 10), rows, context)},
    )


STEPS = [
    Step(
        "Which word belongs to which", (457, 633), show_fair_game,
        r"W_{ts} = \dfrac{e^{S_{ts}}}{\sum_k e^{S_{tk}}}, \quad \sum_s W_{ts} = 1",
    ),
    Step(
        "Projections", (659, 696), show_projections, r"Q = X W_Q, \quad K = X W_K, \quad V = X W_V"
    ),
    Step(
        "Scores", (698, 712), show_scores,
        r"S = Q K^{\mathsf{T}} \\ W_Q, W_K \geq 0: \quad S \approx \sigma_1 u v^{\mathsf{T}}",
    ),
    Step(
        "Softmax", (714, 735), show_softmax,
        r"\mathrm{softmax}(x)_j = \dfrac{e^{x_j}}{\sum_k e^{x_k}} = "
        r"\dfrac{e^{x_j - m}}{\sum_k e^{x_k - m}}, \quad m = \max_k x_k",
    ),
    Step(
        "Why scores are scaled", (736, 785), show_scaling,
        r"W = \mathrm{softmax}\left(\dfrac{S}{\sqrt{d_k}}\right), \quad "
        r"\mathrm{Var}(q \cdot k) = d_k",
    ),
    Step(
        "Attention", (787, 815), show_attention,
        r"\mathrm{attention}(Q, K, V) = "
        r"\mathrm{softmax}\left(\dfrac{Q K^{\mathsf{T}}}{\sqrt{d_k}}\right) V",
    ),
    Step(
        "Embedding, positions and attention", (817, 868), show_attention_with_positions,
        r"X = E + \mathrm{PE} \\ C = \mathrm{attention}(X W_Q,\ X W_K,\ X W_V)",
    ),
]  # fmt: skip
