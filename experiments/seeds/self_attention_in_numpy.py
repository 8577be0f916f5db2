"""The tutorial "Self Attention in Transformers", redone: four words, and a multi-head layer.

The document is cited by its line numbers.

Run: python experiments/seeds/self_attention_in_numpy.py
"""

import jax
import jax.numpy as jnp
import numpy as np
from four_words import (
    HEADS,
    LENGTH,
    WORDS,
    attend,
    attend_in_numpy,
    draw,
    embed_words,
    message_of_uneven_heads,
    multi_head_layer,
    run_layer,
    sample_scores,
    score_bytes,
    weights_by_mask_and_by_bias,
)
from histograms import draw_histograms
from measures import largest_difference
from steps import Document, Shown, Step, Table, main

from jaxformer import functional, viz


def show_price() -> Shown:
    lengths = (4, 50, 1000, 100_000)
    return Shown(
        "All words are looked at in parallel, and every word at every other: the number of scores "
        'grows with the square of the length, which the document\'s "efficient" leaves out. '
        "Held at once, one head's scores take the memory below. The library's chunked "
        "implementation holds blocks of them, in memory linear in the length; the time stays "
        "quadratic.",
        {
            "One head": Table(
                ["scores", "bytes"],
                [f"{length:,} tokens" for length in lengths],
                [[f"{length**2:,}", f"{score_bytes(length):,}"] for length in lengths],
            )
        },
    )


def show_words() -> Shown:
    x = embed_words()
    return Shown(
        "The sentence becomes four tokens, each a vector of 512 features; the encoding of its "
        "position is added, and the vectors that go into attention are as many and as wide as "
        "those that come out.",
        {
            "Shapes": Table(
                ["shape"],
                ["words, with positions", "after multi-head attention"],
                [[str(x.shape)], [str(run_layer().output.shape)]],
            )
        },
    )


def show_scores() -> Shown:
    stages = attend(draw(), is_causal=True)
    return Shown(
        "Queries, keys and values of width 8 are drawn, with a seed, which the document has not: "
        "its numbers were never printed. Row t, column s is the dot product of query t with key "
        "s. The document writes k.T; the library contracts named axes, so that batches and heads "
        "may stand in front.",
        {
            "Query": _table(draw().query, "feature"),
            "Key": _table(draw().key, "feature"),
            "Value": _table(draw().value, "feature"),
            "Scores": _square(stages["raw"]),
        },
    )


def show_scaling() -> Shown:
    raw, scaled = sample_scores()
    spread = np.quantile(np.asarray(raw).var(axis=(1, 2)), [0.05, 0.5, 0.95])
    drawn = attend(draw(), is_causal=False)
    return Shown(
        "A dot product of 8 terms of variance 1 has variance 8; divided by sqrt(8) it has 1. That "
        "holds on average over draws: the document shows it on one 4 x 4 matrix, whose own "
        f"variance is anywhere from {spread[0]:.1f} to {spread[2]:.1f} in nine draws of ten. Over "
        f"{len(raw):,} draws it is seen. Dividing by sqrt(8) divides the variance of any "
        "matrix by 8, so that the reduction the document points at shows nothing about its size.",
        {
            "Variance of the scores": Table(
                ["raw", "scaled"],
                [f"{len(raw):,} draws", "this draw"],
                [
                    [float(raw.var()), float(scaled.var())],
                    [float(drawn["raw"].var()), float(drawn["scaled"].var())],
                ],
                digits=3,
            ),
            "Scaled scores": _square(drawn["scaled"]),
        },
        {
            "score_distributions": draw_histograms(
                {"raw": np.asarray(raw).ravel(), "scaled": np.asarray(scaled).ravel()},
                bins=60,
                x_label="score of random queries and keys, width 8",
            )
        },
        {
            "score_distributions": "How the scores of 10,000 draws are distributed: around 0 both "
            "times, and much narrower once they are divided by the root of 8."
        },
    )


