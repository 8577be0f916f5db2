import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import functional as F
from tests.functional.multi_head.multi_head_cases import (
    HEADS,
    B,
    D,
    H,
    K,
    N,
    T,
    V,
    attend,
    float32,
    normal,
    random_params,
)

WINDOW = 3


def empty(window=WINDOW):
    return F.WindowCache.init(B, window, num_kv_heads=K, head_dim=H, value_head_dim=V)


def numbered(start, count):
    """Keys and values whose every entry is the number of their token, counted from `start` [B]."""
    number = (np.asarray(start)[:, None] + np.arange(count))[:, :, None, None].astype(np.float32)
    return np.broadcast_to(number, (B, count, K, H)), np.broadcast_to(number, (B, count, K, V))


@pytest.mark.parametrize("sizes", [[(7, 7)], [(1, 1)] * 5, [(4, 2), (1, 1), (0, 3), (5, 0)]])
def test_window_keeps_the_last_tokens_of_every_row(sizes):
    extend = jax.jit(lambda cache, key, value, num: cache.extend(key, value, num))
    cache, count = empty(), np.zeros(B, int)
    for size in sizes:
        (key, value, *_), cache = extend(cache, *numbered(count, max(size)), np.array(size))
        # What the new queries attend to: the tokens before, then the new ones.
        for row in range(B):
            held = np.arange(count[row] - WINDOW, count[row])
            np.testing.assert_array_equal(key[row, :WINDOW, 0, 0], np.where(held < 0, 0, held))
            new = count[row] + np.arange(max(size))
            np.testing.assert_array_equal(value[row, WINDOW:, 0, 0], new)
        count += size
    assert cache.lengths.tolist() == count.tolist() and cache.window == WINDOW
    for row in range(B):
        last = np.arange(max(0, count[row] - WINDOW), count[row])
        slots = last % (WINDOW + 1)
        np.testing.assert_array_equal(cache.key[row, 0, slots, 0], last)


def test_slots_without_a_token_are_masked():
    _, cache = empty().extend(*numbered([0, 0], 2), np.array([2, 0]))
    keys, _ = cache.extend(*numbered([2, 0], 1))
    assert keys.mask[:, 0, 0].astype(int).tolist() == [[0, 1, 1, 1], [0, 0, 0, 1]]


def test_keys_in_order_of_position_are_put_into_the_order_of_the_slots():
    cache = empty()._replace(lengths=jnp.array([5, 1]))
    array = 10.0 * jnp.arange(7)[None, None, None]
    assert cache.by_slot(array, 2)[:, 0, 0].tolist() == [
        [20, 30, 40, 50, 60], [0, 0, 0, 10, 20],
    ]  # fmt: skip
    assert cache.by_slot(array[..., :1], 2).shape == (1, 1, 1, 1)
    # Tokens beyond the keys are never taken for others.
    short = cache.by_slot(array[..., :6], 2)
    assert np.isnan(short[0, 0, 0, -1]) and np.isfinite(short[1]).all()
    assert not cache.by_slot(jnp.ones((1, 1, 1, 6), bool), 2)[0, 0, 0, -1]


@functools.partial(jax.jit, static_argnames="window")
def step(params, x, cache, num_tokens, window=WINDOW):
    return F.multi_head_attention(
        params, x, is_causal=True, local_window_size=(window, 0), cache=cache,
        num_tokens=num_tokens, **HEADS,
    )  # fmt: skip


