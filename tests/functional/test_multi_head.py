import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from einops import rearrange

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional import (
    MultiHeadParams,
    dot_product_attention,
    linear,
    multi_head_attention,
    rotary_tables,
)
from tests.functional import oracle
from tests.functional.multi_head_cases import (
    CAPACITY,
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
    empty_cache,
    float32,
    normal,
    random_params,
)


def reference(params, x, kv, allowed):
    """The layer by loops over rows, heads and queries, in float64; allowed is `[B, T, S]`."""
    zeros = [0.0] * 4
    kernels, biases = params[:4], zeros if params.query_bias is None else params[4:]
    query, key, value = (
        a @ kernel + bias for a, kernel, bias in zip((x, kv, kv), kernels, biases, strict=False)
    )
    merged = np.zeros((*x.shape[:2], N * V))
    for b, n, t in np.ndindex(x.shape[0], N, x.shape[1]):
        k = n // (N // K)
        keys, values = key[b, :, k * H : (k + 1) * H], value[b, :, k * V : (k + 1) * V]
        scores = keys @ query[b, t, n * H : (n + 1) * H] / np.sqrt(H)
        scores = np.where(allowed[b, t], scores, -np.inf)
        weights = np.exp(scores - scores.max())
        merged[b, t, n * V : (n + 1) * V] = weights / weights.sum() @ values
    return merged @ kernels[3] + biases[3]


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
    own = float32(params._replace(**scales))
    np.testing.assert_allclose(
        attend(own, float32(one_hot), norm_eps=eps, **arguments).output,
        attend(float32(folded), float32(one_hot), **arguments).output,
        rtol=0, atol=1e-5,
    )  # fmt: skip
    # On any inputs, the size of a query or key head no longer matters.
    output = attend(own, float32(x), float32(kv), norm_eps=1e-12, **HEADS).output
    larger = own._replace(query_kernel=own.query_kernel * 8, key_kernel=own.key_kernel / 8)
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
        *(rearrange(each, "b t (n h) -> b t n h", n=n)
          for each, n in ((query, N), (key, K), (value, K))),
        is_causal=True,
    )  # fmt: skip
    expected = rearrange(attended, "b t n h -> b t (n h)") @ params.output_kernel
    own = float32(params._replace(**scales))
    output = attend(own, float32(x), norm_eps=eps, is_causal=True, **HEADS).output
    np.testing.assert_allclose(output, expected, rtol=0, atol=2e-5)


def test_weights_of_a_function_of_ones_own_are_those_of_the_library_for_the_same_attention():
    params, x = random_params(30, biases=False), float32(normal(31, B, T, D))
    own = float32(params)._replace(sinks=float32(normal(32, N)))
    options = {"is_causal": True, "local_window_size": (2, 0), "return_weights": True, **HEADS}

    def wrapped(query, key, value, **options):
        return dot_product_attention(query, key, value, **options)

    expected, result = (
        jax.jit(functools.partial(multi_head_attention, attention_fn=function, **options))(own, x)
        for function in (dot_product_attention, wrapped)
    )
    np.testing.assert_allclose(result.weights, expected.weights, rtol=0, atol=1e-6)
    np.testing.assert_allclose(result.output, expected.output, rtol=0, atol=1e-6)


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


def test_attention_function_gets_no_option_at_its_default_in_another_object():
    def plain(query, key, value):
        return dot_product_attention(query, key, value)

    x, own = float32(normal(34, B, T, D)), float32(random_params(35))
    read = {"implementation": "".join(["au", "to"]), "dropout_rate": np.float64(0.0)}  # from a file
    output = multi_head_attention(own, x, attention_fn=plain, **HEADS, **read).output
    np.testing.assert_array_equal(output, multi_head_attention(own, x, **HEADS).output)


def test_attention_function_beside_sinks_must_return_its_residual():
    x, own = float32(normal(34, B, T, D)), float32(random_params(35))._replace(sinks=jnp.ones(N))

    def without(query, key, value):
        return query

    def wrong(query, key, value, return_residual=False):
        return dot_product_attention(query, key, value)

    def right(query, key, value, return_residual=False):
        return dot_product_attention(query, key, value, return_residual=return_residual)

    with pytest.raises(ConfigError, match="must take the arguments .* return_residual"):
        multi_head_attention(own, x, attention_fn=without, **HEADS)
    with pytest.raises(ShapeError, match=r"must return \(output, residual\), got .* from .*wrong"):
        multi_head_attention(own, x, attention_fn=wrong, **HEADS)
    output = multi_head_attention(own, x, attention_fn=right, **HEADS).output
    np.testing.assert_array_equal(output, multi_head_attention(own, x, **HEADS).output)


