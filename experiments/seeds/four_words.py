"""Attention over four words, in NumPy and by the library, and a multi-head layer over them."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange
from flax import linen as nn

from jaxformer import functional, modules, text
from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError

SENTENCE = "my name is prathamesh"
WORDS = tuple(SENTENCE.split())
LENGTH, WIDTH = 4, 8
D_MODEL, HEADS = 512, 8


class Draw(NamedTuple):
    """Float64 `[T, H]` each, as NumPy draws them.

    Args:
        query: what each word asks for.
        key: what it is found by.
        value: what it gives.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray


@functools.cache
def draw() -> Draw:
    return Draw(*np.random.default_rng(0).standard_normal((3, LENGTH, WIDTH)))


def attend_in_numpy(drawn: Draw, *, is_causal: bool) -> dict[str, np.ndarray]:
    """Reference of the document's formula, in float64 and stable."""
    raw = np.einsum("th,sh->ts", drawn.query, drawn.key)
    scaled = raw / math.sqrt(WIDTH)
    hidden = np.arange(LENGTH) > np.arange(LENGTH)[:, None]
    masked = np.where(hidden & is_causal, -np.inf, scaled)
    powers = np.exp(masked - masked.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return {
        "raw": raw,
        "scaled": scaled,
        "masked": masked,
        "weights": weights,
        "values": np.einsum("ts,sh->th", weights, drawn.value),
    }


@functools.partial(jax.jit, static_argnames="is_causal")
def attend(drawn: Draw, *, is_causal: bool) -> dict[str, jax.Array]:
    """Attention by the library: scores and weights `[T, S]` by stage, and values `[T, H]`."""
    query, key, value = (_one_head(part) for part in drawn)
    look = functools.partial(functional.attention_weights, query, key, is_causal=is_causal)
    values = functional.dot_product_attention(query, key, value, is_causal=is_causal)
    return {
        "raw": look(scale=1.0, stage="scores")[0],
        "scaled": look(stage="scores")[0],
        "masked": look(stage="masked")[0],
        "weights": look()[0],
        "values": rearrange(values, "t 1 h -> t h"),
    }


@jax.jit
def weights_by_mask_and_by_bias() -> tuple[jax.Array, jax.Array]:
    """The weights `[T, S]`: hidden by a bool mask, and by a bias of -inf."""
    query, key, _ = (_one_head(part) for part in draw())
    mask = functional.Causal().array(LENGTH, LENGTH)
    bias = jnp.where(mask, 0.0, -jnp.inf)
    by_mask = functional.attention_weights(query, key, mask=mask)
    by_bias = functional.attention_weights(query, key, bias)
    return by_mask[0], by_bias[0]


@functools.partial(jax.jit, static_argnames="samples")
def sample_scores(samples: int = 10_000) -> tuple[jax.Array, jax.Array]:
    """Raw and scaled scores `[samples, T, S]` of as many draws of queries and keys."""
    query, key = jax.random.normal(jax.random.key(0), (2, samples, LENGTH, 1, WIDTH))
    raw = functional.attention_weights(query, key, scale=1.0, stage="scores")
    scaled = functional.attention_weights(query, key, stage="scores")
    return raw[:, 0], scaled[:, 0]


def score_bytes(length: int) -> int:
    """Bytes of all float32 scores of one head."""
    return 4 * length**2


@functools.cache
def embed_words() -> jax.Array:
    """Inputs `[1, T, D]`: embeddings of words plus those of positions."""
    tokenizer = text.train_word([SENTENCE])
    table = jax.random.normal(jax.random.key(1), (tokenizer.vocab_size, D_MODEL))
    return _embed(table, jnp.asarray(tokenizer.encode(SENTENCE)))[None]


@jax.jit
def _embed(table: jax.Array, tokens: jax.Array) -> jax.Array:
    positions = functional.sinusoidal_positions(len(tokens), table.shape[1])
    return functional.embed(table, tokens) + positions


@functools.cache
def multi_head_layer() -> tuple[modules.MultiHeadAttention, dict]:
    """The layer with its parameters, weights as wide as those of the document's start."""
    config = ModelConfig(
        max_len=LENGTH, num_layers=1, d_model=D_MODEL, num_heads=HEADS, positions="none",
        dropout_rate=0.1, init_std=(3 * D_MODEL) ** -0.5,
    )  # fmt: skip
    layer = modules.MultiHeadAttention(config)
    return layer, nn.unbox(jax.jit(layer.init)(jax.random.key(2), embed_words()))


def run_layer(*, dropout_seed: int | None = None) -> functional.MultiHeadOutput:
    """Output `[1, T, D]` and weights `[1, N, T, S]`, without or with dropout."""
    layer, variables = multi_head_layer()
    causal = modules.AttentionContext(is_causal=True)
    run = functools.partial(layer.apply, return_weights=True)
    if dropout_seed is None:
        return jax.jit(run)(variables, embed_words(), causal)
    rngs = {"dropout": jax.random.key(dropout_seed)}
    run = functools.partial(run, deterministic=False)
    return jax.jit(run)(variables, embed_words(), causal, rngs=rngs)


def message_of_uneven_heads() -> str:
    """Error message of the library for a width that the heads do not divide."""
    try:
        ModelConfig(max_len=LENGTH, num_layers=1, d_model=10, num_heads=4)
    except ConfigError as error:
        return str(error)
    raise AssertionError("a width of 10 was cut into 4 heads")


def _one_head(x: np.ndarray) -> jax.Array:
    return rearrange(jnp.asarray(x, jnp.float32), "t h -> t 1 h")
