"""Multi-head attention and masks.

The fourth part of `transformer_from_scratch`. The document is cited by its line numbers.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange
from from_scratch_attention import SIX_WORDS, draw_kernel, single_head
from from_scratch_inputs import embed_words, names
from measures import largest_difference
from scores import weights_of_scores
from steps import Shown, Step, Table

from jaxformer import viz
from jaxformer.functional import (
    Causal,
    MultiHeadOutput,
    MultiHeadParams,
    linear,
    multi_head_attention,
)

NUM_HEADS, D_MODEL, D_K, D_V = 3, 100, 28, 30

PRINTED_RANDOM = np.array([
    [0.2317, 0.8151, 0.0131, 0.9078, 0.7616],
    [0.4272, 0.8797, 0.5416, 0.9425, 0.0079],
    [0.4262, 0.5897, 0.5218, 0.3691, 0.1845],
    [0.4828, 0.5351, 0.6572, 0.8700, 0.0808],
    [0.0856, 0.0563, 0.6690, 0.2299, 0.4037],
], np.float32)  # fmt: skip
"""Lines 1054 to 1058: drawn there, data here."""


def multi_head_params(seed: int = 5) -> MultiHeadParams:
    """Kernels of 3 heads with d_k 28 and d_v 30 at width 100; the heads lie side by side."""
    return MultiHeadParams(
        query_kernel=draw_kernel(D_MODEL, NUM_HEADS * D_K, seed),
        key_kernel=draw_kernel(D_MODEL, NUM_HEADS * D_K, seed + 1),
        value_kernel=draw_kernel(D_MODEL, NUM_HEADS * D_V, seed + 2),
        output_kernel=draw_kernel(NUM_HEADS * D_V, D_MODEL, seed + 3),
    )


@jax.jit
def multi_head_by_loop(params: MultiHeadParams, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Multi-head attention by a loop over heads: their outputs `[N, T, d_v]`, and `[T, D]`."""
    query_kernels, key_kernels, value_kernels = (
        rearrange(kernel, "d (n h) -> n d h", n=NUM_HEADS) for kernel in params[:3]
    )
    heads = [
        single_head(
            linear(x, query_kernels[head]),
            linear(x, key_kernels[head]),
            linear(x, value_kernels[head]),
        )
        for head in range(NUM_HEADS)
    ]
    return jnp.stack(heads), linear(jnp.concatenate(heads, axis=-1), params.output_kernel)


@functools.partial(jax.jit, static_argnames="is_causal")
def multi_head_fused(
    params: MultiHeadParams, x: jax.Array, *more_inputs: jax.Array, **options: Any
) -> MultiHeadOutput:
    """Multi-head attention of all heads at once, with the weights."""
    return multi_head_attention(
        params, x, *more_inputs, num_heads=NUM_HEADS, return_weights=True, **options
    )


def masked_by_value(scores: np.ndarray) -> jax.Array:
    """Weights `[T, S]` by the document's rule, which masks every score that is 0."""
    mask = Causal().array(*scores.shape) & (scores != 0)
    return weights_of_scores(scores, mask=mask)


def show_heads_by_loop() -> Shown:
    x = embed_words(" ".join(SIX_WORDS), D_MODEL)
    heads, output = multi_head_by_loop(multi_head_params(), x)
    merged = (len(SIX_WORDS), NUM_HEADS * D_V)
    shapes = {"input": x.shape, "heads": heads.shape, "side by side": merged}
    shapes |= {"output": output.shape}
    return Shown(
        "Three heads, one after the other, each with projections of its own (d_k 28, d_v 30). "
        "Their outputs are laid side by side and projected back to the width of the input, so that "
        "blocks can be stacked. The document expects the heads to come to similar weights; but "
        "several are worth having because they can attend to different things.",
        {"Shapes": Table(["shape"], list(shapes), [[str(shape)] for shape in shapes.values()])},
    )


def show_heads_fused() -> Shown:
    x, params = embed_words(" ".join(SIX_WORDS), D_MODEL), multi_head_params()
    fused = multi_head_fused(params, x)
    _, looped = multi_head_by_loop(params, x)
    off = largest_difference(fused.output, looped)
    rows = ["weights", "output", "output of a batch of 2"]
    batch = multi_head_fused(params, np.stack([x, x])).output
    shapes = [[str(part.shape)] for part in (fused.weights, fused.output, batch)]
    return Shown(
        "One product with kernels as wide as all heads together, then split into heads: "
        f"multi_head_attention. From the numbers of the loop they differ by {off:.1g} at most. Any "
        "leading axes are taken, so that a batch needs no other code; the document's version has "
        "none. Its output projection takes the width of values from an earlier cell, where it "
        "happens to be 30 too.",
        {"Shapes": Table(["shape"], rows, shapes)},
        {"weights_of_heads": viz.attention_heatmaps(
            fused.weights, SIX_WORDS, names=names("head", NUM_HEADS)
        )},
        {"weights_of_heads": "The weights of three untrained heads over six words: each head "
         "spreads them in another way, as its kernels are others."},
    )  # fmt: skip