def make_step(params, with_rotary):
    @jax.jit
    def step(x, cache, num_tokens):
        positions = cache.lengths[:, None] + jnp.arange(x.shape[1])[None]
        rotary = rotary_tables(positions, H) if with_rotary else None
        return multi_head_attention(
            params, x, is_causal=True, cache=cache, num_tokens=num_tokens, rotary=rotary, **HEADS
        )

    return step


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "rotary"])
def layer(request):
    """Inputs, their full causal outputs, and a jitted step with a cache."""
    params, x = float32(random_params(16)), float32(normal(17, B, T, D))
    rotary = rotary_tables(T, H) if request.param else None
    full = attend(params, x, is_causal=True, rotary=rotary, **HEADS).output
    return x, full, make_step(params, request.param), params


@pytest.mark.essential
def test_decoding_token_by_token_equals_the_full_pass(layer):
    x, full, step, _ = layer
    cache = empty_cache()
    for t in range(T):
        output, cache, _ = step(x[:, t : t + 1], cache, None)
        np.testing.assert_allclose(output, full[:, t : t + 1], rtol=0, atol=1e-5)
    assert cache.lengths.tolist() == [T] * B


def test_decoding_after_an_unequal_prefill_equals_the_full_pass(layer):
    x, full, step, params = layer
    lengths = np.array([4, 2])
    real = np.arange(4) < lengths[:, None]
    prompt = jnp.where(real[..., None], x[:, :4], jnp.nan)  # padding must not be read
    output, cache, _ = step(prompt, empty_cache(), jnp.asarray(lengths))
    np.testing.assert_allclose(output[real], full[:, :4][real], rtol=0, atol=1e-5)
    # Padded queries attend to nothing: what is left is the bias of the output projection.
    np.testing.assert_array_equal(output[~real], np.tile(params.output_bias, (2, 1)))
    rows = np.arange(B)
    for t in range(3):
        output, cache, _ = step(x[rows, lengths + t][:, None], cache, None)
        np.testing.assert_allclose(output[:, 0], full[rows, lengths + t], rtol=0, atol=1e-5)
    assert cache.lengths.tolist() == [7, 5]


def test_decoding_in_chunks_equals_the_full_pass(layer):
    x, full, step, _ = layer
    cache, outputs = empty_cache(), []
    for start in (0, 4):
        chunk = jnp.pad(x[:, start : start + 4], ((0, 0), (0, start // 4), (0, 0)))
        output, cache, _ = step(chunk, cache, jnp.array([4 - start // 4] * B))
        outputs.append(output)
    joined = np.concatenate(outputs, axis=1)[:, :T]
    np.testing.assert_allclose(joined, full, rtol=0, atol=1e-5)


def test_decoding_past_the_capacity_is_nan_in_that_row_only(layer):
    x, _, step, _ = layer
    _, cache, _ = step(x[:, :4], empty_cache(), jnp.array([4, 2]))
    roomy, tight = cache, cache._replace(lengths=jnp.array([CAPACITY, 2]))
    for t in range(2):
        expected, roomy, _ = step(x[:, t : t + 1], roomy, None)
        output, tight, _ = step(x[:, t : t + 1], tight, None)
        assert np.isnan(output[0]).all()
        np.testing.assert_array_equal(output[1], expected[1])
    for leaf, other in zip(tight, roomy, strict=True):
        np.testing.assert_array_equal(leaf[1], other[1])


def test_decoding_with_a_narrower_cache_keeps_the_dtype_of_the_inputs():
    params, x = float32(random_params(16)), float32(normal(17, B, T, D))
    cache = jax.tree.map(
        lambda leaf: leaf.astype(jnp.bfloat16) if leaf.ndim > 1 else leaf, empty_cache()
    )
    output, cache, _ = attend(params, x, is_causal=True, cache=cache, **HEADS)
    assert output.dtype == jnp.float32
    assert cache.key.dtype == jnp.bfloat16
    full = np.asarray(attend(params, x, is_causal=True, **HEADS).output)
    assert 0 < np.abs(output - full).max() < 0.05 * np.abs(full).max()
