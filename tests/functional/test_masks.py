import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import ShapeError
from jaxformer.functional import (
    causal,
    combine,
    dot_product_attention,
    padding,
    segments,
    window,
)


def drawn(picture):
    """Turns rows of 0 and 1, such as "100 110", into a bool matrix."""
    return np.array([[digit == "1" for digit in row] for row in picture.split()])


def assert_mask(mask, expected):
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, expected, strict=True)


@pytest.mark.parametrize(
    ("offset", "picture"),
    [
        (0, "10000 11000 11100"),
        (2, "11100 11110 11111"),
        (-1, "00000 10000 11000"),
        (-9, "00000 00000 00000"),
        (9, "11111 11111 11111"),
    ],
)
def test_causal_is_the_drawn_triangle(offset, picture):
    assert_mask(causal(3, 5, offset), drawn(picture))


def test_causal_takes_one_traced_offset_per_row():
    offsets = jnp.array([2, -1])
    expected = np.stack([drawn("11100 11110 11111"), drawn("00000 10000 11000")])[:, None]
    assert_mask(jax.jit(lambda o: causal(3, 5, o))(offsets), expected)
    assert_mask(causal(3, 5, np.array([2, -1])), expected)


def test_causal_takes_offsets_of_any_rank():
    assert_mask(causal(3, 5, jnp.int32(2)), drawn("11100 11110 11111")[None])
    offsets = np.array([[0, 2, -1]])
    rows = [causal(3, 5, int(offset)) for offset in offsets[0]]
    assert_mask(causal(3, 5, offsets), np.stack(rows)[None, :, None])


def test_causal_of_no_queries_is_empty():
    assert causal(0, 5).shape == (0, 5)
    assert causal(3, 0).shape == (3, 0)


@pytest.mark.parametrize(
    ("size", "offset", "picture"),
    [
        ((1, 0), 0, "10000 11000 01100"),
        ((0, 2), 0, "11100 01110 00111"),
        (1, 0, "11000 11100 01110"),
        (0, 0, "10000 01000 00100"),
        ((None, 0), 0, "10000 11000 11100"),
        ((1, None), 0, "11111 11111 01111"),
        ((None, None), 0, "11111 11111 11111"),
        ((1, 0), 2, "01100 00110 00011"),
        ((1, 1), -1, "10000 11000 11100"),
        ((0, 0), -2, "00000 00000 10000"),
    ],
)
def test_window_is_the_drawn_band(size, offset, picture):
    assert_mask(window(3, 5, size, offset), drawn(picture))


def test_window_takes_one_traced_offset_per_row():
    mask = jax.jit(lambda o: window(3, 5, (1, 0), o))(jnp.array([2, 0]))
    expected = np.stack([drawn("01100 00110 00011"), drawn("10000 11000 01100")])[:, None]
    assert_mask(mask, expected)


def test_padding_hides_keys_at_or_beyond_each_length():
    lengths = np.array([3, 0, 5])
    expected = drawn("11100 00000 11111")[:, None, None]
    assert_mask(padding(lengths, 5), expected)
    assert_mask(jax.jit(lambda n: padding(n, 5))(lengths), expected)


def test_padding_takes_lengths_of_any_rank():
    assert_mask(padding(3, 5), drawn("11100")[None])
    assert_mask(padding(jnp.array([[3], [0]]), 5), drawn("11100 00000")[:, None, None, None])


def test_segments_lets_a_query_see_its_own_document():
    picture = drawn("11000 11000 00110 00000")
    query_ids, key_ids = np.array([4, 4, 7, 9]), np.array([4, 4, 7, 7, 8])
    assert_mask(segments(query_ids, key_ids), picture[None])


def test_segments_keeps_leading_axes():
    query_ids = np.array([[1, 1, 2], [3, 1, 1]])
    key_ids = np.array([[1, 2, 2, 1, 0], [1, 1, 1, 3, 3]])
    expected = np.stack([drawn("10010 10010 01100"), drawn("00011 11100 11100")])[:, None]
    assert_mask(segments(query_ids, key_ids), expected)
    nested = segments(query_ids[:, None], jnp.asarray(key_ids)[:, None])
    assert_mask(nested, expected[:, None])