@pytest.mark.essential
def test_decoding_with_a_window_cache_equals_the_full_windowed_pass():
    params, x = float32(random_params(0)), float32(normal(1, B, T, D))
    full = attend(params, x, is_causal=True, local_window_size=(WINDOW, 0), **HEADS).output
    lengths, rows = np.array([5, 2]), np.arange(B)
    real = np.arange(5) < lengths[:, None]
    prompt = jnp.where(real[..., None], x[:, :5], jnp.nan)  # padding must not be read
    output, cache, _ = step(params, prompt, empty(), lengths)
    np.testing.assert_allclose(output[real], full[:, :5][real], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(output[~real], np.tile(params.output_bias, (3, 1)))
    for t in range(2):
        output, cache, _ = step(params, x[rows, lengths + t][:, None], cache, None)
        np.testing.assert_allclose(output[:, 0], full[rows, lengths + t], rtol=0, atol=1e-5)
    assert cache.key.shape == (B, K, WINDOW + 1, H) and cache.lengths.tolist() == [7, 4]


def test_number_of_tokens_may_be_of_a_narrow_type():
    window = 263  # slots that a uint8 cannot number
    counts = np.array([5, 4], np.uint8)[:B]
    long, wide = (
        empty(window).extend(*numbered(np.zeros(B, int), 5), counts.astype(dtype))[1]
        for dtype in (np.uint8, np.int32)
    )
    np.testing.assert_array_equal(long.key, wide.key)


@pytest.mark.parametrize("num_tokens", [[2, 1], np.array([2, 1], np.uint8), jnp.array([2, 1])])
def test_caches_take_numbers_of_tokens_in_any_form(num_tokens):
    full = F.KVCache.init(B, 5, num_kv_heads=K, head_dim=H, value_head_dim=V)
    for cache in (full, empty()):  # those of a cache that is known to be empty are the new ones
        keys, longer = cache.extend(*numbered([0, 0], 2), num_tokens)
        assert longer.lengths.tolist() == keys.lengths.tolist() == [2, 1]
        assert keys.query_offset == 0 and keys.mask is None
        np.testing.assert_array_equal(keys.key[0, :, 0, 0], [0, 1])


RING_BIASES = {
    "none": lambda: (None, None),
    "array and mask": lambda: (normal(5, B, N, 1, WINDOW + 1), np.arange(WINDOW + 1)[None] != 1),
    "alibi": lambda: (F.AlibiBias(F.alibi_slopes(N)), None),
    "relative": lambda: (F.RelativeBias(normal(6, 8, N), max_distance=9), None),
}


def test_no_tokens_leave_a_window_cache_empty():
    none = jnp.zeros((B, 0, K, H)), jnp.zeros((B, 0, K, V))
    for cache in (empty(), empty().extend(*numbered([0, 0], 2))[1]):
        keys, same = cache.extend(*none)
        chex.assert_trees_all_equal(same, cache)
        chex.assert_shape(keys.key, (B, 0 if cache.is_empty else WINDOW, K, H))


@pytest.mark.parametrize("name", [*RING_BIASES, "segments"])
def test_a_ring_is_read_in_place_as_if_its_keys_were_in_order(name):
    params, x = float32(random_params(0)), float32(normal(1, B, T, D))
    bias, mask = jax.tree.map(jnp.asarray, RING_BIASES.get(name, RING_BIASES["none"])())
    segments = {}
    if name == "segments":  # of the keys in order of position
        ids = np.broadcast_to(np.arange(WINDOW + 1) > 0, (B, WINDOW + 1)).astype(int)
        segments = {"query_segment_ids": ids[:, -1:], "key_value_segment_ids": ids}
    _, cache, _ = step(params, x[:, :5], empty(), np.array([5, 2]))

    caches = cache, cache

    @functools.partial(jax.jit, static_argnames="return_weights")
    def decode(token, cache, num_tokens, return_weights):
        return F.multi_head_attention(
            params, token, bias=bias, mask=mask, is_causal=True, local_window_size=(WINDOW, 0),
            cache=cache, num_tokens=num_tokens, return_weights=return_weights, **segments, **HEADS,
        )  # fmt: skip

    for t in range(2 * WINDOW):
        token, num_tokens = x[:, t % T][:, None], np.array([1, t % 2])
        in_place = decode(token, caches[0], num_tokens, return_weights=False)
        in_order = decode(token, caches[1], num_tokens, return_weights=True)
        np.testing.assert_allclose(in_place.output, in_order.output, rtol=0, atol=1e-5)
        chex.assert_shape(in_order.weights, (B, N, 1, WINDOW + 1))
        if name == "none" and t == 1:  # of three tokens, in slots 0 to 2: the empty slot is first
            assert (in_order.weights[1, :, 0] > 0).tolist() == [[False, True, True, True]] * N
        caches = in_place.cache, in_order.cache
