from decimal import Decimal, localcontext

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import functional as F
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.positions.biases import relative_buckets
from tests.functional.attention.test_position_biases import (
    KINDS,
    array_of,
    numbers_of,
    value_of,
)


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
        (16, np.arange(1, 17) / 2),
        (20, [*np.arange(1, 17) / 2, 0.25, 0.75, 1.25, 1.75]),
    ],
)
def test_alibi_slopes_are_the_published_powers_of_two(num_heads, exponents):
    # The exponents are those that Press et al.'s and Bloom's code give.
    slopes = F.alibi_slopes(num_heads)
    assert slopes.dtype == jnp.float32
    np.testing.assert_array_equal(slopes, (0.5 ** np.array(exponents)).astype(np.float32))


# (buckets of both directions, largest distance, both directions?) -> the smallest distance of each
# bucket of one direction. Made once by T5's relative position buckets in transformers 5.23.0 with
# torch 2.13.0, over all relative positions from -200000 to 200000 (T5's two) or -300 to 300.
PUBLISHED = {
    (32, 128, True): [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91],
    (32, 128, False): [*range(17), 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113],
    (6, 20, True): [0, 1, 5],
    (7, 29, False): [0, 1, 2, 3, 6, 10, 17],
}


@pytest.mark.parametrize("setting", PUBLISHED)
def test_buckets_equal_the_published_ones(setting):
    num_buckets, max_distance, bidirectional = setting
    starts = PUBLISHED[setting]
    farthest = 200_000 if num_buckets == 32 else 300
    before = np.repeat(np.arange(len(starts)), np.diff([*starts, farthest + 1]))  # by distance
    after = before + num_buckets // 2 if bidirectional else np.zeros_like(before)
    buckets = relative_buckets(
        np.arange(-farthest, farthest + 1),
        num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional,
    )  # fmt: skip
    assert buckets.dtype == jnp.int32
    np.testing.assert_array_equal(buckets, [*before[::-1], *after[1:]])


def reference_bucket(distance, num_buckets, max_distance):
    """Of one direction, by logarithms to 50 digits."""
    exact = num_buckets // 2
    if distance < exact:
        return distance
    with localcontext(prec=50):
        share = (Decimal(distance) / exact).ln() / (Decimal(max_distance) / exact).ln()
        larger = int(share * (num_buckets - exact) + Decimal("1e-40"))
    return min(exact + larger, num_buckets - 1)


# A float32 logarithm puts distance 18 of (17, 27), 54 of (48, 81) and 35 of (51, 49) one bucket
# too low: their borders are fractions, such as 8 * (27 / 8) ** (6 / 9) = 18.
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(17, 27), (48, 81), (51, 49), (2, 2), (3, 211), (100, 51)]
)
def test_bucket_borders_are_exact(num_buckets, max_distance):
    expected = [reference_bucket(d, num_buckets, max_distance) for d in range(230)]
    options = {"max_distance": max_distance}
    one_way = relative_buckets(
        -np.arange(230), num_buckets=num_buckets, bidirectional=False, **options
    )
    np.testing.assert_array_equal(one_way, expected)
    both_ways = relative_buckets(
        np.arange(1, 230), num_buckets=2 * num_buckets, bidirectional=True, **options
    )
    np.testing.assert_array_equal(both_ways, np.array(expected[1:]) + num_buckets)


def test_biases_under_x64_keep_their_dtypes():
    with jax.enable_x64(True):
        for offset in (5, jnp.asarray([5, 1009])):
            chex.assert_type(F.AlibiBias(F.alibi_slopes(7)).array(3, 5, offset), np.float32)
            table = np.ones((8, 7), np.float32)
            chex.assert_type(F.RelativeBias(table).array(3, 5, offset), np.float32)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 5), (3, 0), (1, 1), (3, 11), (11, 3)])
@KINDS
def test_array_of_a_value_has_the_definition(kind, sizes):
    numbers, offsets = numbers_of(kind), np.array([[0, 2], [-3, 1009]])

    def array(offset):
        return value_of(kind, numbers).array(*sizes, offset)

    expected = np.stack([array_of(kind, numbers, *sizes, row) for row in offsets.flat])
    expected = expected.reshape(2, 2, *expected.shape[1:])
    for index in np.ndindex(2, 2):
        chex.assert_trees_all_equal(array(int(offsets[index])), expected[index])
    chex.assert_trees_all_equal(array(offsets), expected)
    chex.assert_trees_all_equal(jax.jit(array)(offsets), expected)
    chex.assert_trees_all_equal(jax.vmap(jax.vmap(array))(jnp.asarray(offsets)), expected)


@KINDS
def test_offsets_of_small_integers_do_not_wrap(kind):
    value = value_of(kind, numbers_of(kind))
    expected = value.array(200, 3, 100)
    for offset in (np.uint8(100), [100], np.array([100], np.uint8)):
        chex.assert_trees_all_equal(np.squeeze(value.array(200, 3, offset)), np.squeeze(expected))
    for offset in (True, None, 0.5, 2**31 - 2):
        with pytest.raises(ShapeError, match="query_offset"):
            value.array(200, 3, offset)


@pytest.mark.parametrize(
    ("num_buckets", "options", "message"),
    [
        (33, {}, "num_buckets must be even for two directions, got 33"),
        (2, {}, "num_buckets must be an int in 4 .. 1024, got 2"),
        (1, {"bidirectional": False}, "num_buckets must be an int in 2 .. 1024, got 1"),
        (2048, {"max_distance": 10**7}, "num_buckets must be .* got 2048"),
        (32, {"max_distance": 8}, "max_distance must be an int in 9 .. .* got 8"),
        (32, {"bidirectional": 1}, "bidirectional must be True or False"),
    ],
)
def test_buckets_of_a_value_are_checked(num_buckets, options, message):
    with pytest.raises(ConfigError, match=message):
        F.RelativeBias(np.ones((num_buckets, 2), np.float32), **options).array(3, 5)


def test_numbers_of_a_value_are_checked():
    for value in (F.AlibiBias(np.ones((2, 2))), F.RelativeBias(np.ones(4))):
        with pytest.raises(ShapeError, match="slopes|table"):
            value.array(2, 2)
