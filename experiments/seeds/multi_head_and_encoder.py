"""Multi-head attention from a fused projection, positions, layer norm and an encoder, redone."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from fused_heads import (
    BATCH,
    D_MODEL,
    HEADS,
    LENGTH,
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
from steps import Document, Shown, Step, Table, print_document

from jaxformer import functional, viz
from jaxformer.config import ModelConfig
from jaxformer.models import Encoder

# Mean, root of variance + 1e-5, and result of its layer norm at batch 1, a row for each word.
PRINTED_MEAN, PRINTED_STD = np.array([0.5155, 0.5518]), np.array([0.3074, 0.1467])
PRINTED_NORMALIZED = np.array(
    [[1.2248e00, -2.2416e-04, -1.2246e00], [-9.0923e-01, 1.3923e00, -4.8308e-01]]
)


def positions_by_loop(length: int, d_model: int) -> np.ndarray:
    """One sine or cosine after the other."""
    table = np.zeros((length, d_model))
    for position in range(length):
        for feature in range(d_model):
            angle = position / 10_000 ** (2 * (feature // 2) / d_model)
            table[position, feature] = math.cos(angle) if feature % 2 else math.sin(angle)
    return table


@functools.partial(jax.jit, static_argnums=(0, 1))
def positions_at_once(length: int, d_model: int) -> jax.Array:
    return functional.sinusoidal_positions(length, d_model)


def denominators(d_model: int, dtype: str = "float64") -> np.ndarray:
    """What positions are divided by, the exponents rounded to a dtype first."""
    exponents = np.arange(0, d_model, 2, dtype) / np.array(d_model, dtype)
    return np.power(np.array(10_000, dtype), exponents)


def inputs_of_printed_norm() -> jax.Array:
    """The two words `[1, 2, 3]` that the printed mean, deviation and result were made from."""
    words = PRINTED_MEAN[:, None] + PRINTED_STD[:, None] * PRINTED_NORMALIZED
    return jnp.asarray(words[None], jnp.float32)


def encoder_config(vocab_size: int = 1000) -> ModelConfig:
    """The document's hyperparameters, in the block of Vaswani et al. (2017)."""
    return ModelConfig(
        architecture="encoder", vocab_size=vocab_size, max_len=LENGTH, num_layers=5,
        d_model=D_MODEL, num_heads=HEADS, d_ff=2048, dropout_rate=0.1, positions="sinusoidal",
        norm_position="post", activation="relu",
    )  # fmt: skip


def count_parameters(config: ModelConfig) -> dict[str, int]:
    """Parameters of the embedding and of the layers."""
    tokens = jnp.zeros((1, LENGTH), jnp.int32)
    params = jax.eval_shape(Encoder(config).init, jax.random.key(0), tokens)["params"]
    sizes = {
        name: sum(leaf.size for leaf in jax.tree.leaves(part)) for name, part in params.items()
    }
    return {"embedding": sizes.pop("embedding"), "layers": sum(sizes.values())}


class Encoded(NamedTuple):
    """Two passes of an encoder that differ in what stands in the padding.

    Args:
        hidden: float `[B, T, D]`.
        other_padding: float `[B, T, D]`.
        lengths: int `[B]`, real tokens of each row.
    """

    hidden: jax.Array
    other_padding: jax.Array
    lengths: np.ndarray


def encode(config: ModelConfig, batch_size: int = BATCH) -> Encoded:
    """Runs an encoder on rows of 21 to 50 tokens, padded to 50 in two ways."""
    model = Encoder(config)
    rng = np.random.default_rng(0)
    tokens, others = rng.integers(config.vocab_size, size=(2, batch_size, LENGTH))
    lengths = LENGTH - np.arange(batch_size) % 30
    real = np.arange(LENGTH) < lengths[:, None]
    variables = jax.jit(model.init)(jax.random.key(0), jnp.asarray(tokens))
    run = jax.jit(model.apply)
    hidden, other_padding = (
        run(variables, jnp.asarray(rows), lengths=jnp.asarray(lengths)).hidden
        for rows in (tokens, np.where(real, tokens, others))
    )
    return Encoded(hidden, other_padding, lengths)


def _difference(a: jax.Array | np.ndarray, b: jax.Array | np.ndarray) -> str:
    return f"{np.abs(np.asarray(a) - np.asarray(b)).max():.2g}"


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
    differences = [[_difference(right, by_step)], [_difference(wrong, by_step)]]
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
                differences,
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
                ["document: [30, 8, 50, 50] of float32", "causal(50, 50): [50, 50] of bool",
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
    )


def show_output() -> Shown:
    arrays = attend_step_by_step()
    merged = functional.dot_product_attention(
        arrays["query"], arrays["key"], arrays["value"], is_causal=True
    )
    whole = attend_in_one_call(to_params(draw_projection()))
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
                [[_difference(merged, arrays["values"])], [_difference(whole, arrays["out"])]],
            ),
        },
    )


def show_position_loop() -> Shown:
    table = positions_by_loop(10, 6)
    return Shown(
        "Feature 2i of position p is sin(p / 10000^(2i/6)), feature 2i + 1 the cosine of the same "
        "angle: all sixty numbers are the document's. Its comment means that 2i runs over the "
        "even numbers; i itself is 0, 1, 2.",
        {"Encoding, by a loop": _position_table(table)},
    )


