import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import ShapeError
from jaxformer.functional import KVCache
from jaxformer.functional.platforms import compiling_for

B, S, K, H, V = 3, 11, 2, 5, 7
assert_same = functools.partial(chex.assert_trees_all_equal, strict=True)


def append_eagerly(cache, *arguments):
    return cache.extend(*arguments)[1]


append = jax.jit(append_eagerly)  # lengths are traced: an overflow cannot raise


def empty(**options):
    return KVCache.init(B, S, num_kv_heads=K, head_dim=H, value_head_dim=V, **options)


def tokens(seed, length):
    rng = np.random.default_rng(seed)
    return [np.float32(rng.standard_normal((B, length, K, w))) for w in (H, V)]


def rows_of(cache, rows):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], tuple(cache)[:3])


def reference_append(cache, key, value, num_tokens):
    key_buffer, value_buffer, lengths = (np.array(leaf) for leaf in jax.tree.leaves(cache))
    for row, count in enumerate(num_tokens):
        slots = slice(lengths[row], lengths[row] + count)
        for buffer, new in ((key_buffer, key), (value_buffer, value)):
            buffer[row, :, slots] = new[row, :count].swapaxes(0, 1)
        lengths[row] += count
    return KVCache(key_buffer, value_buffer, lengths)


def test_cache_starts_empty_with_the_batch_leading_every_leaf():
    cache = empty(dtype=jnp.bfloat16)
    chex.assert_shape(tuple(cache)[:3], [(B, K, S, H), (B, K, S, V), (B,)])
    chex.assert_type(tuple(cache)[:3], [jnp.bfloat16, jnp.bfloat16, jnp.int32])
    assert cache.lengths.tolist() == [0] * B and cache.capacity == S
    default = KVCache.init(B, S, num_kv_heads=K, head_dim=H)
    chex.assert_shape([default.key, default.value], (B, K, S, H))
    chex.assert_type([default.key, default.value], jnp.float32)


@pytest.mark.essential
def test_append_at_once_equals_one_by_one_in_a_scan():
    key, value = tokens(0, 5)
    at_once = append(empty(), key, value)
    steps = [np.swapaxes(array, 0, 1)[:, :, None] for array in (key, value)]

    def step(cache, token):
        _, cache = cache.extend(*token)
        return cache, cache.lengths

    one_by_one, lengths = jax.jit(lambda c: jax.lax.scan(step, c, tuple(steps)))(empty())
    assert_same(at_once, one_by_one)
    assert_same(lengths, np.tile(np.arange(1, 6, dtype=np.int32)[:, None], (1, B)))
    assert_same(tuple(leaf[:, :5] for leaf in at_once.keys_and_values), (key, value))
    assert_same(tuple(leaf[:, :, :5].swapaxes(1, 2) for leaf in at_once[:2]), (key, value))


@pytest.mark.parametrize("function", [append_eagerly, append], ids=["eager", "jit"])
def test_append_takes_the_first_tokens_of_every_row(function):
    cache, expected = empty(), empty()
    for seed, num_tokens in enumerate([[5, 0, 3], [0, 5, 1], [2, 4, 5]]):
        key, value = tokens(seed, 5)
        cache = function(cache, key, value, jnp.array(num_tokens))
        expected = reference_append(expected, key, value, num_tokens)
        assert_same(cache, expected)
    assert cache.lengths.tolist() == [7, 9, 9]


def test_append_fills_the_last_slot():
    cache = append(append(empty(), *tokens(0, 5)), *tokens(1, 5))
    key, value = tokens(2, 1)
    _, full = cache.extend(key, value)  # concrete: would raise
    assert full.lengths.tolist() == [S] * B
    np.testing.assert_array_equal(full.key[:, :, -1:], key.swapaxes(1, 2))
    assert_same(append(cache, key, value), full)


def test_append_that_is_known_to_overflow_names_the_row():
    cache = append(append(empty(), *tokens(0, 5), np.array([5, 1, 5])), *tokens(1, 5))
    with pytest.raises(
        ShapeError, match="holds 11 tokens a row, got 10 in row 2 and 2 more"
    ) as error:
        cache.extend(*tokens(2, 5), jnp.array([1, 5, 2]))
    assert "KVCache.init" in str(error.value)


