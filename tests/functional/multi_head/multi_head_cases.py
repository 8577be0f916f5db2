"""A small layer of grouped heads, for the tests of multi-head attention."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.functional import (
    KVCache,
    MultiHeadParams,
    apply_rotary,
    multi_head_attention,
)

# Query heads N read key heads K in groups of 3; the key width H is even for rotary positions.
B, T, S, N, K, H, V, D, D_OTHER = 2, 7, 5, 6, 2, 4, 3, 11, 13
HEADS = {"num_heads": N, "num_kv_heads": K}


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def float32(tree):
    return jax.tree.map(lambda array: jnp.asarray(np.float32(array)), tree)


def random_params(seed, *, biases=True, kv_width=D):
    shapes = [(D, N * H), (kv_width, K * H), (kv_width, K * V), (N * V, D)]
    kernels = [0.5 * normal(seed + i, *shape) for i, shape in enumerate(shapes)]
    offsets = [normal(seed + 9 + i, shape[1]) for i, shape in enumerate(shapes)]
    return MultiHeadParams(*kernels, *(offsets if biases else []))


def rotation(tables, layout="half"):
    """A rotation by tables, which may be traced."""
    return jax.tree_util.Partial(_ROTATIONS[layout], tables)


def _rotate(tables, query, key, *, layout):
    return tuple(apply_rotary(x, tables, layout=layout) for x in (query, key))


_ROTATIONS = {name: functools.partial(_rotate, layout=name) for name in ("half", "interleaved")}
SEGMENTS = np.array([[1, 1, 1, 2, 2, 2, 2], [1, 2, 2, 2, 3, 3, 3]])
CAPACITY = 11


def empty_cache(dtype=jnp.float32):
    return KVCache.init(B, CAPACITY, num_kv_heads=K, head_dim=H, value_head_dim=V, dtype=dtype)


attend = jax.jit(
    multi_head_attention,
    static_argnames=(
        "num_heads",
        "num_kv_heads",
        "is_causal",
        "norm_eps",
        "scale",
        "softcap",
        "local_window_size",
        "dropout_rate",
        "implementation",
        "return_weights",
    ),  # fmt: skip
)
