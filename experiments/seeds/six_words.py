"""Self-attention over the six words of "Dream big and work for it", by hand and by the library.

The vectors and matrices are those that the document prints. It is cited by its line numbers.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scores import compiled_attention_weights

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
