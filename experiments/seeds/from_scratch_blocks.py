"""Blocks: add and norm, feed-forward, repetition, and the next token.

The last part of `transformer_from_scratch`. The document is cited by its line numbers.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from from_scratch_attention import SIX_WORDS, draw_kernel, inputs_with_positions
from from_scratch_heads import (
    D_K,
    D_MODEL,
    D_V,
    NUM_HEADS,
    multi_head_fused,
    multi_head_params,
)
from from_scratch_inputs import word_tokenizer
from histograms import draw_histograms
from measures import count_numbers, largest_difference
from scores import weights_of_scores
from steps import Shown, Step, Table

from jaxformer.config import ModelConfig, SamplingConfig
from jaxformer.functional import FeedForwardParams, feed_forward, layer_norm, linear
from jaxformer.inference import sample
from jaxformer.modules import AttentionContext, Block, Stack

BLOCK = ModelConfig(
    max_len=16, num_layers=6, d_model=D_MODEL, num_heads=NUM_HEADS, head_dim=D_K,
    value_head_dim=D_V, d_ff=3 * D_MODEL, positions="none", norm_position="post",
    activation="relu",
)  # fmt: skip
"""The document's block: 3 heads of d_k 28 and d_v 30, a hidden width of 300, 6 times."""


def zeros(width: int) -> jax.Array:
    """Initial bias, `[width]`."""
    return jnp.asarray(np.zeros(width, np.float32))


def residual_sum() -> jax.Array:
    """Input of the first norm: the block's input plus its masked attention, `[6, 100]`."""
    x = inputs_with_positions(D_MODEL)
    return x + multi_head_fused(multi_head_params(), x, is_causal=True).output


def feed_forward_params(seed: int = 9) -> FeedForwardParams:
    """Two projections, 100 to 300 and back, with biases."""
    return FeedForwardParams(
        up_kernel=draw_kernel(D_MODEL, BLOCK.ff_dim, seed),
        down_kernel=draw_kernel(BLOCK.ff_dim, D_MODEL, seed + 1),
        up_bias=zeros(BLOCK.ff_dim),
        down_bias=zeros(D_MODEL),
    )


def block_by_hand() -> jax.Array:
    """Attention, add and norm, feed-forward, add and norm, `[6, 100]`."""
    x = layer_norm(residual_sum())
    return layer_norm(x + feed_forward(feed_forward_params(), x))


def block_by_module() -> jax.Array:
    """The block by the library's `Block`, with the same parameters, `[6, 100]`."""
    attention = {k: v for k, v in multi_head_params()._asdict().items() if v is not None}
    for name in ("query", "key", "value", "output"):
        attention[f"{name}_bias"] = zeros(attention[f"{name}_kernel"].shape[1])
    norm = {"scale": 1 + zeros(D_MODEL), "bias": zeros(D_MODEL)}
    params = {
        "attention": attention,
        "attention_norm": norm,
        "feed_forward": feed_forward_params()._asdict(),
        "feed_forward_norm": norm,
    }
    block, causal = jax.jit(Block(BLOCK).apply), AttentionContext(is_causal=True)
    return block({"params": params}, inputs_with_positions(D_MODEL)[None], causal).x[0]


def moments(values: Any) -> np.ndarray:
    """Mean, variance, skewness and excess kurtosis."""
    values = np.asarray(values, np.float64)
    centred = values - values.mean()
    deviation = centred.std()
    third, fourth = ((centred / deviation) ** power for power in (3, 4))
    return np.array([values.mean(), deviation**2, third.mean(), fourth.mean() - 3])


def linear_layers(count: int) -> list[tuple[jax.Array, jax.Array]]:
    """The document's dummy blocks: kernels and biases of linear layers of width 10."""
    return [(draw_kernel(10, 10, seed), zeros(10)) for seed in range(count)]


