"""Positions, layer norm, and a whole encoder.

The second part of `multi_head_and_encoder`. The document is cited by its line numbers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from fused_heads import BATCH, D_MODEL, HEADS, LENGTH
from measures import count_numbers, largest_difference
from positions import positions_by_array, positions_by_loop
from steps import Shown, Step, Table

from jaxformer import functional, viz
from jaxformer.config import ModelConfig
from jaxformer.models import Encoder

# Mean, root of variance + 1e-5, and result of its layer norm at batch 1, a row for each word.
PRINTED_MEAN, PRINTED_STD = np.array([0.5155, 0.5518]), np.array([0.3074, 0.1467])
PRINTED_NORMALIZED = np.array(
    [[1.2248e00, -2.2416e-04, -1.2246e00], [-9.0923e-01, 1.3923e00, -4.8308e-01]]
)


def denominators(d_model: int, dtype: str = "float64") -> np.ndarray:
    """Divisors of the positions, with exponents rounded to a dtype."""
    exponents = np.arange(0, d_model, 2, dtype) / np.array(d_model, dtype)
    return np.power(np.array(10_000, dtype), exponents)


def inputs_of_printed_norm() -> jax.Array:
    """The two words `[1, 2, 3]` behind the printed mean, deviation and result."""
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
    params = jax.eval_shape(Encoder(config).init_params, jax.random.key(0))
    sizes = {name: count_numbers(part) for name, part in params.items()}
    return {"embedding": sizes.pop("embedding"), "layers": sum(sizes.values())}


class Encoded(NamedTuple):
    """Hidden states of the same rows with two different contents of the padding.

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
    tokens, labels = rng.integers(config.vocab_size, size=(2, batch_size, LENGTH))
    lengths = LENGTH - np.arange(batch_size) % 30
    real = np.arange(LENGTH) < lengths[:, None]
    variables = {"params": model.init_params(jax.random.key(0))}
    run = jax.jit(model.apply)
    hidden, other_padding = (
        run(variables, jnp.asarray(rows), lengths=jnp.asarray(lengths)).hidden
        for rows in (tokens, np.where(real, tokens, labels))
    )
    return Encoded(hidden, other_padding, lengths)


def show_position_loop() -> Shown:
    table = positions_by_loop(10, 6)
    return Shown(
        "Feature 2i of position p is sin(p / 10000^(2i/6)), feature 2i + 1 the cosine of the same "
        "angle: all sixty numbers are the document's. Its comment means that 2i runs over the "
        "even numbers; i itself is 0, 1, 2.",
        {"Encoding, by a loop": _position_table(table)},
    )


def show_position_array() -> Shown:
    table = positions_by_array(10, 6)
    odd = positions_by_array(10, 5)
    off = [
        largest_difference(positions, positions_by_loop(*positions.shape))
        for positions in (table, odd)
    ]
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
                [[f"{difference:.2g}"] for difference in off],
            ),
        },
        {"positions_10_by_6": viz.position_heatmaps({"Ten positions, six features": table})},
        {
            "positions_10_by_6": "The encoding of ten positions at width 6: the first two columns "
            "go up and down, the next two turn slowly, the last two hardly at all."
        },
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
    change = f"{largest_difference(result.hidden[real], result.other_padding[real]):.2g}"
    return Shown(
        "The document ends with the numbers of an encoder: 50 tokens, batches of 30, width 512, 8 "
        "heads, dropout 0.1, hidden width 2048, 5 layers. Here it is: sinusoidal positions, "
        "`norm(x + f(x))`, ReLU, and for its vocabulary, which it does not name, 1000 tokens. "
        "Rows are 21 to 50 tokens long and padded to 50; writing other tokens into the padding "
        f"changes nothing at the real ones (largest difference: {change}). Nothing hides what "
        "comes later: that the document says by to_mask = False, which its own code "
        "would take for True.",
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


def _position_table(table: jax.Array | np.ndarray) -> Table:
    rows = [f"position {position}" for position in range(table.shape[0])]
    return Table([str(feature) for feature in range(table.shape[1])], rows, np.asarray(table))


STEPS = [
    Step(
        "Positional encoding by a loop", (175, 205), show_position_loop,
        r"\mathrm{PE}(p, 2i) = \sin\left(p / 10000^{2i / 6}\right) \\ "
        r"\mathrm{PE}(p, 2i + 1) = \cos\left(p / 10000^{2i / 6}\right)",
    ),
    Step(
        "Positional encoding at once", (210, 245), show_position_array,
        r"10000^{2i / 6} = 1,\ 21.5443,\ 464.1589",
    ),
    Step(
        "Layer normalization", (258, 312), show_layer_norm,
        r"\mu = \dfrac{1}{D} \sum_i x_i, \quad \sigma^2 = \dfrac{1}{D} \sum_i (x_i - \mu)^2 \\ "
        r"y = \dfrac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}, \quad "
        r"\mathrm{Var}(y) = \dfrac{\sigma^2}{\sigma^2 + \epsilon}",
    ),
    Step(
        "Encoder", (320, 328), show_encoder,
        r"X_0 = E + \mathrm{PE}, \quad X_{l + 1} = \mathrm{norm}(Z_l + \mathrm{feed}(Z_l)) \\ "
        r"Z_l = \mathrm{norm}(X_l + \mathrm{attention}(X_l))",
    ),
]  # fmt: skip
