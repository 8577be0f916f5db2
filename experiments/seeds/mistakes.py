"""A museum: every mistake of the four documents that changes a result, beside what is right."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mistaken
import numpy as np
from einops import rearrange
from steps import Document, Shown, Step, Table, print_document

from jaxformer import functional, modules
from jaxformer.config import ModelConfig

TITLES = {
    1: "Transformer From Scratch",
    2: "self-attention by hand",
    3: "multi-head attention from a fused projection",
    4: "self-attention in NumPy",
}


@dataclasses.dataclass(frozen=True)
class Mistake:
    """One mistake, an input on which it is seen, and its cure.

    Args:
        title: what goes wrong.
        document: 1 to 4.
        lines: where, first and last.
        mistaken: what the document computes.
        cure: what it should: a call of the library.
        inputs: of both.
        happens: what goes wrong, and why.
        guard: how the library makes the mistake impossible, or loud.
        rows: a name for each row of the results.
        columns: likewise.
        caption: of the table.
        digits: after the decimal point.
    """

    title: str
    document: int
    lines: Sequence[tuple[int, int]]
    mistaken: Callable[..., np.ndarray]
    cure: Callable[..., jax.Array]
    inputs: tuple[Any, ...]
    happens: str
    guard: str
    rows: Sequence[str]
    columns: Sequence[str]
    caption: str = "Weights"
    digits: int = 4

    def shows(self) -> Table:
        """The wrong row above the right one; an error by its message."""
        right = _rows(self.cure(*self.inputs))
        try:
            wrong = _rows(self.mistaken(*self.inputs))
        except ValueError as error:
            rows = [f"ValueError: {error}", f"a table of shape {right.shape}"]
            return Table(["outcome"], ["mistaken", "right"], [[row] for row in rows])
        rows = [f"{name}, {kind}" for name in self.rows for kind in ("mistaken", "right")]
        cells = [line for pair in zip(wrong, right, strict=True) for line in pair]
        return Table(self.columns, rows, cells, self.digits)

    def as_step(self) -> Step:
        """The mistake as a step of a document."""

        def show() -> Shown:
            text = f'In "{TITLES[self.document]}". {self.happens} {self.guard}'
            if len(self.lines) > 1:
                others = [f"{a}" if a == b else f"{a} to {b}" for a, b in self.lines[1:]]
                text += f" (Also lines {', '.join(others)}.)"
            return Shown(text, {self.caption: self.shows()})

        return Step(f"Document {self.document}: {self.title}", self.lines[0], show)


# Document 2's input, a row for each word, and its printed projections.
WORDS = ("Dream", "big", "and", "work", "for", "it")
EMBEDDINGS = np.array(
    [[0.72, 0.45, 0.31], [0.75, 0.20, 0.55], [0.30, 0.80, 0.40],
     [0.85, 0.35, 0.60], [0.55, 0.15, 0.75], [0.25, 0.20, 0.85]], np.float32,
)  # fmt: skip
QUERY_KERNEL = np.array([[-0.1115, 0.1204], [-0.3696, -0.2404], [-1.1969, 0.2093]], np.float32)
KEY_KERNEL = np.array([[-0.9724, -0.7550], [0.3239, -0.1085], [0.2103, -0.3908]], np.float32)
VALUE_KERNEL = np.array([[0.2350, 0.6653], [0.3528, 0.9728], [-0.0386, -0.8861]], np.float32)

# Three words: the second asks for nothing, the third is at right angles to the second.
QUERY = np.array([[1, 1], [0, 0], [1, -1]], np.float32)
KEY = np.array([[1, 0], [1, 1], [0, 1]], np.float32)

ADDED_MASK = np.array([[0, -np.inf, -np.inf], [0, 0, -np.inf], [0, 0, 0]], np.float32)
SECOND_SEES_NOTHING = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 1]], bool)

# Two sentences of two words of width two, for axes that all have one size.
QUERY_BATCH = np.array([[[1, 0], [0, 1]], [[1, 1], [0, 2]]], np.float32)
KEY_BATCH = np.array([[[2, 1], [0, 1]], [[1, 0], [3, 1]]], np.float32)

# A sentence beside two others in turn; one word each, of width three.
SENTENCE = [0.9, 1.0, 1.0]
NEIGHBOURS = np.array([[SENTENCE, [0, 0, 0]], [SENTENCE, [1, 1, 1]]], np.float32)

# Two sentences of three words that differ in the first.
SENTENCES = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
SENTENCES[1, 1:] = SENTENCES[0, 1:]


sinusoidal_positions = jax.jit(functional.sinusoidal_positions, static_argnums=(0, 1))


@functools.cache
def block() -> tuple[modules.Block, dict[str, Any]]:
    """A block as of Vaswani et al. (2017), width 4, for `SENTENCES`."""
    config = ModelConfig(
        architecture="encoder", max_len=3, num_layers=1, d_model=4, num_heads=2, d_ff=8,
        norm_position="post", activation="relu", positions="none", init_std=0.5,
    )  # fmt: skip
    layer = modules.Block(config)
    return layer, jax.jit(layer.init)(jax.random.key(0), jnp.asarray(SENTENCES))


@functools.cache
def dropping_layer() -> tuple[modules.MultiHeadAttention, dict[str, Any]]:
    """Attention with two heads and a dropout rate of 0.1, for `SENTENCES`."""
    config = ModelConfig(
        architecture="encoder", max_len=3, num_layers=1, d_model=4, num_heads=2, dropout_rate=0.1,
        positions="none", init_std=0.5,
    )  # fmt: skip
    layer = modules.MultiHeadAttention(config)
    return layer, jax.jit(layer.init)(jax.random.key(0), jnp.asarray(SENTENCES))


@functools.partial(jax.jit, static_argnames=("scale", "is_causal"))
def attend(query: np.ndarray, key: np.ndarray, **options: Any) -> jax.Array:
    """Weights `[..., T, S]` of one head, `[..., T, H]` and `[..., S, H]`."""
    one_head = (rearrange(x, "... t h -> ... t 1 h") for x in (query, key))
    return functional.attention_weights(*one_head, **options)[..., 0, :, :]


def softmax_of_scores(scores: np.ndarray) -> jax.Array:
    """Scores are the queries themselves where the keys are the unit vectors."""
    return attend(scores, np.eye(scores.shape[-1], dtype=scores.dtype), scale=1.0)


def feed_raw_input(x: np.ndarray) -> np.ndarray:
    _, variables = block()
    params = jax.tree.map(np.asarray, variables["params"]["feed_forward"])
    return mistaken.feed_forward_of_the_input(x, params)[:, -1]


def run_block(x: np.ndarray) -> jax.Array:
    layer, variables = block()
    return jax.jit(layer.apply)(variables, jnp.asarray(x)).x[:, -1]


@jax.jit
def attend_by_hand(
    inputs: np.ndarray, query_kernel: np.ndarray, key_kernel: np.ndarray, value_kernel: np.ndarray
) -> jax.Array:
    """Weights and contexts `[T, T + Hv]`."""
    query, key, value = (
        functional.linear(inputs, kernel)[:, None]
        for kernel in (query_kernel, key_kernel, value_kernel)
    )
    weights = functional.attention_weights(query, key)[0]
    contexts = functional.dot_product_attention(query, key, value)[:, 0]
    return jnp.concatenate([weights, contexts], axis=-1)


def normalize_beside_neighbours(pairs: np.ndarray) -> np.ndarray:
    return np.stack([mistaken.layer_norm_over_batch(pair)[0] for pair in pairs])


def drop_in_evaluation(x: np.ndarray) -> np.ndarray:
    """The first sentence's last row of weights by two calls, and its sum."""
    _, variables = dropping_layer()
    params = jax.tree.map(np.asarray, variables["params"])
    rows = [mistaken.weights_after_dropout(x[0], params, heads=2, seed=s)[-1] for s in (2, 7)]
    return np.array([[*row, row.sum()] for row in rows])