def show_masks() -> Shown:
    masked = weights_of_scores(PRINTED_RANDOM, is_causal=True, stage="masked")
    weights = weights_of_scores(PRINTED_RANDOM, is_causal=True)
    zeros = PRINTED_RANDOM.copy()
    zeros[2, 0], zeros[4, :] = 0.0, 0.0
    places = names("token", 5)
    return Shown(
        "A causal mask hides what comes later: those scores become -inf and their weights exactly "
        "0. It is a matter of place, not of value. The document hides every score of the lower "
        "triangle that is 0, which on its random numbers comes to the same. With one score and "
        "one whole row of zeros it does not: by value, token 2 loses token 0, and token 4 sees "
        "nothing at all (NaN in the document, 0 here); by place, token 4 sees all five equally. A "
        "decoder that translates needs this mask too, though the document lets it be skipped.",
        {
            "Scores, masked": Table(places, places, masked),
            "Weights": Table(places, places, weights),
            "Zero scores, masked by place": Table(
                places, places, weights_of_scores(zeros, is_causal=True)
            ),
            "Zero scores, masked by value": Table(places, places, masked_by_value(zeros)),
        },
        {
            "masked_scores": viz.attention_heatmaps(masked, places, label="score", scores=True),
            "masked_weights": viz.attention_heatmaps(weights, places),
        },
        {
            "masked_scores": "The printed random scores of five tokens with all that comes later "
            "hidden: the upper triangle is hatched.",
            "masked_weights": "Their weights: token 0 gives all to itself, and each later one "
            "shares among itself and those before it.",
        },
    )


def show_masked_heads() -> Shown:
    x, params = embed_words(" ".join(SIX_WORDS), D_MODEL), multi_head_params()
    result = multi_head_fused(params, x, is_causal=True)
    first = multi_head_fused(params, x[:1]).output
    off = largest_difference(np.asarray(result.output)[:1], first)
    return Shown(
        "All heads with the causal mask. Every row of weights sums to 1 over the words up to its "
        "own, and the first word sees only itself: what comes out for it is what comes out "
        f"for a sentence of that word alone (largest difference: {off:.1g}).",
        {"Weights of head 0": Table(SIX_WORDS, SIX_WORDS, result.weights[0])},
        {"masked_weights_of_heads": viz.attention_heatmaps(
            result.weights, SIX_WORDS, names=names("head", NUM_HEADS)
        )},
        {"masked_weights_of_heads": "The weights of the same three heads with the causal mask: "
         "all are lower triangles, and the first word gives all to itself."},
    )  # fmt: skip


def show_cross_attention() -> Shown:
    params = multi_head_params()
    x, other = embed_words(" ".join(SIX_WORDS), D_MODEL), embed_words("I like NLP", D_MODEL)
    self_attended, cross = multi_head_fused(params, x), multi_head_fused(params, x, other)
    shapes = [[str(part.weights.shape), str(part.output.shape)] for part in (self_attended, cross)]
    return Shown(
        "In self-attention queries, keys and values come from one sequence; in cross-attention "
        "keys and values come from another. Six words that look at three have weights 6 x 3, and "
        "the output still has a row for every query. The scores are square only where both "
        "sequences are equally long.",
        {"Shapes": Table(["weights", "output"], ["self", "cross"], shapes)},
        {"cross_attention": viz.attention_heatmaps(
            cross.weights, SIX_WORDS, ["i", "like", "nlp"], names=names("head", NUM_HEADS)
        )},
        {"cross_attention": "The weights of three heads by which six words look at three others: "
         "maps of six rows and three columns, with no diagonal of their own."},
    )  # fmt: skip


STEPS = [
    Step(
        "Heads, one after the other", (870, 953), show_heads_by_loop,
        r"H_n = \mathrm{attention}(X W_Q^n,\ X W_K^n,\ X W_V^n) \\ "
        r"Y = [H_1\ H_2\ H_3]\ W_O",
    ),
    Step(
        "Heads, all at once", (955, 1026), show_heads_fused,
        r"[Q_1\ Q_2\ Q_3] = X\ [W_Q^1\ W_Q^2\ W_Q^3] \\ "
        r"Y = \mathrm{concat}_n\,\mathrm{attention}(Q_n, K_n, V_n)\ W_O",
    ),
    Step(
        "Masks", (1029, 1093), show_masks,
        r"S'_{ts} = S_{ts}\ \mathrm{where}\ s \leq t,\ \mathrm{else}\ -\infty \\ "
        r"W = \mathrm{softmax}(S'), \quad e^{-\infty} = 0",
    ),
    Step(
        "Masked heads", (1095, 1113), show_masked_heads,
        r"\sum_{s \leq t} W_{nts} = 1, \quad W_{nts} = 0\ \mathrm{for}\ s > t",
    ),
    Step(
        "Self-attention and cross-attention", (1115, 1121), show_cross_attention,
        r"\mathrm{self:} \quad Q = X W_Q, \quad K = X W_K, \quad V = X W_V \\ "
        r"\mathrm{cross:} \quad Q = X W_Q, \quad K = Z W_K, \quad V = Z W_V",
    ),
]  # fmt: skip
