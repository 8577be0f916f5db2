"""The tutorial on "Dream big and work for it", self-attention by hand, redone with the library.

Its printed vectors and matrices are the inputs here, and its printed results come out again to
the 4 decimals they have, but for two tables that it computed with the width of another cell: those
are made both ways. The document is cited by its line numbers.

Run: python experiments/seeds/self_attention_by_hand.py
"""

import numpy as np
from measures import largest_difference
from scores import weights_of_scores
from six_words import (
    BIG,
    INPUTS,
    LEAKED_D_K,
    PRINTED_VARIANCES,
    SHARP,
    W_KEY,
    W_QUERY,
    W_VALUE,
    WIDTHS,
    WORDS,
    contexts,
    contexts_by_module,
    keys,
    queries,
    scores,
    standard_error,
    values,
    variances,
    weights,
)
from steps import Document, Shown, Step, Table, main

from jaxformer import viz


def show_inputs() -> Shown:
    return Shown(
        "Six words, each with a vector of 3 numbers; the goal is a context vector for each, first "
        "for the second word, 'big', whose vector is 0.75, 0.20, 0.55. Queries, keys and values "
        "will have 2 numbers.",
        {"Inputs": Table(["dim 0", "dim 1", "dim 2"], WORDS, INPUTS, 2)},
    )


def show_matrices() -> Shown:
    rows = ["dim 0", "dim 1", "dim 2"]
    return Shown(
        "The three projections, [3, 2] each. The document draws them and prints them; here the "
        "printed numbers are the data, so that everything after follows from them.",
        {
            name: Table(["out 0", "out 1"], rows, matrix)
            for name, matrix in (("W_query", W_QUERY), ("W_key", W_KEY), ("W_value", W_VALUE))
        },
    )


def show_big() -> Shown:
    cells = np.stack([np.asarray(part)[BIG] for part in (queries(), keys(), values())])
    return Shown(
        "Query, key and value of 'big': its vector times each of the matrices.",
        {"Projections of 'big'": Table(["0", "1"], ["query", "key", "value"], cells)},
    )


def show_projections() -> Shown:
    return Shown(
        "The same for all words in one product each. The inputs are printed to 4 decimals, and so "
        "the results agree with the document's to about 1e-4.",
        {
            name: Table(["0", "1"], WORDS, part)
            for name, part in (("Keys", keys()), ("Values", values()), ("Queries", queries()))
        },
    )


def show_scores_of_big() -> Shown:
    row = np.asarray(scores())[BIG]
    return Shown(
        "The score of a key for a query is their dot product. 'big' scores itself "
        f"{row[BIG]:.4f}, and 'work' highest, {row.max():.4f}. A score is not a "
        "weight: it can be negative, and they do not sum to 1.",
        {"Scores of 'big'": Table(WORDS, ["big"], row[None])},
    )


def show_scores() -> Shown:
    return Shown(
        "All scores at once: rows are the queries, columns the keys.",
        {"Scores": Table(WORDS, WORDS, scores())},
        {"scores": viz.attention_heatmaps(scores(), WORDS, label="score", scores=True)},
        {
            "scores": "The scores of six words, query by key: every word scores "
            "'work' highest and 'and' lowest, so that columns differ more than rows."
        },
    )


def show_weights_of_big() -> Shown:
    row = np.asarray(weights())[BIG]
    return Shown(
        "The scores of 'big', divided by the root of d_k = 2, through softmax: weights that are "
        "positive and sum to 1. They are near 1/6, because the scores are small: all words matter "
        "to 'big' nearly alike, 'work' the most.",
        {"Weights of 'big'": Table(WORDS, ["big"], row[None])},
    )


def show_sharpness() -> Shown:
    cells = np.concatenate([weights_of_scores([SHARP], scale=scale) for scale in (1.0, 8.0, 0.125)])
    return Shown(
        "Larger scores make sharper weights: times 8, the largest weight goes from 0.2872 to "
        "0.8000. The document shows this with a factor above 1; what attention does is the other "
        "way, dividing by sqrt(d_k), so that wide vectors do not sharpen the weights by their "
        "width. Divided by 8 the weights are nearly equal.",
        {"Weights of five scores": Table(
            [str(score) for score in SHARP], ["as they are", "times 8", "divided by 8"], cells
        )},
    )  # fmt: skip


def show_variances() -> Shown:
    rows = []
    for column, width in enumerate(WIDTHS):
        drawn, error = variances(width), standard_error(width)
        rows.append([drawn[0], error, drawn[1], error / width, *PRINTED_VARIANCES[:, column]])
    columns = ["before", "std. error", "after", "std. error", "document before", "document after"]
    return Shown(
        "Queries and keys of independent numbers with variance 1 have dot products with variance "
        "d_k; divided by sqrt(d_k) it is 1 at every width. 10,000 pairs are drawn for each width, "
        "and all variances are within 3 standard errors. The document multiplies all 10,000 "
        "queries with all 10,000 keys, 400 MB of scores, twice; since only its 20,000 vectors are "
        "independent, its error is sqrt(4 d_k / 10,000), 0.06 at width 8. Its second column says "
        "nothing new: it is the first one divided by d_k, whatever was drawn.",
        {"Variance of q . k": Table(columns, [f"d_k {width}" for width in WIDTHS], rows)},
    )


