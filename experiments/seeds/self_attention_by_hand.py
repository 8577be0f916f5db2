"""The tutorial on "Dream big and work for it", self-attention by hand, redone with the library.

Its printed vectors and matrices are the inputs here, and its printed results come out again to
the 4 decimals they have, but for two tables that it computed with the width of another cell: those
are made both ways. The document is cited by its line numbers.

Run: python experiments/seeds/self_attention_by_hand.py
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measures import largest_difference
from scores import compiled_attention_weights, weights_of_scores
from steps import Document, Shown, Step, Table, print_document

from jaxformer import viz
from jaxformer.config import ModelConfig
from jaxformer.functional import attention_weights, dot_product_attention, linear
from jaxformer.modules import MultiHeadAttention

WORDS = ["Dream", "big", "and", "work", "for", "it"]
BIG = WORDS.index("big")

INPUTS = jnp.asarray([
    [0.72, 0.45, 0.31],
    [0.75, 0.20, 0.55],
    [0.30, 0.80, 0.40],
    [0.85, 0.35, 0.60],
    [0.55, 0.15, 0.75],
    [0.25, 0.20, 0.85],
])  # fmt: skip
W_QUERY = jnp.asarray([[-0.1115, 0.1204], [-0.3696, -0.2404], [-1.1969, 0.2093]])
W_KEY = jnp.asarray([[-0.9724, -0.7550], [0.3239, -0.1085], [0.2103, -0.3908]])
W_VALUE = jnp.asarray([[0.2350, 0.6653], [0.3528, 0.9728], [-0.0386, -0.8861]])

D_K = 2
LEAKED_D_K = 256
"""What d_k is in the document's last tables: the last value of the loop over widths before."""

WIDTHS = [8, 16, 32, 64, 128, 256]
PRINTED_VARIANCES = np.array([
    [8.1428, 15.9418, 32.1296, 63.9599, 128.0868, 256.2036],
    [1.0179, 0.9964, 1.0040, 0.9994, 1.0007, 1.0008],
])  # fmt: skip
"""Lines 208 to 213: of drawn queries and keys, before and after scaling."""

SHARP = [0.1, -0.2, 0.3, -0.2, 0.5]

LAYER = ModelConfig(
    architecture="encoder", max_len=8, num_layers=1, d_model=3, num_heads=1, head_dim=D_K,
    positions="none", use_bias=False,
)  # fmt: skip
"""One head of width 2 over vectors of width 3; an encoder's, so that every word sees all."""


@functools.partial(jax.jit, static_argnames=("scale", "stage"))
def _weights(query: jax.Array, key: jax.Array, **options: Any) -> jax.Array:
    """Weights `[T, S]` of one head, without a head axis."""
    return attention_weights(query[:, None], key[:, None], **options)[0]


@functools.partial(jax.jit, static_argnames="scale")
def _attend(query: jax.Array, key: jax.Array, value: jax.Array, *, scale: float) -> jax.Array:
    """Contexts `[T, Hv]` of one head, without a head axis."""
    return dot_product_attention(query[:, None], key[:, None], value[:, None], scale=scale)[:, 0]


def queries() -> jax.Array:
    """The query of every word, `[6, 2]`."""
    return linear(INPUTS, W_QUERY)


def keys() -> jax.Array:
    """The key of every word, `[6, 2]`."""
    return linear(INPUTS, W_KEY)


def values() -> jax.Array:
    """The value of every word, `[6, 2]`."""
    return linear(INPUTS, W_VALUE)


def scores() -> jax.Array:
    """The unscaled scores, query by key, `[6, 6]`."""
    return _weights(queries(), keys(), scale=1.0, stage="scores")


def weights(d_k: int = D_K) -> jax.Array:
    """The weights, query by key, of scores divided by sqrt(d_k), `[6, 6]`."""
    return _weights(queries(), keys(), scale=d_k**-0.5)


def contexts(d_k: int = D_K) -> jax.Array:
    """The context of every word, of scores divided by sqrt(d_k), `[6, 2]`."""
    return _attend(queries(), keys(), values(), scale=d_k**-0.5)


def contexts_by_module(inputs: jax.Array) -> jax.Array:
    """Contexts `[B, T, 2]` of `[B, T, 3]` by the library's layer with the printed matrices.

    The layer projects its heads back to the width of its input, which the document's does not:
    here by the identity, which leaves both numbers alone and adds a 0.
    """
    kernels = {
        "query": W_QUERY,
        "key": W_KEY,
        "value": W_VALUE,
        "output": np.eye(2, 3, dtype=np.float32),
    }
    params = {f"{name}_kernel": kernel for name, kernel in kernels.items()}
    layer = jax.jit(MultiHeadAttention(LAYER).apply)
    return layer({"params": params}, inputs).output[..., :2]


def variances(width: int, pairs: int = 10_000) -> tuple[float, float]:
    """The variance of q . k over pairs of drawn vectors, before and after scaling.

    Args:
        width: d_k, of vectors of independent standard normal numbers; also the seed.
        pairs: how many queries, each with a key of its own.
    """
    shape = (2, pairs, 1, 1, width)  # of each pair one query and one key, in one head
    query, key = np.random.default_rng(width).standard_normal(shape, np.float32)
    before = compiled_attention_weights(query, key, scale=1.0, stage="scores")
    after = compiled_attention_weights(query, key, stage="scores")
    return float(np.var(before)), float(np.var(after))


def standard_error(width: int, pairs: int = 10_000) -> float:
    """Standard error of the variance before scaling, from independent pairs.

    A product of two standard normal numbers has variance 1 and fourth moment 9; so a sum of d has
    variance d and fourth moment 3 d^2 + 6 d, and its sample variance the variance
    (2 d^2 + 6 d) / pairs.
    """
    return ((2 * width**2 + 6 * width) / pairs) ** 0.5


def standard_error_of_all_pairs(width: int, vectors: int = 10_000) -> float:
    """Standard error of the document's variance, over all products of queries with keys.

    Only the vectors are independent, not their products: what is left is the error of the mean
    squared length of queries, and of keys, whose variance is 2 d each.
    """
    return (4 * width / vectors) ** 0.5


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
    both = np.concatenate([contexts(LEAKED_D_K), contexts()], axis=1)
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
            "Contexts": Table(columns, WORDS, both),
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
        Step("Words as vectors", (3, 32), show_inputs),
        Step("Matrices", (35, 62), show_matrices),
        Step("Query, key and value of one word", (66, 78), show_big),
        Step("Queries, keys and values", (82, 114), show_projections),
        Step("Scores of one word", (118, 139), show_scores_of_big),
        Step("All scores", (143, 155), show_scores),
        Step("Weights of one word", (159, 171), show_weights_of_big),
        Step("Scores and sharpness", (175, 186), show_sharpness),
        Step("Variance of the scores", (189, 213), show_variances),
        Step("Context of one word", (216, 231), show_context_of_big),
        Step("All weights and contexts", (235, 257), show_all),
        Step("As a layer", (261, 292), show_module),
    ],
)

if __name__ == "__main__":
    print_document(DOCUMENT)
