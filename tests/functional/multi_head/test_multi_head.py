import jax
import jax.numpy as jnp
import numpy as np
import pytest
from einops import rearrange

from jaxformer.functional import (
    MultiHeadParams,
    dot_product_attention,
    linear,
    multi_head_attention,
    rotary_tables,
)
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
    V,
    attend,
    float32,
    normal,
    random_params,
)


def reference(params, x, kv, allowed):
    """The layer in float64, its heads by the reference of attention; allowed is `[B, T, S]`."""
    biases = [0.0] * 4 if params.query_bias is None else params[4:]
    query, key, value = (
        rearrange(inputs @ kernel + bias, "b t (n h) -> b t n h", n=heads)
        for inputs, kernel, bias, heads in zip(
            (x, kv, kv), params[:3], biases[:3], (N, K, K), strict=True
        )
    )
    attended = oracle.attention(query, key, value, mask=allowed[:, None])
    return rearrange(attended, "b t n v -> b t (n v)") @ params.output_kernel + biases[3]


CAUSAL = np.tril(np.ones((T, T), bool))[None].repeat(B, 0)


@pytest.mark.parametrize("biases", [True, False])
def test_multi_head_equals_a_loop_over_heads(biases):
    params, x = random_params(0, biases=biases), normal(1, B, T, D)
    result = attend(float32(params), float32(x), is_causal=True, **HEADS)
    assert result.cache is None
    np.testing.assert_allclose(result.output, reference(params, x, x, CAUSAL), rtol=0, atol=2e-5)


def test_multi_head_cross_attends_to_inputs_of_another_width_and_length():
    params, x, kv = random_params(2, kv_width=D_OTHER), normal(3, B, T, D), normal(4, B, S, D_OTHER)
    lengths = np.array([5, 2])
    output = attend(
        float32(params),
        float32(x),
        float32(kv),
        key_value_seq_lengths=jnp.asarray(lengths),
        **HEADS,
    ).output
    allowed = np.broadcast_to(np.arange(S) < lengths[:, None, None], (B, T, S))
    np.testing.assert_allclose(output, reference(params, x, kv, allowed), rtol=0, atol=2e-5)


def test_multi_head_has_as_many_key_heads_as_query_heads_by_default():
    params, x = MultiHeadParams(*(float32(normal(i, 6, 6)) for i in range(4))), normal(5, T, 6)
    default = attend(params, float32(x), num_heads=3).output
    explicit = attend(params, float32(x), num_heads=3, num_kv_heads=3).output
    np.testing.assert_array_equal(default, explicit)


@pytest.mark.parametrize("leading", [(), (2, 1)])
def test_multi_head_takes_any_leading_axes(leading):
    params, x = random_params(6), normal(7, *leading, T, D)
    output = attend(float32(params), float32(x), is_causal=True, **HEADS).output
    assert output.shape == (*leading, T, D)
    flat = x.reshape(-1, T, D)
    expected = reference(params, flat, flat, CAUSAL[:1].repeat(len(flat), 0)).reshape(x.shape)
    np.testing.assert_allclose(output, expected, rtol=0, atol=2e-5)


def test_multi_head_keeps_the_dtype_of_its_inputs():
    params, x = random_params(8), normal(9, B, T, D)
    output = attend(float32(params), jnp.asarray(x, jnp.bfloat16), is_causal=True, **HEADS).output
    assert output.dtype == jnp.bfloat16
    expected = reference(params, x, x, CAUSAL)
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
            rearrange(linear(x, kernel, offset), "b t (n h) -> b t n h", n=heads)
            for kernel, offset, heads in zip(params[:3], params[4:7], (N, K, K), strict=True)
        )
        attended = dot_product_attention(query, key, value, **static, **traced)
        merged = rearrange(attended, "b t n h -> b t (n h)")
        return linear(merged, params.output_kernel, params.output_bias)

    result = attend(params, x, **options, **HEADS).output
    np.testing.assert_allclose(result, by_hand(traced), rtol=0, atol=1e-5)
    assert not np.allclose(result, attend(params, x, **HEADS).output, atol=1e-3)