def show_context_of_big() -> Shown:
    return Shown(
        "The context of 'big' is the average of all words' values by its weights. The document "
        "gets this one right, as its d_k still is 2 here.",
        {"Context": Table(["0", "1"], ["big"], np.asarray(contexts())[[BIG]])},
    )


def show_all() -> Shown:
    leaked_and_clean = np.concatenate([contexts(LEAKED_D_K), contexts()], axis=1)
    stacked = np.stack([weights(LEAKED_D_K), weights()])
    columns = ["0, d_k = 256", "1, d_k = 256", "0, d_k = 2", "1, d_k = 2"]
    return Shown(
        "Weights and contexts of all words. By now the document's d_k is 256, left over from the "
        "loop over widths, so that it divides by 16 and not by 1.4142: its weights are nearly all "
        "1/6, and its row of 'big' contradicts the one it computed before (0.1681 and 0.1821 for "
        "'Dream'). With scale = 1/16 the library gives just those tables; without any scale it "
        "takes the width from the queries, and nothing can leak.",
        {
            "Weights with d_k = 256, as in the document": Table(WORDS, WORDS, stacked[0]),
            "Weights with d_k = 2, which is right": Table(WORDS, WORDS, stacked[1]),
            "Contexts": Table(columns, WORDS, leaked_and_clean),
        },
        {"weights": viz.attention_heatmaps(stacked, WORDS, names=["d_k = 256", "d_k = 2"])},
        {
            "weights": "The weights of six words by the leaked width, all near a sixth, and by the "
            "right one, by which they differ from word to word."
        },
    )


def show_module() -> Shown:
    batch = np.asarray(contexts_by_module(np.stack([INPUTS, INPUTS[::-1]])))
    off = largest_difference(batch[0], contexts())
    columns = ["0", "1", "0 in reverse order", "1 in reverse order"]
    return Shown(
        "The library's layer with the printed matrices in place of drawn ones gives the contexts "
        f"from above (largest difference: {off:.1g}). The document's class cannot: its layers keep "
        "their matrices transposed and draw others, so that the same seed gives contexts around "
        "-0.53 and 0.00. It also fails on a batch, as .T reverses all axes; here the sentence and "
        "its reverse are a batch of two. Without positions the order of the words does not matter: "
        "each word has the same context in both.",
        {"Contexts": Table(columns, WORDS, np.concatenate([batch[0], batch[1, ::-1]], axis=1))},
    )


DOCUMENT = Document(
    name="self_attention_by_hand",
    title="Dream big and work for it",
    source="A notebook on self-attention without a title or a name, called here by its sentence. "
    "Line numbers are those of its plain text.",
    about="Self-attention by hand: six words, three small matrices, and every number on the way "
    "to the contexts.",
    steps=[
        Step("Words as vectors", (3, 32), show_inputs, r"X \in \mathbb{R}^{6 \times 3}"),
        Step("Matrices", (35, 62), show_matrices, r"W_Q, W_K, W_V \in \mathbb{R}^{3 \times 2}"),
        Step(
            "Query, key and value of one word", (66, 78), show_big,
            r"q = x W_Q, \quad k = x W_K, \quad v = x W_V",
        ),
        Step(
            "Queries, keys and values", (82, 114), show_projections,
            r"Q = X W_Q, \quad K = X W_K, \quad V = X W_V",
        ),
        Step("Scores of one word", (118, 139), show_scores_of_big, r"s_j = q \cdot k_j"),
        Step("All scores", (143, 155), show_scores, r"S = Q K^{\mathsf{T}}"),
        Step(
            "Weights of one word", (159, 171), show_weights_of_big,
            r"w_j = \dfrac{e^{s_j / \sqrt{2}}}{\sum_k e^{s_k / \sqrt{2}}}",
        ),
        Step(
            "Scores and sharpness", (175, 186), show_sharpness,
            r"\mathrm{softmax}(c\,s), \quad c = 1,\ 8,\ \dfrac{1}{8}",
        ),
        Step(
            "Variance of the scores", (189, 213), show_variances,
            r"\mathrm{Var}(q \cdot k) = d_k, \quad "
            r"\mathrm{Var}\left(\dfrac{q \cdot k}{\sqrt{d_k}}\right) = 1",
        ),
        Step("Context of one word", (216, 231), show_context_of_big, r"c = \sum_j w_j v_j"),
        Step(
            "All weights and contexts", (235, 257), show_all,
            r"C = \mathrm{softmax}\left(\dfrac{Q K^{\mathsf{T}}}{\sqrt{d_k}}\right) V, \quad "
            r"d_k = 256\ \mathrm{and}\ 2",
        ),
        Step(
            "As a layer", (261, 292), show_module,
            r"Y = \mathrm{attention}(X W_Q,\ X W_K,\ X W_V)\ W_O, \quad W_O = I",
        ),
    ],
)  # fmt: skip

if __name__ == "__main__":
    main(DOCUMENT)
