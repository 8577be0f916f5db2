"""Dtypes of all public functions, under strict promotion."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import functional as F

LABELS, SEGMENTS = np.array([[1, 0, 2], [3, -1, 0]]), np.array([[0, 0, 1], [0, 1, 1]])
LENGTHS = np.array([3, 2], np.int32)


def attended(x, **options):
    x = x.reshape(2, 3, 2, 4)
    return F.dot_product_attention(x, x, x, is_causal=True, softcap=3.0, scale=0.5, **options)


def cached(x, w):
    cache = F.KVCache.init(2, 5, num_kv_heads=2, head_dim=4, dtype=x.dtype)
    params = F.MultiHeadParams(w, w, w, w)
    options = {"num_heads": 2, "is_causal": True, "num_tokens": jnp.asarray(LENGTHS)}
    return F.multi_head_attention(params, x, cache=cache, **options).output


def windowed(x, w):
    cache = F.WindowCache.init(2, 2, num_kv_heads=2, head_dim=4, dtype=x.dtype)
    params = F.MultiHeadParams(w, w, w, w, w[0], w[0], w[0], w[0], w[0, :4], w[0, :4])
    options = {"num_heads": 2, "is_causal": True, "local_window_size": (2, 0)}
    return F.multi_head_attention(params, x, cache=cache, **options).output


def crossed(x, w):
    params = F.MultiHeadParams(w, w, w, w)
    memory = F.project_memory(params, x, jnp.asarray(LENGTHS), num_heads=2)
    return F.multi_head_attention(params, x, num_heads=2, cross_cache=memory, return_weights=True)[
        ::2
    ]


# Functions of hidden states `[2, 3, 8]` and a kernel `[8, 8]`, by the public name that they try.
FUNCTIONS = {
    "dot_product_attention": lambda x, w: [
        attended(x, implementation=name, query_seq_lengths=LENGTHS, local_window_size=(1, 0))
        for name in ("dense", "chunked")
    ],
    "attention_weights": lambda x, w: F.attention_weights(
        x[:, :, None], x[:, :, None], bias=w[:3, :3], mask=np.tri(3, dtype=bool)
    ),
    "attention_mask": lambda x, w: F.attention_mask(
        x[:, :, None], x[:, :, None], query_segment_ids=SEGMENTS, key_value_segment_ids=SEGMENTS
    ),
    "dropout": lambda x, w: [
        attended(x, implementation=name, dropout_rate=0.5, dropout_rng=jax.random.key(0))
        for name in ("dense", "chunked")
    ],
    "multi_head_attention": cached,
    "WindowCache": windowed,
    "project_memory": crossed,
    "feed_forward": lambda x, w: [
        F.feed_forward(F.FeedForwardParams(w, w, w[0], w[0]), x, activation=name)
        for name in ("relu", "relu2", "gelu", "gelu_tanh", "silu")
    ],
    "gated_feed_forward": lambda x, w: F.gated_feed_forward(
        F.GatedFeedForwardParams(w, w, w, w[0], w[0], w[0]), x
    ),
    "mixture_of_experts": lambda x, w: [
        F.mixture_of_experts(
            F.ExpertsParams(w, *[jnp.stack([w] * 8)] * 3, w[0], w, w, w), x,
            num_experts_per_token=k, routing=F.Routing(normalize_weights=k == 1),
            mask=np.tri(2, 3, dtype=bool),
        ).output
        for k in (1, 2)
    ],
    "linear": lambda x, w: F.linear(x, w, w[0]),
    "layer_norm": lambda x, w: F.layer_norm(x, w[0], w[1]),
    "rms_norm": lambda x, w: F.rms_norm(x, w[0], eps=np.float32(1e-6)),
    "embed": lambda x, w: F.embed(x[0], jnp.abs(LABELS) % 3),
    "unembed": lambda x, w: F.unembed(w, x, w[0], softcap=5.0),
    "cross_entropy": lambda x, w: F.cross_entropy(x, LABELS, label_smoothing=0.1, z_loss=0.1),
    "chunked_cross_entropy": lambda x, w: [
        F.chunked_cross_entropy(
            x, w, LABELS, w[0], label_smoothing=0.1, z_loss=0.1, softcap=5.0, chunk_size=4,
            reduction=reduction,
        )
        for reduction in ("sum", "none")
    ],
    "pool": lambda x, w: [
        F.pool(x, jnp.asarray(LENGTHS), pooling=name) for name in ("mean", "first", "last")
    ],
    "apply_rotary": lambda x, w: [
        F.apply_rotary(
            x[:, :, None], F.rotary_tables(3, 8, scaling=F.YarnScaling(4.0, 16)), layout=layout
        )
        for layout in ("half", "interleaved")
    ],
    "sinusoidal_positions": lambda x, w: [
        F.sinusoidal_positions(positions, 7, layout=layout)
        for positions in (3, jnp.arange(3, dtype=jnp.int16))
        for layout in ("half", "interleaved")
    ],
    "AlibiBias": lambda x, w: [
        F.AlibiBias(F.alibi_slopes(3)).array(2, 5, offset) for offset in (0, LENGTHS)
    ],
    "RelativeBias": lambda x, w: [
        F.RelativeBias(w, bidirectional, max_distance=9).array(3, 5, offset)
        for offset in (0, LENGTHS)
        for bidirectional in (True, False)
    ],
    "masks": lambda x, w: (
        F.Causal() & F.Window(1, 2, LENGTHS) & F.Lengths(keys=LENGTHS.astype(np.int8))
        & F.Segments(SEGMENTS, SEGMENTS.astype(np.int16)) & F.Prefix(LENGTHS)
    ),
}  # fmt: skip


# Functions whose floats are float32, or that return none.
WIDE = {
    "attention_weights", "unembed", "cross_entropy", "chunked_cross_entropy", "pool",
    "sinusoidal_positions", "AlibiBias", "RelativeBias", "attention_mask", "masks",
}  # fmt: skip


def floats(function, x, w):
    return [y for y in jax.tree.leaves(function(x, w)) if jnp.issubdtype(y.dtype, jnp.floating)]


def summed(function, x, w):
    return sum((jnp.sum(y.astype(jnp.float32)) for y in floats(function, x, w)), jnp.float32(0))


@pytest.mark.parametrize(
    ("dtype", "param_dtype"), [(jnp.float32, jnp.bfloat16), (jnp.bfloat16, jnp.float32)]
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_follow_the_dtype_of_x_and_nothing_is_promoted_silently(
    name, dtype, param_dtype
):
    """Under strict promotion, functions raise where they promote; a gradient has its own dtype."""
    function = FUNCTIONS[name]
    x, w = jax.ShapeDtypeStruct((2, 3, 8), dtype), jax.ShapeDtypeStruct((8, 8), param_dtype)
    with jax.numpy_dtype_promotion("strict"):
        gradients = jax.eval_shape(jax.grad(functools.partial(summed, function), (0, 1)), x, w)
        dtypes = {y.dtype for y in jax.eval_shape(functools.partial(floats, function), x, w)}
    assert [gradient.dtype for gradient in gradients] == [dtype, param_dtype]
    weights = {jnp.dtype(jnp.float32)} if name == "project_memory" else set()  # which it returns
    assert dtypes - weights <= {jnp.dtype(jnp.float32 if name in WIDE else dtype)}
    assert dtypes or name in ("attention_mask", "masks")
