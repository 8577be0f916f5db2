"""Positions: the encoding by a loop and by arrays, drawn, compared, and added to embeddings.

The second part of `transformer_from_scratch`. The document is cited by its line numbers.
"""

import jax
import numpy as np
from from_scratch_inputs import WORDS, names, word_tokenizer
from matplotlib.figure import Figure
from measures import largest_difference
from positions import positions_by_array, positions_by_loop
from steps import Shown, Step, Table

from jaxformer import viz
from jaxformer.functional import attention_weights, rms_norm

PRINTED_POSITIONS_BY_LOOP = np.array([
    [0.0000, 1.0000, 0.0000, 1.0000, 0.0000],
    [0.8415, 0.5403, 0.0251, 0.9997, 0.0000],
    [0.9093, -0.4161, 0.0502, 0.9987, 0.0000],
    [0.1411, -0.9900, 0.0753, 0.9972, 0.0000],
    [-0.7568, -0.6536, 0.1003, 0.9950, 0.0000],
])  # fmt: skip
"""Lines 150 to 154; the last column is wrong."""

PRINTED_EMBEDDINGS = np.array([
    [-0.389119, -0.079600, 0.526932, 1.619253, -0.963976,
     0.141520, -0.163661, -0.358223, -0.059444, -2.491939],
    [-0.587336, -2.061921, 0.167477, 0.751421, -0.197000,
     -0.033396, 0.719292, 1.064415, -0.833572, -1.192856],
    [1.511267, 0.641871, 0.472964, -0.428590, 0.551371,
     -1.547371, 0.757480, -0.406761, 0.269241, 1.324768],
    [1.724086, -2.364765, -0.929491, 0.293625, 1.660414,
     0.271740, 1.465708, -0.556474, -0.744841, -0.202157],
    [0.728246, 0.057061, -0.709163, -0.526246, -0.520597,
     1.354784, 0.235193, 1.914243, 1.836411, 1.324532],
    [0.514916, -1.847478, -2.916743, -0.567330, -1.199177,
     -0.047417, -0.882507, 0.531811, -1.545777, -0.173300],
    [-0.271027, -1.439163, 1.247040, 1.273851, 0.390949,
     0.387210, 2.641498, -0.962401, 0.948827, -1.383936],
    [-2.306489, 0.603657, 0.315085, 1.142252, 0.305506,
     -0.578882, 0.564354, -0.877328, -0.269253, 1.311956],
], np.float32)  # fmt: skip
"""Lines 379 to 386: drawn there, data here."""


@jax.jit
def cosine_similarities(table: jax.Array) -> jax.Array:
    """Cosine similarities `[P, P]` of the rows of `[P, D]`.

    Computed as attention scores: an RMS-normalized row has length sqrt(D), so the dot product of
    two, divided by D, is their cosine.
    """
    rows = rms_norm(table, eps=0.0)[:, None]
    return attention_weights(rows, rows, scale=1 / table.shape[-1], stage="scores")[0]


def embeddings_with_positions() -> jax.Array:
    """The document's printed embeddings plus the encoding of base 100, `[8, 10]`."""
    return PRINTED_EMBEDDINGS + positions_by_array(*PRINTED_EMBEDDINGS.shape, base=100.0)


def show_positions_by_loop() -> Shown:
    table = positions_by_loop(5, 5)
    last = np.stack([PRINTED_POSITIONS_BY_LOOP[:, 4], table[:, 4]], axis=1)
    return Shown(
        "Position p has in column 2i the sine and in column 2i + 1 the cosine of "
        "p / base^(2i / d), where i runs from 0 to below d / 2, rounded up. The document's loop "
        "rounds down: at the odd width 5 it never reaches column 4, and leaves zeros there. The "
        "right numbers of that column are small but not 0. Its other columns are right.",
        {
            "Encoding by a loop, base 10000": Table(names("dim", 5), names("pos", 5), table),
            "Column 4": Table(["document", "right"], names("pos", 5), last, 5),
        },
    )


