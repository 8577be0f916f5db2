"""Corrections of the documents' mistakes, and inputs that show the difference."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange
from flax import linen as nn
from mistaken import feed_forward_of_the_input, layer_norm_over_batch, weights_after_dropout

from jaxformer import functional, modules
from jaxformer.config import ModelConfig

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


@functools.cache
def block() -> tuple[modules.Block, dict[str, Any]]:
    """A block of Vaswani et al. (2017), width 4, for `SENTENCES`."""
    config = ModelConfig(
        architecture="encoder", max_len=3, num_layers=1, d_model=4, num_heads=2, d_ff=8,
        norm_position="post", activation="relu", positions="none", init_std=0.5,
    )  # fmt: skip
    layer, context = modules.Block(config), modules.AttentionContext()
    init = jax.jit(layer.init)
    return layer, nn.unbox(init(jax.random.key(0), jnp.asarray(SENTENCES), context))


@functools.cache
def dropping_layer() -> tuple[modules.MultiHeadAttention, dict[str, Any]]:
    """Attention with two heads and a dropout rate of 0.1, for `SENTENCES`."""
    config = ModelConfig(
        architecture="encoder", max_len=3, num_layers=1, d_model=4, num_heads=2, dropout_rate=0.1,
        positions="none", init_std=0.5,
    )  # fmt: skip
    layer = modules.MultiHeadAttention(config)
    return layer, nn.unbox(jax.jit(layer.init)(jax.random.key(0), jnp.asarray(SENTENCES)))


@functools.partial(jax.jit, static_argnames=("scale", "is_causal"))
def attend(query: np.ndarray, key: np.ndarray, **options: Any) -> jax.Array:
    """Weights `[..., T, S]` of one head, `[..., T, H]` and `[..., S, H]`."""
    one_head = (rearrange(x, "... t h -> ... t 1 h") for x in (query, key))
    return functional.attention_weights(*one_head, **options)[..., 0, :, :]


def attend_causally(query: np.ndarray, key: np.ndarray) -> jax.Array:
    return attend(query, key, is_causal=True)


def attend_by_switch(query: np.ndarray, key: np.ndarray, to_mask: bool) -> jax.Array:
    return attend(query, key, is_causal=to_mask)


def attend_with_bias(query: np.ndarray, key: np.ndarray, added: np.ndarray) -> jax.Array:
    return attend(query, key, bias=added)


def attend_where_true(query: np.ndarray, key: np.ndarray, mask: np.ndarray) -> jax.Array:
    return attend(query, key, mask=mask)


def normalize(x: np.ndarray) -> jax.Array:
    return functional.layer_norm(jnp.asarray(x))


def normalize_first(pairs: np.ndarray) -> jax.Array:
    return functional.layer_norm(jnp.asarray(pairs))[:, 0]


def feed_raw_input(x: np.ndarray) -> np.ndarray:
    _, variables = block()
    params = jax.tree.map(np.asarray, variables["params"]["feed_forward"])
    return feed_forward_of_the_input(x, params)[:, -1]


def run_block(x: np.ndarray) -> jax.Array:
    layer, variables = block()
    context = modules.AttentionContext()
    return jax.jit(layer.apply)(variables, jnp.asarray(x), context).x[:, -1]


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
    return np.stack([layer_norm_over_batch(pair)[0] for pair in pairs])


def drop_in_evaluation(x: np.ndarray) -> np.ndarray:
    """The first sentence's last row of weights by two calls, and its sum."""
    _, variables = dropping_layer()
    params = jax.tree.map(np.asarray, variables["params"])
    rows = [weights_after_dropout(x[0], params, heads=2, seed=s)[-1] for s in (2, 7)]
    return np.array([[*row, row.sum()] for row in rows])


def evaluate_twice(x: np.ndarray) -> jax.Array:
    layer, variables = dropping_layer()
    run = jax.jit(functools.partial(layer.apply, return_weights=True))
    calls = [run(variables, jnp.asarray(x)) for _ in range(2)]
    rows = [call.weights[0, 0, -1] for call in calls]
    return jnp.stack([jnp.append(row, row.sum()) for row in rows])