def show_position_array() -> Shown:
    table = positions_at_once(10, 6)
    odd = positions_at_once(10, 5)
    return Shown(
        "`sinusoidal_positions` makes the same table at once. The denominators are 1, 21.5443 "
        "and 464.1589: the document prints 464.1590, since it rounds the exponent 4/6 to float32 "
        "first. An odd width, at which its code stops with an error, has one sine more "
        "than cosines.",
        {
            "Denominators": Table(
                ["0", "1", "2"],
                ["10000^(2i/6)", "exponent in float32, as printed"],
                [denominators(6), denominators(6, "float32")],
            ),
            "Encoding, width 6": _position_table(table),
            "Encoding, width 5": _position_table(odd),
            "Largest difference of loop and array": Table(
                ["difference"],
                ["width 6", "width 5"],
                [
                    [_difference(table, positions_by_loop(10, 6))],
                    [_difference(odd, positions_by_loop(10, 5))],
                ],
            ),
        },
        {"positions_10_by_6": viz.position_heatmap(table, title="Ten positions, six features")},
    )


def show_layer_norm() -> Shown:
    words = inputs_of_printed_norm()
    normalized = functional.layer_norm(words)[0]
    variance = PRINTED_STD**2 - 1e-5
    shares = variance / (variance + 1e-5)
    rows = [f"word {word}, {kind}" for word in range(2) for kind in ("printed", "layer_norm")]
    cells = [
        line
        for word in range(2)
        for line in (PRINTED_NORMALIZED[word], np.asarray(normalized[word]))
    ]
    statistics = [
        [PRINTED_NORMALIZED[word].mean(), PRINTED_NORMALIZED[word].var(), shares[word]]
        for word in range(2)
    ]
    return Shown(
        "The document averages over batch and features, which at its batch of 1 is the same as "
        "over features: its inputs, got back as mean + deviation * result, give its result under "
        "`layer_norm` too. Mean 0; variance a little less than 1, namely v / (v + 1e-5). From a "
        "batch of 2 on, its sentences leak into each other (see the mistakes), and its scale and "
        "shift, of shape (batch, features), fit that batch size only. Here they are `[D]`.",
        {
            "Inputs, got back": Table(["0", "1", "2"], ["word 0", "word 1"], np.asarray(words[0])),
            "Normalized": Table(["0", "1", "2"], rows, cells, digits=5),
            "Printed rows": Table(
                ["mean", "variance", "v / (v + 1e-5)"], ["word 0", "word 1"], statistics
            ),
        },
    )


def show_encoder() -> Shown:
    config = encoder_config()
    counts, result = count_parameters(config), encode(config)
    real = np.arange(LENGTH) < result.lengths[:, None]
    change = _difference(result.hidden[real], result.other_padding[real])
    return Shown(
        "The document ends with the numbers of an encoder: 50 tokens, batches of 30, width 512, 8 "
        "heads, dropout 0.1, hidden width 2048, 5 layers. Here it is: sinusoidal positions, "
        "`norm(x + f(x))`, ReLU, and for its vocabulary, which it does not name, 1000 tokens. "
        "Rows are 21 to 50 tokens long and padded to 50; writing other tokens into the padding "
        "changes nothing at the real ones, to the bit. Nothing hides what comes later: that the "
        "document says by to_mask = False, which its own code would take for True.",
        {
            "Encoder": Table(
                ["value"],
                ["output", "parameters of 5 layers", "parameters of the embedding",
                 "change by other padding"],
                [[str(result.hidden.shape)], [f"{counts['layers']:,}"],
                 [f"{counts['embedding']:,}"], [change]],
            )
        },
    )  # fmt: skip


def _shapes(
    arrays: dict[str, jax.Array], names: tuple[str, ...], document: dict[str, tuple[int, ...]]
) -> Table:
    cells = [[str(document[name]), str(arrays[name].shape)] for name in names]
    return Table(["document", "here"], names, cells)


def _position_table(table: jax.Array | np.ndarray) -> Table:
    rows = [f"position {position}" for position in range(table.shape[0])]
    return Table([str(feature) for feature in range(table.shape[1])], rows, np.asarray(table))


DOCUMENT = Document(
    name="multi_head_and_encoder",
    title="Multi-head attention from a fused projection, and an encoder",
    about="One batch of 30 sentences of 50 tokens through multi-head attention, step by step; "
    "positions, layer norm, and an encoder of 5 layers.",
    steps=(
        Step("A fused projection", (18, 36), show_projection),
        Step("Whose columns are whose", (38, 49), show_layout),
        Step("Heads", (51, 76), show_heads),
        Step("Scores", (78, 84), show_scores),
        Step("Causal mask", (86, 110), show_mask),
        Step("Softmax", (112, 127), show_softmax),
        Step("Values, merged heads, output", (129, 157), show_output),
        Step("Positional encoding by a loop", (175, 205), show_position_loop),
        Step("Positional encoding at once", (210, 245), show_position_array),
        Step("Layer normalization", (258, 312), show_layer_norm),
        Step("Encoder", (320, 328), show_encoder),
    ),
)

if __name__ == "__main__":
    print_document(DOCUMENT)