def show_positions_by_array() -> Shown:
    widths = [1, 4, 5, 25]
    off = [
        largest_difference(positions_by_array(10, width), positions_by_loop(10, width))
        for width in widths
    ]
    five, four = positions_by_array(5, 5), positions_by_array(4, 4, base=100.0)
    return Shown(
        "The same for all positions and columns at once, by sinusoidal_positions. It equals the "
        f"loop at even and odd widths: over 10 positions and the widths {widths} the largest "
        f"difference is {max(off):.1e}, the rounding of float32. The document's version by arrays "
        "is right at odd widths as well, though its formula lets i run to d instead of d / 2. It "
        "calls the encoding scale invariant, which it is not: what holds is that a step of a given "
        "length is the same rotation wherever it starts.",
        {
            "5 positions, width 5, base 10000": Table(names("dim", 5), names("pos", 5), five, 6),
            "4 positions, width 4, base 100": Table(names("dim", 4), names("pos", 4), four, 6),
        },
    )


def show_heat_maps() -> Shown:
    figures = {
        f"sinusoidal_base_{base}": viz.position_heatmaps(
            {f"base {base}": positions_by_array(10, 40, base=float(base))}
        )
        for base in (10, 1000)
    }
    figures["sinusoidal_positions"] = viz.position_heatmaps(
        {"sinusoidal positions, base 1000": positions_by_array(50, 64, base=1000.0)}
    )
    return Shown(
        "Positions 0 to 9 at width 40, once with base 10 and once with base 1000. The first "
        "columns turn by one radian a position; further right they turn more slowly, and the "
        "larger the base, the slower the last ones: the last pair has turned by 1.0 radians at "
        "position 9 with base 10, and by 0.013 with base 1000. Columns are dimensions and rows "
        "positions; the document's axis labels say the opposite. The third figure is larger: 50 "
        "positions of width 64.",
        figures=figures,
        captions={
            "sinusoidal_base_10": "Base 10, ten positions of width 40: the columns on the right "
            "turn more slowly than those on the left, and even the last of them visibly turn.",
            "sinusoidal_base_1000": "Base 1000, ten positions of width 40: the columns on the "
            "right hardly change from position to position.",
            "sinusoidal_positions": "Sinusoidal positions of base 1000, 50 of width 64: the "
            "further right a dimension, the more slowly it turns with the position.",
        },
    )


def draw_curves(table: np.ndarray) -> Figure:
    """Curves of the rows of a table over the even dimensions, the odd ones, and all."""
    figure = Figure((7, 6.5), dpi=150, layout="constrained")
    dimensions = {"even": slice(0, None, 2), "odd": slice(1, None, 2), "all": slice(None)}
    numbers = np.arange(table.shape[1])
    labels = names("position", len(table))
    panels = figure.subplots(3, 1, sharex=True)
    for panel, (name, part) in zip(panels, dimensions.items(), strict=True):
        panel.plot(numbers[part], table[:, part].T, ".-", label=labels)
        panel.set(title=f"{name} dimensions", ylabel="value")
    panels[-1].set_xlabel("dimension")
    figure.legend(handles=panels[0].lines, loc="outside right upper")
    return figure


def show_curves() -> Shown:
    table = positions_by_array(10, 25, base=100.0)
    return Shown(
        "A curve for each of the positions 0 to 4, over the dimensions: first the even ones, which "
        "are sines, then the odd ones, cosines, then all. The curve of position p starts at sin(p) "
        "or cos(p), and as the frequencies fall it goes to sin(0) = 0 or cos(0) = 1. The document "
        "plots these five positions too, but labels curve i as position 2i or 2i + 1.",
        figures={"sinusoidal_curves": draw_curves(np.asarray(table[:5]))},
        captions={
            "sinusoidal_curves": "The encodings of positions 0 to 4 over their dimensions: "
            "that of position 0 is flat over sines and over cosines, and the others "
            "come closer to it the further right."
        },
    )