def test_segments_of_dtypes_that_no_integer_dtype_holds_are_refused():
    unsigned, signed = jnp.array([2**32 - 1], jnp.uint32), jnp.array([-1], jnp.int32)
    heads = jnp.ones((1, 1, 2))
    for query_ids, key_ids in ((unsigned, signed), (signed, unsigned)):
        ids = {"query_segment_ids": query_ids, "key_value_segment_ids": key_ids}
        for call in (segments, lambda *_, ids=ids: dot_product_attention(*[heads] * 3, **ids)):
            with pytest.raises(ShapeError, match="must fit in one integer dtype, got u?int32 and"):
                call(query_ids, key_ids)
    assert segments(unsigned, unsigned).all()
    assert segments(np.array([3], np.uint8), signed + 4).all()
    with jax.enable_x64(True):
        assert not segments(unsigned, signed).any()


def test_padding_of_lengths_beyond_int32_hides_nothing():
    lengths = jnp.array([2**31 + 1], jnp.uint32)
    assert jax.jit(lambda n: padding(n, 3))(lengths).all()


def test_combine_is_a_logical_and():
    first, second = drawn("110 011"), drawn("101 010")
    assert_mask(combine(first, None, second), drawn("100 010"))
    assert_mask(combine(first), first)


def test_combine_of_nothing_is_none():
    assert combine() is None
    assert combine(None, None) is None


def test_combine_gives_a_plain_mask_the_rank_of_the_others():
    batch_of_keys = padding(jnp.array([1, 3]), 3)
    expected = np.stack([drawn("100 100"), drawn("100 110")])[:, None]
    assert_mask(combine(causal(2, 3), batch_of_keys), expected)
    assert_mask(combine(batch_of_keys, causal(2, 3)), expected)


def test_combine_broadcasts_axes_of_size_one():
    by_head = jnp.asarray(drawn("11 01 10 11 00"))[None, :, None, :]
    by_row = jnp.asarray(drawn("1 0 1"))[:, None, None]
    mask = combine(by_head, by_row)
    assert_mask(mask, np.broadcast_to(by_head, (3, 5, 1, 2)) & np.array(by_row))


attend_everywhere = jax.jit(dot_product_attention)
OFFSETS, LENGTHS = np.array([2, -1]), np.array([4, 2])
QUERY_IDS = np.array([[1, 1, 2], [3, 1, 2]])
KEY_IDS = np.array([[1, 2, 2, 1, 0], [1, 1, 1, 3, 3]])


@pytest.mark.essential
@pytest.mark.parametrize(
    ("structure", "mask"),
    [
        ({"is_causal": True, "query_offset": OFFSETS}, causal(3, 5, OFFSETS)),
        ({"local_window_size": (1, 0), "query_offset": 2}, window(3, 5, (1, 0), 2)),
        ({"key_value_seq_lengths": LENGTHS}, padding(LENGTHS, 5)),
        ({"query_segment_ids": QUERY_IDS, "key_value_segment_ids": KEY_IDS},
         segments(QUERY_IDS, KEY_IDS)),
        ({"is_causal": True, "query_offset": OFFSETS, "key_value_seq_lengths": LENGTHS},
         combine(causal(3, 5, OFFSETS), padding(LENGTHS, 5), None)),
    ],
    ids=["causal", "window", "padding", "segments", "combined"],
)  # fmt: skip
def test_mask_argument_equals_the_structured_arguments(structure, mask):
    rng = np.random.default_rng(0)
    query, key, value = (np.float32(rng.standard_normal((2, length, 2, 7))) for length in (3, 5, 5))
    by_mask = jax.jit(lambda *arrays: dot_product_attention(*arrays, mask=mask))
    by_structure = jax.jit(lambda *arrays: dot_product_attention(*arrays, **structure))
    result = by_mask(query, key, value)
    np.testing.assert_allclose(result, by_structure(query, key, value), rtol=0, atol=1e-6)
    assert not np.allclose(result, attend_everywhere(query, key, value), atol=1e-3)