def show_mask() -> Shown:
    stages = attend(draw(), is_causal=True)
    mask = functional.Causal().array(LENGTH, LENGTH)
    by_mask, by_bias = weights_by_mask_and_by_bias()
    off = largest_difference(by_mask, by_bias)
    return Shown(
        "A word may attend to those before it and to itself. The document overwrites the ones "
        "and zeros of a matrix by 0 and -inf in place; here the mask is bool, True = attend, and "
        "made from the indices in one go. What is added to scores is another argument, the bias: "
        f"0 and -inf there give the same weights (largest difference: {off:.0e}).",
        {"May attend": _square(mask.astype(int)), "Masked scores": _square(stages["masked"])},
        {
            "four_words_scores": viz.attention_heatmaps(
                jnp.stack([stages["raw"], stages["scaled"], stages["masked"]]),
                WORDS,
                label="score",
                scores=True,
                names=["raw", "scaled", "masked"],
                title="Scores of four words",
            )
        },
        {
            "four_words_scores": "The scores of four words raw, scaled and masked: scaling keeps "
            "their pattern, and masking hatches the upper triangle."
        },
    )


def show_softmax() -> Shown:
    stages = attend(draw(), is_causal=True)
    oracle = attend_in_numpy(draw(), is_causal=True)
    difference = largest_difference(stages["weights"], oracle["weights"])
    return Shown(
        "Weight j of a row is e^{x_j} over the sum of e^{x_k} over k (the document sets e^x_j); "
        "the row's maximum is taken off before, which changes nothing but that no power is too "
        "large. Each row sums to 1, and the first word can only attend to itself. The largest "
        f"difference from NumPy in float64 is {difference:.1g}.",
        {"Weights": _square(stages["weights"])},
        {
            "four_words_weights": viz.attention_heatmaps(
                stages["weights"], WORDS, title="Causal weights of four words"
            )
        },
        {
            "four_words_weights": "The causal weights of four words: 'my' gives all to itself, and "
            "each later word shares among those before it and itself."
        },
    )


def show_values() -> Shown:
    values = attend(draw(), is_causal=True)["values"]
    oracle = attend_in_numpy(draw(), is_causal=True)["values"]
    difference = largest_difference(values, oracle)
    return Shown(
        "The new vector of a word is the mean of the values that it may see, by its weights. The "
        "first row is therefore the first value itself. The largest difference from NumPy in "
        f"float64 is {difference:.1g}.",
        {"New values": _table(values, "feature"), "Values": _table(draw().value, "feature")},
    )


def show_function() -> Shown:
    causal, full = (attend(draw(), is_causal=is_causal) for is_causal in (True, False))
    return Shown(
        "One call does it: `dot_product_attention` gives the new values, `attention_weights` the "
        "weights; with `is_causal=True` as in a decoder, without as in an encoder. The last word "
        "may see all words either way, so its row is the same. The document's text says that "
        'attention focuses on "only preceding words": it is preceding ones and the word itself.',
        {
            "Weights, causal": _square(causal["weights"]),
            "Weights, not causal": _square(full["weights"]),
            "New values, not causal": _table(full["values"], "feature"),
        },
    )