def test_append_that_overflows_while_traced_poisons_that_row_only():
    cache = append(append(empty(), *tokens(0, 5)), *tokens(1, 5), np.array([5, 1, 0]))
    assert cache.lengths.tolist() == [10, 6, 5]
    after = append(cache, *tokens(2, 5))
    for leaf, before in zip(after[:2], cache[:2], strict=True):
        # The last T slots are NaN, what was there before is gone; nothing else moves.
        assert np.isnan(leaf[0, :, -5:]).all()
        np.testing.assert_array_equal(leaf[0, :, :-5], before[0, :, :-5])
    expected = reference_append(cache, *tokens(2, 5), [0, 5, 5])
    assert_same(rows_of(after, [1, 2]), rows_of(expected, [1, 2]))
    # A poisoned row stays so, whatever comes next.
    for count in (1, 5):
        after = append(after, *tokens(3, 5), jnp.array([count, 0, 0]))
        read = after.key[0, :, : after.lengths[0]]
        assert np.isnan(read[:, -count:]).all()
        assert_same(rows_of(after, [1, 2]), rows_of(expected, [1, 2]))


def test_append_of_more_than_the_capacity_poisons_the_whole_row():
    key, value = tokens(0, S + 2)
    after = append(empty(), key, value, jnp.array([S + 2, S, 0]))
    assert np.isnan(after.key[0]).all()
    assert np.isnan(after.value[0]).all()
    np.testing.assert_array_equal(after.key[1], key[1, :S].swapaxes(0, 1))
    assert not after.key[2].any()


def test_append_casts_to_the_dtype_of_the_cache():
    key, value = tokens(0, 5)
    cache = append(empty(dtype=jnp.bfloat16), key, value)
    assert cache.key.dtype == cache.value.dtype == jnp.bfloat16
    np.testing.assert_array_equal(cache.value[:, :, :5], value.swapaxes(1, 2).astype(jnp.bfloat16))


def test_cache_rows_can_be_gathered_for_beams():
    order, counts = np.array([2, 0, 2]), np.array([5, 1, 2])
    gather = lambda tree: jax.tree.map(lambda leaf: np.asarray(leaf)[order], tree)  # noqa: E731
    cache, new = append(empty(), *tokens(0, 5), counts), tokens(1, 5)
    expected = append(gather(cache), *gather(new), counts[order])
    assert_same(gather(append(cache, *new, counts)), expected)


@pytest.mark.parametrize("count", [6, -1])
def test_append_of_tokens_not_given_poisons_that_row_only_while_traced(count):
    cache = append(empty(), *tokens(0, 5), np.array([1, 2, 3]))
    after = append(cache, *tokens(1, 5), np.array([1, count, 2]))
    read = after.key[1, :, : after.lengths[1]]
    assert np.isnan(read).any()
    expected = reference_append(cache, *tokens(1, 5), [1, 0, 2])
    assert_same(rows_of(after, [0, 2]), rows_of(expected, [0, 2]))


@pytest.mark.parametrize("layer", [None, 1])
def test_a_token_is_written_for_a_tpu_as_elsewhere(layer):
    """Row by row in place: also of rows that are full, overflow, or append nothing."""
    filled = append(empty(), *tokens(0, S - 1))
    cache = append(filled, *tokens(1, 1), np.array([1, 0, 1]))
    if layer is not None:  # among the layers of a scan
        stacks = (jnp.stack([leaf, leaf + 1, leaf], axis=1) for leaf in (cache.key, cache.value))
        cache = KVCache(*stacks, cache.lengths, layer)
    new, counts = tokens(2, 1), np.array([0, 1, 1])  # full, one place left, full
    elsewhere = jax.jit(lambda *args: append_eagerly(*args))(cache, *new, counts)
    with compiling_for("tpu"):
        for_tpu = jax.jit(lambda *args: append_eagerly(*args))(cache, *new, counts)
    assert_same(for_tpu, elsewhere)
    assert np.isnan(for_tpu.key).sum() == np.isnan(for_tpu.value).sum() * H / V > 0