def apply_linear_layers(layers: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    """Applies linear layers one after the other, `[T, 10]`."""
    for kernel, bias in layers:
        x = linear(x, kernel, bias)
    return x


def stack_size(stack: Stack) -> int:
    """Number of parameters of a stack of blocks, from shapes only."""
    x = jax.ShapeDtypeStruct((1, 6, stack.config.d_model), jnp.float32)
    context = AttentionContext(encoded=x if stack.config.has_cross_attention else None)
    return count_numbers(jax.eval_shape(stack.init, jax.random.key(0), x, context))


def next_token_logits() -> jax.Array:
    """Logits `[1, 6, V]` of the next token: a projection of the block's output."""
    kernel = draw_kernel(D_MODEL, word_tokenizer().vocab_size, 11)
    return linear(block_by_hand()[None], kernel)


def show_residual() -> Shown:
    x, added = inputs_with_positions(D_MODEL), residual_sum()
    return Shown(
        "The input of the attention is added to its output, so that gradients have a way around "
        "it. Both are (6, 100). What goes in, and so what is added, is embeddings and "
        "positions; from the heads on the document leaves the positions out of both, so that its "
        "blocks could not tell the order of the words but for the mask.",
        {"Shapes": Table(["shape"], ["input", "sum"], [[str(x.shape)], [str(added.shape)]])},
    )


def show_layer_norm() -> Shown:
    before = residual_sum()
    after = layer_norm(before)
    columns = ["mean", "variance", "skewness", "excess kurtosis"]
    rows = ["before", "after"]
    return Shown(
        "Layer norm gives each token, over its own features, mean 0 and variance 1; the epsilon "
        "under the root is added to the variance, not subtracted as in the document. Scale and "
        "shift start at 1 and 0 and are parameters; the document sets them equal to their "
        "gradients. It finds the values more normal after it, but they are only moved and "
        "stretched: skewness and kurtosis stay what they were.",
        {"The first token": Table(columns, rows, [moments(before[0]), moments(after[0])])},
        {"layer_norm": draw_histograms(
            {"before": np.asarray(before[0]), "after": np.asarray(after[0])}, x_label="value"
        )},
        {"layer_norm": "How the first token's features are distributed before and after layer "
         "norm: moved to mean 0 and stretched to variance 1, with the same shape."},
    )  # fmt: skip


def show_feed_forward() -> Shown:
    x, params = layer_norm(residual_sum()), feed_forward_params()
    together = feed_forward(params, x)
    off = largest_difference(together[-1:], feed_forward(params, x[-1:]))
    return Shown(
        "max(0, x W1 + b1) W2 + b2, from width 100 to 300 and back, on the normalized output of "
        "the attention. It comes after the heads are merged and takes every token by itself: the "
        f"last one alone gives the same as with the others (largest difference: {off:.1g}). The "
        "document feeds it the raw embeddings in place of what attention made, leaves out the "
        "second add and norm, and calls the first bias k.",
        {"Shapes": Table(["shape"], ["input", "output"], [[str(x.shape)], [str(together.shape)]])},
    )


def show_repeated_block() -> Shown:
    x = apply_linear_layers(linear_layers(6), inputs_with_positions())
    narrow = dataclasses.replace(
        BLOCK, d_model=10, num_heads=2, head_dim=5, value_head_dim=5, d_ff=40
    )
    kinds = {
        "block of width 10": Stack(narrow),
        "the block of the steps before": Stack(BLOCK),
        "with cross-attention": Stack(dataclasses.replace(BLOCK, architecture="encoder_decoder")),
    }
    sizes = [["linear layer of width 10", *(count_numbers(linear_layers(n)) for n in (1, 6))]]
    for name, stack in kinds.items():
        depths = (dataclasses.replace(stack.config, num_layers=n) for n in (1, 6))
        sizes.append([name, *(stack_size(stack.clone(config=config)) for config in depths)])
    rows, cells = [row[0] for row in sizes], [row[1:] for row in sizes]
    off = largest_difference(block_by_hand(), block_by_module())
    return Shown(
        "Six layers have six times the parameters of one: 6 x (10 x 10 + 10) = 660 for the "
        f"document's dummy, which is a linear layer only and keeps the shape {x.shape}. "
        "Real blocks, wired as above, are Stack; one of them with the kernels of the steps before "
        "gives the same as the functions called one by one (largest difference: "
        f"{off:.1g}). The decoder of an encoder-decoder has cross-attention and a third norm "
        "besides.",
        {"Parameters": Table(["1 layer", "6 layers"], rows, cells)},
    )


def show_next_token() -> Shown:
    logits = next_token_logits()
    last = logits[:, -1]
    probabilities = np.asarray(weights_of_scores(last))[0]
    rngs = jax.random.split(jax.random.key(0), 1)
    chosen = int(sample(last, rngs, SamplingConfig(temperature=0))[0])
    words = {token: word for word, token in word_tokenizer().words.items()}
    order = np.argsort(-probabilities)[:4]
    rows = [words.get(int(token), "(special)") for token in order]
    cells = [
        [str(token), f"{np.asarray(last)[0, token]:.4f}", f"{probabilities[token]:.4f}"]
        for token in order
    ]
    return Shown(
        "A last projection gives logits for every position and every token of the vocabulary, "
        f"{logits.shape}. Those of the last position are the next token's; softmax makes "
        f"probabilities of them, and the largest is taken: token {chosen}, "
        f"{words.get(chosen, 'a special one')!r}, by chance, as nothing is trained. Decoder does "
        "all of this, from tokens to logits, and takes the embedding table for the projection "
        "unless told otherwise. The document says of the Transformer as such that it predicts the "
        "next token: decoders do, encoders do not.",
        {f"After {' '.join(SIX_WORDS)!r}": Table(["token", "logit", "probability"], rows, cells)},
    )


STEPS = [
    Step("Skip connections", (1123, 1166), show_residual, r"Y = X + \mathrm{attention}(X)"),
    Step(
        "Layer normalization", (1168, 1195), show_layer_norm,
        r"\mathrm{norm}(x) = \gamma\,\dfrac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta",
    ),
    Step(
        "Position-wise feed-forward", (1197, 1218), show_feed_forward,
        r"\mathrm{feed}(x) = \max(0,\ x W_1 + b_1)\,W_2 + b_2",
    ),
    Step(
        "Repeated blocks", (1220, 1266), show_repeated_block,
        r"Z = \mathrm{norm}(X + \mathrm{attention}(X)) \\ "
        r"\mathrm{block}(X) = \mathrm{norm}(Z + \mathrm{feed}(Z))",
    ),
    Step(
        "The next token", (1268, 1289), show_next_token,
        r"\ell = Y W_U \in \mathbb{R}^{T \times V} \\ "
        r"p(\mathrm{next} = v) = \mathrm{softmax}(\ell_T)_v",
    ),
]  # fmt: skip
