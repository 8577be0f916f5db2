"""Multi-head attention that decodes with a cache."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.functional import WindowCache, multi_head_attention, rotary_tables
from tests.functional.multi_head.multi_head_cases import (
    CAPACITY,
    HEADS,
    B,
    D,
    H,
    K,
    N,
    T,
    V,
    attend,
    empty_cache,
    float32,
    normal,
    random_params,
    rotation,
)


def make_step(params, with_rotary):
    @jax.jit
    def step(x, cache, num_tokens):
        positions = cache.lengths[:, None] + jnp.arange(x.shape[1])[None]
        rotary = rotation(rotary_tables(positions, H)) if with_rotary else None
        return multi_head_attention(
            params, x, is_causal=True, cache=cache, num_tokens=num_tokens, rotary=rotary, **HEADS
        )

    return step


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "rotary"])
def layer(request):
    """Inputs, their full causal outputs, and a jitted step with a cache."""
    params, x = float32(random_params(16)), float32(normal(17, B, T, D))
    rotary = rotation(rotary_tables(T, H)) if request.param else None
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
    for leaf, other in zip(jax.tree.leaves(tight), jax.tree.leaves(roomy), strict=True):
        np.testing.assert_array_equal(leaf[1], other[1])


@pytest.mark.parametrize("window", [None, 3])
def test_prefill_of_a_cache_known_to_be_empty_is_that_of_any(window):
    """It attends to the new keys alone; bias, mask and weights have all slots as ever."""
    params, x = float32(random_params(18)), float32(normal(19, B, T, D))
    slots = CAPACITY if window is None else window + T
    bias = float32(normal(20, B, N, T, slots))
    mask = np.random.default_rng(21).random((B, 1, T, slots)) < 0.8
    side = {} if window is None else {"local_window_size": (window, 0)}

    def empty():
        if window is None:
            return empty_cache()
        return WindowCache.init(B, window, num_kv_heads=K, head_dim=H, value_head_dim=V)

    def prefill(cache, **options):
        return multi_head_attention(
            params, x, bias=bias, mask=mask, is_causal=True, cache=cache,
            num_tokens=np.array([T, 2]), **side, **HEADS, **options,
        )  # fmt: skip

    @jax.jit
    def next_token(cache):
        return multi_head_attention(params, x[:, :1], is_causal=True, cache=cache, **side, **HEADS)

    known = jax.jit(lambda: prefill(empty(), return_weights=True))()
    unknown = jax.jit(lambda cache: prefill(cache, return_weights=True))(empty())
    only_output = jax.jit(lambda: prefill(empty()))()
    pairs = [(only_output.output, unknown.output), (known.weights, unknown.weights)]
    # Unwritten slots may differ, and nothing is read from them.
    pairs.append((next_token(known.cache).output, next_token(unknown.cache).output))
    for result, expected in pairs:
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)