def show_similarities() -> Shown:
    table = positions_by_array(10, 25, base=100.0)
    similar = np.asarray(cosine_similarities(table))
    pairs = [(0, 1), (0, 5), (1, 2), (5, 2)]
    cells = [[similar[pair]] for pair in pairs]
    return Shown(
        "The cosine between two encodings depends on their distance: positions 0 and 1 are as "
        "similar as 1 and 2. At an odd width that holds nearly, since the last sine lacks its "
        f"cosine (0 and 3: {similar[0, 3]:.5f}, 2 and 5: {similar[2, 5]:.5f}); at an even width, "
        "exactly. The document concludes that closer positions are more similar. That is so for "
        f"near neighbours only: 0 and 5 have {similar[0, 5]:.4f}, 0 and 6, which are further "
        f"apart, {similar[0, 6]:.4f}.",
        {"Cosine similarity": Table(["cosine"], [f"{p} and {q}" for p, q in pairs], cells)},
        {
            "cosine_distances": viz.position_heatmaps(
                {"": 1 - similar}, x_label="position", label="cosine distance"
            )
        },
        {
            "cosine_distances": "The cosine distance of every two of ten positions: 0 on the "
            "diagonal, nearly the same along any line beside it, and not always "
            "larger further away."
        },
    )


def show_positions_of_words() -> Shown:
    ids = word_tokenizer().encode(" ".join(WORDS))
    rows = [f"pos {i} {word} ({ids[i]})" for i, word in enumerate(WORDS)]
    table = positions_by_array(8, 10, base=100.0)
    return Shown(
        "The encoding of the 8 words of a sentence at width 10 and base 100, with each word's "
        "token. It is made from the position alone: whatever word stands there, the row is the "
        "same. All values lie between -1 and 1, and all rows differ.",
        {"Encoding of 8 words": Table(names("dim", 10), rows, table, 6)},
    )


def show_sum() -> Shown:
    total = embeddings_with_positions()
    batch = PRINTED_EMBEDDINGS[None] + np.asarray(positions_by_array(8, 10, base=100.0))[None]
    rows = [f"pos {i} {word}" for i, word in enumerate(WORDS)]
    return Shown(
        "What enters the first block is the embedding plus the encoding of the position, number by "
        "number. The embeddings are those that the document drew and printed; the sum is its "
        "printed sum, to the rounding of 6 decimals. A batch only adds an axis in front: "
        f"{batch.shape}.",
        {
            "Embeddings, as printed": Table(names("dim", 10), rows, PRINTED_EMBEDDINGS, 6),
            "Embeddings and positions": Table(names("dim", 10), rows, total, 6),
        },
    )


STEPS = [
    Step(
        "Positional encoding by a loop", (131, 154), show_positions_by_loop,
        r"\mathrm{PE}(p, 2i) = \sin\left(p / b^{2i / d}\right) \\ "
        r"\mathrm{PE}(p, 2i + 1) = \cos\left(p / b^{2i / d}\right)",
    ),
    Step(
        "Positional encoding by arrays", (156, 199), show_positions_by_array,
        r"\omega_i = b^{-2i / d} \\ "
        r"\mathrm{PE}_p = \left[\sin \omega_0 p,\ \cos \omega_0 p,\ "
        r"\sin \omega_1 p,\ \cos \omega_1 p,\ \dots\right]",
    ),
    Step(
        "Heat maps of two bases", (200, 250), show_heat_maps,
        r"\omega_i = b^{-2i / d}, \quad b = 10\ \mathrm{and}\ 1000",
    ),
    Step(
        "Curves over dimensions", (252, 300), show_curves,
        r"i \to \infty: \quad \sin \omega_i p \to 0, \quad \cos \omega_i p \to 1",
    ),
    Step(
        "Similarity of positions", (302, 331), show_similarities,
        r"\dfrac{\mathrm{PE}_p \cdot \mathrm{PE}_q}{|\mathrm{PE}_p|\,|\mathrm{PE}_q|} = "
        r"\dfrac{2}{d} \sum_{i < d / 2} \cos \omega_i (p - q) \quad (d\ \mathrm{even})",
    ),
    Step(
        "Positions of a sentence's words", (333, 362), show_positions_of_words,
        r"\mathrm{PE} \in [-1, 1]^{8 \times 10}, \quad b = 100",
    ),
    Step(
        "Embeddings and positions", (363, 443), show_sum,
        r"x_p = E_{\mathrm{id}(p)} + \mathrm{PE}_p",
    ),
]  # fmt: skip
