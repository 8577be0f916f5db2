"""Multi-head attention from a fused projection, step by step.

The first part of `multi_head_and_encoder`. The document is cited by its line numbers.
"""

import jax
import jax.numpy as jnp
import numpy as np
from fused_heads import (
    PRINTED_PARTS,
    PRINTED_SCORES,
    PRINTED_WEIGHTS,
    attend_in_one_call,
    attend_step_by_step,
    draw_projection,
    log_sum_bounds,
    mask_bytes,
    softmax_of_printed_scores,
    to_params,
    to_params_as_thirds,
)
from measures import largest_difference
from steps import Shown, Step, Table

from jaxformer import functional, viz


def show_projection() -> Shown:
    arrays = attend_step_by_step()
    return Shown(
        "One linear layer makes queries, keys and values of 30 sentences of 50 tokens at once: "
        "512 features become 1536. The width is three times the output's, whatever the number of "
        "heads; nothing yet says which column is whose.",
        {"Shapes": _shapes(arrays, ("x", "qkv"), {"x": (30, 50, 512), "qkv": (30, 50, 1536)})},
    )


def show_layout() -> Shown:
    right = attend_in_one_call(to_params(draw_projection()))
    wrong = attend_in_one_call(to_params_as_thirds(draw_projection()))
    by_step = attend_step_by_step()["out"]
    off = [largest_difference(out, by_step) for out in (right, wrong)]
    return Shown(
        "Reshaping to (heads, 3 * 64) before cutting in three gives head n the columns "
        "[q_n k_n v_n]: the layout is interleaved by head. It is a layout like another, but not "
        "the usual [Q K V], and both have the same shape, so weights that change hands must say "
        "which they are. In einops the two are `(n three h)` and `(three n h)`. Converted by the "
        "first, the kernel is three kernels of `MultiHeadParams` that give the same output; by "
        "the second, it is another layer, and no error tells.",
        {
            "Largest difference of the outputs": Table(
                ["from the document's steps"],
                ["read as [q_n k_n v_n] per head", "read as [Q K V]"],
                [[f"{difference:.2g}"] for difference in off],
            )
        },
    )


def show_heads() -> Shown:
    arrays = attend_step_by_step()
    document = dict.fromkeys(("query", "key", "value"), (30, 8, 50, 64))
    return Shown(
        "Each head gets queries, keys and values of width 512 / 8 = 64. The document moves the "
        "heads before the tokens; the library leaves them after, `[B, T, N, H]`, as the "
        "projection wrote them, and attention takes them so: nothing has to be moved.",
        {"Shapes": _shapes(arrays, ("query", "key", "value"), document)},
    )


def show_scores() -> Shown:
    arrays = attend_step_by_step()
    product = arrays["product"]
    printed = PRINTED_SCORES[np.isfinite(PRINTED_SCORES)]
    printed = np.concatenate([printed, *(scores for scores, _ in PRINTED_PARTS.values())])
    raw = functional.attention_weights(arrays["query"], arrays["key"], scale=1.0, stage="scores")
    return Shown(
        "Every query times every key, divided by sqrt(64) = 8, in every head. The weights are "
        "uniform within 1/sqrt(512), so that a query has a variance of a third, and a scaled "
        "score a standard deviation of a third (1/3 * 1/3 * 64, divided by 64): the document's "
        f"{printed.size} printed scores are of that size as well.",
        {
            "Shapes": _shapes(arrays, ("product",), {"product": (30, 8, 50, 50)}),
            "Standard deviation of scores": Table(
                ["standard deviation"],
                ["before scaling", "scaled", "as printed"],
                [[float(raw.std())], [float(product.std())], [float(printed.std())]],
                digits=2,
            ),
        },
    )


def show_mask() -> Shown:
    sizes = mask_bytes()
    masked = attend_step_by_step()["masked"]
    hidden = float(jnp.isneginf(masked).mean())
    return Shown(
        "Query i may see keys 0 to i. The document writes that down for every sentence and head, "
        "in floats; one [T, S] of bools says the same and broadcasts, and `is_causal=True` needs "
        f"no array at all. Of the scores {hidden:.0%} are -inf either way. It also adds its mask "
        "twice (line 101), which is harmless only because -inf twice is -inf; and its switch is "
        "on for everything but None (see the mistakes).",
        {
            "Bytes of the mask": Table(
                ["bytes"],
                ["document: [30, 8, 50, 50] of float32", "Causal().array(50, 50): [50, 50] of bool",
                 "is_causal=True"],
                [[sizes["document"]], [sizes["causal"]], [0]],
            ),
        },
    )  # fmt: skip


