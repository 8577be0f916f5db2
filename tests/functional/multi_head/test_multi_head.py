"""The multi-head attention layer against one float64 reference."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from einops import rearrange

from jaxformer import functional as F
from tests.functional import oracle
from tests.functional.multi_head.multi_head_cases import (
    D_OTHER,
    HEADS,
    SEGMENTS,
    B,
    D,
    H,
    K,
    N,
    S,
    T,
    attend,
    float32,
    normal,
    random_params,
    rotation,
)


def reference(params, x, kv, allowed, eps=1e-6, layout=None):
    """Weights and output in float64; allowed is `[B, T, S]`, a layout that of rotated heads."""
    biases = [0.0] * 4 if params.query_bias is None else params[4:8]
    inputs, counts = (x, kv, kv), (N, K, K)
    scales = params.query_norm_scale, params.key_norm_scale, None
    heads = []
    for rows, kernel, bias, count, scale in zip(
        inputs, params[:3], biases[:3], counts, scales, strict=True
    ):
        flat = rows @ kernel + bias
        array = rearrange(flat, "b t (n h) -> b t n h", n=count)
        if scale is not None:
            over_all = scale.shape == flat.shape[-1:]
            axes = (-2, -1) if over_all else (-1,)
            array = array / np.sqrt(np.square(array).mean(axes, keepdims=True) + eps)
            array = array * (scale.reshape(count, -1) if over_all else scale)
        heads.append(array)
    query, key, value = heads
    if layout is not None:
        query, key = rotated(query, layout), rotated(key, layout)
    scores = oracle.attention_weights(query, key, stage="scores")
    exponentials = np.where(allowed[:, None], np.exp(scores), 0)  # [B, N, T, S]
    total = exponentials.sum(-1, keepdims=True)
    if params.sinks is not None:
        total = total + np.exp(params.sinks)[:, None, None]
    weights = exponentials / np.where(total == 0, 1, total)
    attended = np.einsum("bnts,bsnv->btnv", weights, np.repeat(value, N // K, axis=2))
    return weights, rearrange(attended, "b t n v -> b t (n v)") @ params.output_kernel + biases[3]


def rotated(heads, layout):
    """Heads `[B, T, N, H]` of which each pair is a complex number, turned by its position."""
    turn = np.exp(1j * np.arange(T)[:, None] * 10_000.0 ** -np.array([0, 0.5]))[:, None]
    pattern = {"half": "b t n (two i)", "interleaved": "b t n (i two)"}[layout]
    pairs = rearrange(heads, f"{pattern} -> two b t n i", two=2)
    product = (pairs[0] + 1j * pairs[1]) * turn
    return np.concatenate([product.real, product.imag], axis=-1)  # an order that both share


CAUSAL = np.tril(np.ones((T, T), bool))[None].repeat(B, 0)
# Parameters beside the kernels, and arguments of the reference and of the layer.
LAYERS = {
    "plain": ({}, {}, {}),
    "norm of each head": (
        {"query_norm_scale": normal(23, H) + 2, "key_norm_scale": normal(24, H) + 2},
        {"eps": 0.1}, {"norm_eps": 0.1},
    ),
    "norm of all heads": (
        {"query_norm_scale": normal(28, N * H) + 2, "key_norm_scale": normal(29, K * H) + 2},
        {"eps": 0.1}, {"norm_eps": 0.1},
    ),
    "rotary, half": ({}, {"layout": "half"}, {"rotary": rotation(F.rotary_tables(T, H))}),
    "rotary, interleaved": (
        {}, {"layout": "interleaved"},
        {"rotary": rotation(F.rotary_tables(T, H), "interleaved")},
    ),
    "norm, then rotary": (
        {"query_norm_scale": normal(23, H) + 2, "key_norm_scale": normal(24, H) + 2},
        {"layout": "half"}, {"rotary": rotation(F.rotary_tables(T, H))},
    ),
}  # fmt: skip


@pytest.mark.essential
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_multi_head_equals_the_reference(name, biases):
    more, arguments, options = LAYERS[name]
    params, x = random_params(0, biases=biases)._replace(**more), normal(1, B, T, D)
    result = attend(float32(params), float32(x), is_causal=True, **options, **HEADS)
    assert result.cache is None and result.weights is None
    _, expected = reference(params, x, x, CAUSAL, **arguments)
    chex.assert_trees_all_close(result.output, expected, rtol=0, atol=2e-5)


def test_multi_head_cross_attends_to_inputs_of_another_width_and_length():
    params, x, kv = random_params(2, kv_width=D_OTHER), normal(3, B, T, D), normal(4, B, S, D_OTHER)
    lengths = np.array([5, 2])
    options = {"key_value_seq_lengths": jnp.asarray(lengths), **HEADS}
    output = attend(float32(params), float32(x), float32(kv), **options).output
    allowed = np.broadcast_to(np.arange(S) < lengths[:, None, None], (B, T, S))
    _, expected = reference(params, x, kv, allowed)
    chex.assert_trees_all_close(output, expected, rtol=0, atol=2e-5)


def test_multi_head_has_as_many_key_heads_as_query_heads_by_default():
    params, x = F.MultiHeadParams(*(float32(normal(i, 6, 6)) for i in range(4))), normal(5, T, 6)
    default = attend(params, float32(x), num_heads=3).output
    explicit = attend(params, float32(x), num_heads=3, num_kv_heads=3).output
    chex.assert_trees_all_equal(default, explicit)


@pytest.mark.parametrize("leading", [(), (2, 1)])
def test_multi_head_takes_any_leading_axes(leading):
    params, x = random_params(6), normal(7, *leading, T, D)
    output = attend(float32(params), float32(x), is_causal=True, **HEADS).output
    flat = x.reshape(-1, T, D)
    _, expected = reference(params, flat, flat, CAUSAL[:1].repeat(len(flat), 0))
    chex.assert_trees_all_close(output, expected.reshape(x.shape), rtol=0, atol=2e-5)


def test_multi_head_keeps_the_dtype_of_its_inputs():
    params, x = random_params(8), normal(9, B, T, D)
    output = attend(float32(params), jnp.asarray(x, jnp.bfloat16), is_causal=True, **HEADS).output
    chex.assert_type(output, jnp.bfloat16)
    _, expected = reference(params, x, x, CAUSAL)
    error = np.abs(np.asarray(output, np.float64) - expected).max() / np.abs(expected).max()
    assert error < 0.03


@pytest.mark.essential
@pytest.mark.parametrize(
    "options",
    [
        {
            "bias": float32(normal(10, B, 1, T, T)),
            "mask": normal(11, B, N, T, T) > -1,
            "is_causal": True,
            "query_segment_ids": SEGMENTS,
            "key_value_segment_ids": SEGMENTS,
            "key_value_seq_lengths": np.array([7, 5]),
            "query_seq_lengths": np.array([6, 7]),
        },
        {
            "scale": 0.9,
            "softcap": 1.5,
            "is_causal": True,
            "local_window_size": (2, None),
            "query_offset": np.array([-1, 1]),
        },
        {"dropout_rate": 0.5, "dropout_rng": jax.random.key(0, impl="unsafe_rbg")},
    ],
    ids=["structure", "scores", "dropout"],
)
def test_multi_head_hands_every_option_to_attention(options):
    params, x = float32(random_params(12)), float32(normal(13, B, T, D))
    never_traced = ("scale", "softcap", "is_causal", "local_window_size", "dropout_rate")
    static = {name: options[name] for name in options if name in never_traced}
    traced = {name: options[name] for name in options if name not in static}

    @jax.jit
    def by_hand(traced):
        query, key, value = (
            rearrange(F.linear(x, kernel, offset), "b t (n h) -> b t n h", n=heads)
            for kernel, offset, heads in zip(params[:3], params[4:7], (N, K, K), strict=True)
        )
        attended = F.dot_product_attention(query, key, value, **static, **traced)
        merged = rearrange(attended, "b t n h -> b t (n h)")
        return F.linear(merged, params.output_kernel, params.output_bias)

    result = attend(params, x, **options, **HEADS).output
    chex.assert_trees_all_close(result, by_hand(traced), rtol=0, atol=1e-5)
    assert not np.allclose(result, attend(params, x, **HEADS).output, atol=1e-3)


@pytest.mark.parametrize("implementation", ["dense", "chunked"])
def test_sinks_are_scores_without_a_value_and_have_gradients(implementation):
    params, x = random_params(30, biases=False), normal(31, B, T, D)
    sinks, chosen = normal(32, N), normal(33, B, T, D)
    lengths = np.array([T, 0])  # a row that attends to nothing has no share at all
    allowed = CAUSAL & (np.arange(T) < lengths[:, None])[:, None]

    @jax.jit
    def run(sinks, x):
        result = F.multi_head_attention(
            float32(params)._replace(sinks=sinks), x, is_causal=True, return_weights=True,
            key_value_seq_lengths=lengths, implementation=implementation, **HEADS,
        )  # fmt: skip
        return (result.output * chosen).sum(), result

    (_, result), gradients = jax.value_and_grad(run, (0, 1), has_aux=True)(
        float32(sinks), float32(x)
    )
    weights, expected = reference(params._replace(sinks=sinks), x, x, allowed)
    chex.assert_trees_all_close(result.weights, weights, rtol=0, atol=1e-6)
    chex.assert_trees_all_close(result.output, expected, rtol=0, atol=2e-5)
    assert not result.output[1].any() and not gradients[1][1].any()
    for index in range(N):
        outputs = [
            reference(params._replace(sinks=sinks + step * np.eye(N)[index]), x, x, allowed)[1]
            for step in (1e-5, -1e-5)
        ]
        slope = (outputs[0] - outputs[1]) / 2e-5
        np.testing.assert_allclose(gradients[0][index], (slope * chosen).sum(), rtol=2e-3)