def show_multi_head() -> Shown:
    _, variables = multi_head_layer()
    evaluated, again = run_layer(), run_layer()
    trained, other = run_layer(dropout_seed=0), run_layer(dropout_seed=1)
    kernels = {name: leaf.shape for name, leaf in sorted(variables["params"].items())}
    return Shown(
        "Three linear layers make queries, keys and values, 8 heads of width 64 attend, causally "
        "as in a decoder, and a fourth layer takes the heads, side by side (not stacked). Dropout "
        "falls on the weights in training only, when it is given a key; the weights returned are "
        "those before it, and their "
        "rows sum to 1. A width that the heads do not divide is an error that says so, not an "
        f'assert: "{message_of_uneven_heads()}". The document\'s layer can be given values of '
        "another source than the keys; the library's takes both from one.",
        {
            "Parameters": Table(["shape"], list(kernels), [[str(s)] for s in kernels.values()]),
            "Largest change between two calls": Table(
                ["output", "weights"],
                ["evaluation, again", "training, another key", "training, from evaluation"],
                [
                    _changes(evaluated, again),
                    _changes(trained, other),
                    _changes(trained, evaluated),
                ],
            ),
            "Weights of head 0": _square(evaluated.weights[0, 0]),
        },
        {
            "four_words_heads": viz.attention_heatmaps(
                evaluated.weights[0],
                WORDS,
                names=[f"head {head}" for head in range(HEADS)],
                title="Eight heads before any training",
            )
        },
        {
            "four_words_heads": "The causal weights of eight untrained heads over four words: "
            "lower triangles all, no two of them alike."
        },
    )


def _changes(first: functional.MultiHeadOutput, second: functional.MultiHeadOutput) -> list[float]:
    return [
        largest_difference(first.output, second.output),
        largest_difference(first.weights, second.weights),
    ]


def _square(cells: jax.Array) -> Table:
    return Table(WORDS, WORDS, np.asarray(cells))


def _table(cells: jax.Array | np.ndarray, column: str) -> Table:
    return Table([f"{column} {i}" for i in range(cells.shape[1])], WORDS, np.asarray(cells))


DOCUMENT = Document(
    name="self_attention_in_numpy",
    title="Self Attention in Transformers",
    source='"Self Attention in Transformers", a blog post by Prathamesh Devadiga. Line numbers are '
    "those of its plain text.",
    about='"my name is prathamesh": scores, scaling, mask, softmax and new values, in NumPy and '
    "by the library; then the layer with eight heads.",
    steps=(
        Step(
            "What looking at every word costs", (18, 24), show_price,
            r"\mathrm{scores} = T^2, \quad \mathrm{bytes} = 4\,T^2",
        ),
        Step(
            "Four words, four vectors", (31, 39), show_words,
            r"X = E + \mathrm{PE}, \quad X,\ Y \in \mathbb{R}^{4 \times 512}",
        ),
        Step(
            "Queries, keys, values and scores", (74, 83), show_scores,
            r"S_{ts} = q_t \cdot k_s = \sum_h Q_{th} K_{sh}",
        ),
        Step(
            "Why the square root of d_k", (84, 89), show_scaling,
            r"\mathrm{Var}\left(\sum_{h = 1}^{8} q_h k_h\right) = 8, \quad "
            r"\mathrm{Var}\left(\dfrac{q \cdot k}{\sqrt{8}}\right) = 1",
        ),
        Step(
            "Mask", (90, 99), show_mask,
            r"M_{ts} = 0\ \mathrm{where}\ s \leq t,\ \mathrm{else}\ -\infty \\ "
            r"S' = \dfrac{Q K^{\mathsf{T}}}{\sqrt{d_k}} + M",
        ),
        Step(
            "Softmax", (100, 104), show_softmax, r"W_{tj} = \dfrac{e^{S'_{tj}}}{\sum_k e^{S'_{tk}}}"
        ),
        Step("New values", (105, 107), show_values, r"v'_t = \sum_{s \leq t} W_{ts} v_s"),
        Step(
            "As one function", (108, 130), show_function,
            r"V' = \mathrm{softmax}\left(\dfrac{Q K^{\mathsf{T}}}{\sqrt{d_k}} + M\right) V",
        ),
        Step(
            "Multi-head attention", (132, 174), show_multi_head,
            r"H_n = "
            r"\mathrm{softmax}\left(\dfrac{Q_n K_n^{\mathsf{T}}}{\sqrt{64}} + M\right) V_n \\ "
            r"Y = [H_1 \dots H_8]\ W_O + b_O",
        ),
    ),
)  # fmt: skip

if __name__ == "__main__":
    main(DOCUMENT)
