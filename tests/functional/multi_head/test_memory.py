import jax
import jax.numpy as jnp
import numpy as np
import pytest
from einops import rearrange

from jaxformer import functional as F
from tests.functional import oracle
from tests.functional.multi_head.multi_head_cases import (
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


@pytest.mark.essential
@pytest.mark.parametrize("qk_norm", [False, True])
def test_memory_stands_for_the_inputs_that_it_was_made_from(qk_norm):
    """Padding of those inputs, NaN here, is in the memory, but never read."""
    params = random_params(26, kv_width=D_OTHER)
    if qk_norm:
        scales = {"query_norm_scale": normal(27, H) + 2, "key_norm_scale": normal(28, H) + 2}
        params = params._replace(**scales)
    params, x, kv = float32(params), float32(normal(29, B, T, D)), normal(30, B, S, D_OTHER)
    lengths = np.array([5, 2])
    kv[1, 2:] = np.nan
    memory = F.project_memory(params, float32(kv), lengths, norm_eps=0.1, **HEADS)
    assert memory.key.shape == (B, K, S, H) and memory.value.shape == (B, K, S, V)
    np.testing.assert_array_equal(memory.lengths, lengths)
    output = attend(params, x, cross_cache=memory, norm_eps=0.1, **HEADS).output
    arguments = {"key_value_seq_lengths": lengths, "norm_eps": 0.1}
    expected = attend(params, x, float32(kv), **arguments, **HEADS).output
    assert np.isfinite(output).all()
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-5)
    # The projections of memory are not made again.
    spoilt = {
        "key_kernel": jnp.nan * params.key_kernel,
        "value_kernel": jnp.nan * params.value_kernel,
    }
    again = attend(params._replace(**spoilt), x, cross_cache=memory, norm_eps=0.1, **HEADS).output
    np.testing.assert_array_equal(again, output)


def test_memory_without_lengths_is_all_real_and_has_as_many_heads_as_queries():
    params, kv = (
        F.MultiHeadParams(*(float32(normal(i, 6, 6)) for i in range(4))),
        normal(31, B, S, 6),
    )
    memory = F.project_memory(params, float32(kv), num_heads=3)
    assert memory.key.shape == (B, 3, S, 2)
    np.testing.assert_array_equal(memory.lengths, [S] * B)
    assert memory.lengths.dtype == jnp.int32


@pytest.mark.parametrize("name", ["cache", "cross_cache"])
def test_attention_with_a_narrower_cache_keeps_the_dtype_of_the_inputs(name):
    params, x = float32(random_params(32)), float32(normal(33, B, T, D))
    if name == "cache":
        cache = empty_cache(dtype=jnp.bfloat16)
        result = attend(params, x, is_causal=True, cache=cache, **HEADS)
        output, cache = result.output, result.cache
        full = np.asarray(attend(params, x, is_causal=True, **HEADS).output)
    else:
        kv = float32(normal(34, B, S, D))
        cache = F.project_memory(params, kv.astype(jnp.bfloat16), **HEADS)
        output = attend(params, x, cross_cache=cache, **HEADS).output
        full = np.asarray(attend(params, x, kv, **HEADS).output)
    assert output.dtype == jnp.float32 and cache.key.dtype == cache.value.dtype == jnp.bfloat16
    assert 0 < np.abs(output - full).max() < 0.05 * np.abs(full).max()


@pytest.mark.parametrize("source", ["self", "cross", "cross_cache", "cache"])
def test_weights_are_those_that_the_values_are_averaged_by(source):
    params, x, kv = random_params(35), normal(36, B, T, D), normal(37, B, S, D)
    if source == "self":
        key_inputs, arguments = x, {
            "is_causal": True, "scale": 0.9, "softcap": 2.0, "local_window_size": (3, 0),
            "query_seq_lengths": np.array([6, 7]), "key_value_seq_lengths": np.array([6, 7]),
            "bias": float32(normal(38, B, N, T, T)), "mask": normal(39, T, T) > -1,
            "query_segment_ids": SEGMENTS, "key_value_segment_ids": SEGMENTS,
        }  # fmt: skip
        structure = arguments
    elif source == "cache":
        key_inputs = np.concatenate([x, np.zeros((B, CAPACITY - T, D))], axis=1)
        arguments = {"is_causal": True, "cache": empty_cache(), "num_tokens": np.array([7, 4])}
        lengths = np.array([7, 4])
        structure = {"is_causal": True, "query_offset": 0, "query_seq_lengths": lengths,
                     "key_value_seq_lengths": lengths}  # fmt: skip
    else:
        key_inputs, lengths = kv, np.array([5, 2])
        structure = {"key_value_seq_lengths": lengths}
        arguments = {"key_value_inputs": float32(kv), "key_value_seq_lengths": lengths}
        if source == "cross_cache":
            memory = F.project_memory(float32(params), float32(kv), lengths, **HEADS)
            arguments = {"cross_cache": memory}
    result = attend(float32(params), float32(x), **arguments, return_weights=True, **HEADS)
    query = rearrange(x @ params.query_kernel + params.query_bias, "b t (n h) -> b t n h", n=N)
    key = rearrange(key_inputs @ params.key_kernel + params.key_bias, "b s (n h) -> b s n h", n=K)
    expected = oracle.attention_weights(query, key, **structure)
    assert result.weights.dtype == jnp.float32
    np.testing.assert_allclose(result.weights, expected, rtol=0, atol=1e-5)
    plain = attend(float32(params), float32(x), **arguments, **HEADS)
    assert plain.weights is None
    np.testing.assert_allclose(result.output, plain.output, rtol=0, atol=1e-6)


def test_weights_are_those_before_dropout():
    params, x = float32(random_params(40)), float32(normal(41, B, T, D))
    dropout = {"dropout_rate": 0.5, "dropout_rng": jax.random.key(0, impl="unsafe_rbg")}
    dropped = attend(params, x, return_weights=True, **dropout, **HEADS).weights
    plain = attend(params, x, return_weights=True, **HEADS).weights
    np.testing.assert_allclose(dropped, plain, rtol=0, atol=1e-6)
    np.testing.assert_allclose(np.sum(plain, -1), np.ones((B, N, T)), rtol=0, atol=1e-6)