def show_softmax() -> Shown:
    weights = softmax_of_printed_scores()
    rows = [f"row {row}, {kind}" for row in range(3) for kind in ("printed", "softmax")]
    cells = [line for row in range(3) for line in (PRINTED_WEIGHTS[row], np.asarray(weights[row]))]
    bounds = {row: log_sum_bounds(row) for row in PRINTED_PARTS}
    return Shown(
        "Three rows of the printed scores are whole, since all else is hidden: their softmax is "
        "what the document prints. Of its last three rows we see four to six columns. There "
        "every pair of score and weight tells the log of the row's sum of e^score, within "
        "rounding, and all pairs of a row agree: between the two numbers below.",
        {
            "Weights of the printed corner": Table(["key 0", "key 1", "key 2"], rows, cells),
            "Log of the sum of e^score": Table(
                ["at least", "at most"], [f"row {row}" for row in bounds], list(bounds.values())
            ),
        },
        {
            "multi_head_causal": viz.attention_heatmaps(
                attend_step_by_step()["attention"][0, :4, :12, :12],
                [str(token) for token in range(12)],
                names=[f"head {head}" for head in range(4)],
                title="Causal attention of the first twelve tokens",
            )
        },
        {
            "multi_head_causal": "Four untrained heads over the first twelve tokens: lower "
            "triangles, paler the further down, as more tokens share a weight of 1."
        },
    )


def show_output() -> Shown:
    arrays = attend_step_by_step()
    merged = functional.dot_product_attention(
        arrays["query"], arrays["key"], arrays["value"], is_causal=True
    )
    whole = attend_in_one_call(to_params(draw_projection()))
    off = [largest_difference(merged, arrays["values"]), largest_difference(whole, arrays["out"])]
    document = {
        "attention": (30, 8, 50, 50),
        "values": (30, 50, 8, 64),
        "merged": (30, 50, 512),
        "out": (30, 50, 512),
    }
    return Shown(
        "Weights times values, heads side by side again, one last linear layer. The document "
        "writes 30, 50 and 8*64 into its reshape (line 145), so that it serves this one batch; "
        "the pattern `b t n h -> b t (n h)` serves any. `dot_product_attention` is all up to the "
        "merging, `multi_head_attention` the whole: both agree with the steps.",
        {
            "Shapes": _shapes(arrays, tuple(document), document),
            "Largest difference from the steps": Table(
                ["difference"],
                ["dot_product_attention", "multi_head_attention"],
                [[f"{difference:.2g}"] for difference in off],
            ),
        },
    )


def _shapes(
    arrays: dict[str, jax.Array], names: tuple[str, ...], document: dict[str, tuple[int, ...]]
) -> Table:
    cells = [[str(document[name]), str(arrays[name].shape)] for name in names]
    return Table(["document", "here"], names, cells)


STEPS = [
    Step(
        "A fused projection", (18, 36), show_projection,
        r"[Q\,K\,V] = X W + b, \quad W \in \mathbb{R}^{512 \times 1536}",
    ),
    Step(
        "Whose columns are whose", (38, 49), show_layout,
        r"[q_1\,k_1\,v_1\ \ q_2\,k_2\,v_2\ \dots] \neq "
        r"[q_1\,q_2\,\dots\ \ k_1\,k_2\,\dots\ \ v_1\,v_2\,\dots]",
    ),
    Step("Heads", (51, 76), show_heads, r"d_k = \dfrac{D}{N} = \dfrac{512}{8} = 64"),
    Step(
        "Scores", (78, 84), show_scores,
        r"S = \dfrac{Q K^{\mathsf{T}}}{\sqrt{64}}, \quad \mathrm{Var}(S_{ts}) = "
        r"\dfrac{64}{64} \cdot \dfrac{1}{3} \cdot \dfrac{1}{3}",
    ),
    Step(
        "Causal mask", (86, 110), show_mask,
        r"S'_{ts} = S_{ts}\ \mathrm{where}\ s \leq t,\ \mathrm{else}\ -\infty",
    ),
    Step(
        "Softmax", (112, 127), show_softmax,
        r"W_{ts} = \dfrac{e^{S'_{ts}}}{Z_t}, \quad \log Z_t = "
        r"S'_{ts} - \log W_{ts}\ \mathrm{for\ every}\ s",
    ),
    Step(
        "Values, merged heads, output", (129, 157), show_output,
        r"H_n = W_n V_n \\ Y = [H_1 \dots H_8]\ W_O + b_O",
    ),
]  # fmt: skip