@pytest.mark.essential
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_multi_head_rotates_queries_and_keys_by_their_positions(layout):
    params, x = random_params(14, biases=False), normal(15, B, T, D)
    output = attend(
        float32(params), float32(x), rotary=rotary_tables(T, H), rotary_layout=layout,
        is_causal=True, **HEADS,
    ).output  # fmt: skip
    # Attention to one key at a time: rotate by complex numbers, score, average by hand.
    turn = np.exp(1j * np.arange(T)[:, None] * 10_000.0 ** -np.array([0, 0.5]))[:, None]

    def rotated(kernel, heads):
        flat = (x @ kernel).reshape(B, T, heads, H)
        pairs = flat.reshape(B, T, heads, 2, 2)
        first, second = (
            (flat[..., :2], flat[..., 2:]) if layout == "half" else (pairs[..., 0], pairs[..., 1])
        )
        return (first + 1j * second) * turn

    query = rotated(params.query_kernel, N)
    key = np.repeat(rotated(params.key_kernel, K), N // K, axis=2)
    value = np.repeat((x @ params.value_kernel).reshape(B, T, K, V), N // K, axis=2)
    scores = np.einsum("btni,bsni->bnts", query, key.conj()).real / np.sqrt(H)
    weights = np.exp(np.where(CAUSAL[:, None], scores, -np.inf))
    weights /= weights.sum(-1, keepdims=True)
    merged = np.einsum("bnts,bsnv->btnv", weights, value).reshape(B, T, N * V)
    np.testing.assert_allclose(output, merged @ params.output_kernel, rtol=0, atol=2e-5)


def test_multi_head_normalizes_each_query_and_key_head_before_rotating():
    params, x, kv = random_params(20, biases=False), normal(21, B, T, D), normal(22, B, S, D)
    scales = {"query_norm_scale": normal(23, H) + 2, "key_norm_scale": normal(24, H) + 2}
    eps = 0.1

    def normed(kernel, scale):
        """A kernel cannot norm, but rows of x that are one-hot pick the heads that it makes."""
        heads = rearrange(kernel, "d (n h) -> d n h", h=H)
        heads = heads / np.sqrt(np.square(heads).mean(-1, keepdims=True) + eps) * scale
        return rearrange(heads, "d n h -> d (n h)")

    one_hot = np.eye(D)[np.random.default_rng(25).integers(0, D, (B, T))]
    folded = params._replace(
        query_kernel=normed(params.query_kernel, scales["query_norm_scale"]),
        key_kernel=normed(params.key_kernel, scales["key_norm_scale"]),
    )
    arguments = {"rotary": rotary_tables(T, H), "is_causal": True, **HEADS}
    normed_params = float32(params._replace(**scales))
    np.testing.assert_allclose(
        attend(normed_params, float32(one_hot), norm_eps=eps, **arguments).output,
        attend(float32(folded), float32(one_hot), **arguments).output,
        rtol=0, atol=1e-5,
    )  # fmt: skip
    # On any inputs, the size of a query or key head no longer matters.
    output = attend(normed_params, float32(x), float32(kv), norm_eps=1e-12, **HEADS).output
    larger = normed_params._replace(
        query_kernel=normed_params.query_kernel * 8, key_kernel=normed_params.key_kernel / 8
    )
    again = attend(larger, float32(x), float32(kv), norm_eps=1e-12, **HEADS).output
    np.testing.assert_allclose(again, output, rtol=0, atol=1e-5)


def test_multi_head_normalizes_all_heads_at_once_by_scales_as_wide_as_they_are():
    params, x, eps = random_params(26, biases=False), normal(27, B, T, D), 0.1
    scales = {"query_norm_scale": normal(28, N * H) + 2, "key_norm_scale": normal(29, K * H) + 2}

    def normed(kernel, scale):
        flat = x @ kernel
        return flat / np.sqrt(np.square(flat).mean(-1, keepdims=True) + eps) * scale

    query = normed(params.query_kernel, scales["query_norm_scale"])
    key = normed(params.key_kernel, scales["key_norm_scale"])
    value = x @ params.value_kernel
    attended = oracle.attention(
        *(rearrange(rows, "b t (n h) -> b t n h", n=n)
          for rows, n in ((query, N), (key, K), (value, K))),
        is_causal=True,
    )  # fmt: skip
    expected = rearrange(attended, "b t n h -> b t (n h)") @ params.output_kernel
    normed_params = float32(params._replace(**scales))
    output = attend(normed_params, float32(x), norm_eps=eps, is_causal=True, **HEADS).output
    np.testing.assert_allclose(output, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("implementation", ["dense", "chunked"])
def test_sinks_are_scores_without_a_value_and_have_gradients(implementation):
    params, x = random_params(30, biases=False), normal(31, B, T, D)
    sinks, chosen = normal(32, N), normal(33, B, T, D)
    lengths = np.array([T, 0])  # a row that attends to nothing has no share at all

    def expected_output(sinks, x):
        heads = (
            rearrange(x @ kernel, "b t (n h) -> b t n h", n=n)
            for kernel, n in zip(params[:3], (N, K, K), strict=True)
        )
        query, key, value = heads
        scores = oracle.attention_weights(query, key, stage="scores")
        seen = CAUSAL[:, None] & (np.arange(T) < lengths[:, None])[:, None, None]
        exponentials = np.where(seen, np.exp(scores), 0)
        weights = exponentials / (exponentials.sum(-1) + np.exp(sinks)[:, None])[..., None]
        merged = np.einsum("bnts,bsnv->btnv", weights, np.repeat(value, N // K, axis=2))
        return weights, rearrange(merged, "b t n v -> b t (n v)") @ params.output_kernel

    @jax.jit
    def run(sinks, x):
        result = multi_head_attention(
            float32(params)._replace(sinks=sinks), x, is_causal=True, return_weights=True,
            key_value_seq_lengths=lengths, implementation=implementation, **HEADS,
        )  # fmt: skip
        return (result.output * chosen).sum(), result

    (_, result), gradients = jax.value_and_grad(run, (0, 1), has_aux=True)(
        float32(sinks), float32(x)
    )
    weights, expected = expected_output(sinks, x)
    np.testing.assert_allclose(result.weights, weights, rtol=0, atol=1e-6)
    np.testing.assert_allclose(result.output, expected, rtol=0, atol=2e-5)
    assert not result.output[1].any() and not gradients[1][1].any()
    for index in range(N):
        step = 1e-5 * np.eye(N)[index]
        slope = (expected_output(sinks + step, x)[1] - expected_output(sinks - step, x)[1]) / 2e-5
        np.testing.assert_allclose(gradients[0][index], (slope * chosen).sum(), rtol=2e-3)