def evaluate_twice(x: np.ndarray) -> jax.Array:
    layer, variables = dropping_layer()
    run = jax.jit(functools.partial(layer.apply, return_weights=True))
    calls = [run(variables, jnp.asarray(x)) for _ in range(2)]
    rows = [call.weights[0, 0, -1] for call in calls]
    return jnp.stack([jnp.append(row, row.sum()) for row in rows])


def _rows(result: np.ndarray | jax.Array) -> np.ndarray:
    """One row for all leading axes."""
    return rearrange(np.asarray(result), "... c -> (...) c")


_QUERIES, _KEYS = [f"query {i}" for i in range(3)], [f"key {i}" for i in range(3)]

MISTAKES: tuple[Mistake, ...] = (
    Mistake(
        "an odd width leaves the last feature of every position at 0", 1, [(131, 154)],
        mistaken.positions_in_pairs, sinusoidal_positions, (5, 5),
        "The loop fills pairs of columns, so that the last of an odd number stays as it was made. "
        "The document prints it, and a version at once below it whose last column is right.",
        "`sinusoidal_positions` has one sine more than cosines at an odd width.",
        [f"position {p}" for p in range(5)], [f"feature {i}" for i in range(5)],
        "Positional encoding, width 5", 5,
    ),
    Mistake(
        "softmax overflows at scores of 89 and vanishes at -200", 1,
        [(725, 728), (916, 917), (1000, 1001)],
        mistaken.softmax_without_maximum, softmax_of_scores,
        (np.array([[89, 0], [-200, -200], [1, 2]], np.float32),),
        "In float32 e^89 is infinite, and infinity over infinity is NaN; where all scores are "
        "-200 it is 0 over 0. Ordinary scores hide it. The first of the three also sums over axis "
        "1, whichever axis that is.",
        "Attention takes each row's maximum off before, and works in float32 at least: scores as "
        "large as 1e30 have finite weights.",
        ["[89, 0]", "[-200, -200]", "[1, 2]"], _KEYS[:2],
    ),
    Mistake(
        "a score of 0 is taken for a masked one", 1, [(1059, 1068), (1080, 1080), (1099, 1099)],
        mistaken.mask_by_value, functools.partial(attend, is_causal=True), (QUERY, KEY),
        "The lower triangle is hidden where it is 0. Query 2 is at right angles to key 1, which "
        "it may see: hidden. Query 1 is all zeros, as padding may be: all its keys are hidden, "
        "and its weights are NaN.",
        "The causal mask compares indices; no score is read to make it.",
        _QUERIES, _KEYS,
    ),
    Mistake(
        "epsilon is subtracted from the variance", 1, [(1168, 1170)],
        mistaken.layer_norm_minus_epsilon, lambda x: functional.layer_norm(jnp.asarray(x)),
        (np.array([[0.7] * 4, [0.0033, -0.0033] * 2, [1, 2, 3, 4]], np.float32),),
        "It is there to keep the root from 0. Subtracted, it takes the root of a negative number "
        "for a constant row, and blows up a row whose variance is hardly above it.",
        "`layer_norm` adds it; a negative one is a ConfigError, there and in a config's norm_eps.",
        ["constant", "nearly constant", "1, 2, 3, 4"], [f"feature {i}" for i in range(4)],
        "Layer norm",
    ),
    Mistake(
        "the feed-forward layer is fed the block's input", 1, [(1216, 1218)],
        feed_raw_input, run_block, (SENTENCES,),
        "X is the embedding still, not what attention and the first add & norm made of it: all "
        "that came before is thrown away, and no word knows of another. Two sentences differ in "
        "their first word; the last word's vector is the same in both. Nor is the result added to "
        "what came in and normalized.",
        "`Block` wires the two sublayers with their sums and norms, and models are stacks of it.",
        ["sentence 0", "sentence 1"], [f"feature {i}" for i in range(4)],
        "The last word's vector",
    ),
    Mistake(
        "the width of an earlier loop scales the scores", 2, [(202, 205), (237, 257)],
        mistaken.attend_with_leaked_width, attend_by_hand,
        (EMBEDDINGS, QUERY_KERNEL, KEY_KERNEL, VALUE_KERNEL),
        "The variable d_k was 2, and after a loop over widths it is 256: the scores are divided "
        "by 16 in place of 1.41, and all weights come out near a sixth. Both tables that the "
        "document prints from there on are the mistaken ones here, within the rounding of its "
        "matrices.",
        "The scale is 1 over the root of the query's own last axis, unless a call says another.",
        WORDS, [*WORDS, "context 0", "context 1"], "Weights and contexts",
    ),
    Mistake(
        "the mask is on when it is switched off", 3, [(95, 99), (326, 326)],
        mistaken.attend_by_not_none,
        lambda query, key, to_mask: attend(query, key, is_causal=to_mask), (QUERY, KEY, False),
        "Whatever is not None counts as on, and the document's encoder says to_mask = False.",
        "`is_causal` is True or False; None, 0 or 1 are a ConfigError.",
        _QUERIES, _KEYS,
    ),
    Mistake(
        "an odd width is an error", 3, [(222, 223)],
        mistaken.positions_of_even_width, sinusoidal_positions, (10, 5),
        "There is a cosine for every sine, and at an odd width no column for the last.",
        "`sinusoidal_positions` takes any width from 1 on.",
        [], [], "Positional encoding, width 5",
    ),
    Mistake(
        "layer norm mixes the sentences of a batch", 3, [(271, 291)],
        normalize_beside_neighbours, lambda x: functional.layer_norm(jnp.asarray(x))[:, 0],
        (NEIGHBOURS,),
        "Mean and variance are over batch and features. At the document's batch of 1 nothing is "
        "seen. Here a sentence is normalized beside one of zeros, and beside one of ones: its "
        "first feature goes from one side of 0 to the other, for what stands next to it. Its "
        "scale and shift have the shape of the batch.",
        "`layer_norm` takes the last axis, or a run of last axes: axis=(0, 2) is a ShapeError.",
        ["beside zeros", "beside ones"], [f"feature {i}" for i in range(3)],
        "[0.9, 1, 1], normalized",
    ),
    Mistake(
        "a mask that is edited in place depends on the order", 4, [(94, 98)],
        mistaken.attend_with_swapped_edits, functools.partial(attend, is_causal=True),
        (QUERY, KEY),
        "As printed it fails at once: NumPy 2 has no np.infty. With np.inf, its two lines are "
        "right in their order, 0 to -inf before 1 to 0; here they are swapped, all is hidden, and "
        "every weight is NaN. Run again, a cell of them hides all as well.",
        "`functional.causal` makes the mask in one expression, and a JAX array cannot be edited: "
        "assigning to its elements is a TypeError.",
        _QUERIES, _KEYS,
    ),
    Mistake(
        ".T reverses the axes of the batch too", 4, [(102, 103), (109, 113)],
        mistaken.attend_by_transposing, attend,
        (QUERY_BATCH, KEY_BATCH),
        "With two axes .T is what is meant. With a batch it brings the last axis to the front, "
        "which is an error for most sizes, and for equal ones silently another product, divided "
        "by the sums of other rows: weights that do not sum to 1. The softmax overflows besides, "
        "like document 1's.",
        "Attention names its axes in every product, with any leading ones before them: a batch "
        "gives what its sentences give alone.",
        [f"sentence {b}, query {t}" for b in range(2) for t in range(2)], _KEYS[:2],
    ),
    Mistake(
        "one word, mask, for two opposite things", 4, [(94, 119), (161, 161)],
        mistaken.attend_where_not_zero,
        lambda query, key, mask: attend(query, key, bias=mask),
        (QUERY, KEY, ADDED_MASK),
        "The NumPy function adds its mask: 0 where one may look, -inf where not. The layer below "
        "hides where its mask is 0. The first given to the second attends to exactly what is "
        "forbidden, and the last word, to which nothing is, gets NaN.",
        "A mask is bool, True = attend, and what is added is another argument, the bias, of "
        "floats: a float mask or a bool bias is a ShapeError.",
        _QUERIES, _KEYS,
    ),
    Mistake(
        "a word that may see nothing becomes NaN", 4, [(161, 163)],
        mistaken.attend_where_not_zero,
        lambda query, key, mask: attend(query, key, mask=mask),
        (QUERY, KEY, SECOND_SEES_NOTHING),
        "All its scores are -inf, and so is their maximum: 0 over 0. Padding does that, and one "
        "NaN makes the whole loss NaN.",
        "A query that may see nothing has weights and output of exactly 0, and gradients of 0.",
        _QUERIES, _KEYS,
    ),
    Mistake(
        "dropout is on in evaluation too", 4, [(164, 172)],
        drop_in_evaluation, evaluate_twice, (SENTENCES,),
        "The function form of dropout is on unless it is told training=False; here it is told "
        "nothing, the rate is fixed, and the weights returned are those after it, whose rows do "
        "not sum to 1. Two calls on one sentence differ.",
        "Dropout needs deterministic=False and a key, without which it is an error; the weights "
        "returned are those before it.",
        ["first call", "second call"], ["word 0", "word 1", "word 2", "sum"],
        "Weights of the last word",
    ),
)  # fmt: skip

DOCUMENT = Document(
    name="mistakes",
    title="A museum of mistakes",
    about=f"The {len(MISTAKES)} mistakes of the four documents that change a result: what they "
    "compute, what is right, and what the library does so that nobody makes them again.",
    steps=tuple(mistake.as_step() for mistake in MISTAKES),
)

if __name__ == "__main__":
    print_document(DOCUMENT)
