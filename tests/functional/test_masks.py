"""Mask rules: what each and each combination allows, in every implementation of attention."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import functional as F
from jaxformer.errors import ShapeError
from jaxformer.functional.attention import plan
from jaxformer.functional.masks.base import Sizes
from jaxformer.functional.masks.tiles import Tile
from tests.functional import oracle
from tests.functional.attention import attention_cases as cases


def drawn(picture):
    """Turns rows of 0 and 1, such as "100 110", into a bool matrix."""
    return np.array([[digit == "1" for digit in row] for row in picture.split()])


def assert_mask(mask, expected):
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, expected, strict=True)


def even(query, key):
    return (query - key) % 2 == 0


IDS = np.array([4, 4, 7]), np.array([4, 4, 7, 7, 8])
DRAWN = [
    (F.Causal(), "10000 11000 11100"),
    (F.Causal(2), "11100 11110 11111"),
    (F.Causal(-1), "00000 10000 11000"),
    (F.Causal(-9), "00000 00000 00000"),
    (F.Causal(np.int64(9)), "11111 11111 11111"),
    (F.Window(1, 0), "10000 11000 01100"),
    (F.Window(0, 2), "11100 01110 00111"),
    (F.Window(1, 1), "11000 11100 01110"),
    (F.Window(None, 0), "10000 11000 11100"),
    (F.Window(1, None), "11111 11111 01111"),
    (F.Window(None, None), "11111 11111 11111"),
    (F.Window(1, 0, 2), "01100 00110 00011"),
    (F.Window(1, 1, -1), "10000 11000 11100"),
    (F.Lengths(keys=3), "11100 11100 11100"),
    (F.Lengths(2, 3), "11100 11100 00000"),
    (F.Lengths(), "11111 11111 11111"),
    (F.Prefix(2), "11000 11000 11100"),
    (F.Prefix(0, offset=1), "11000 11100 11110"),
    (F.Segments(*IDS), "11000 11000 00110"),
    (F.Rule(even), "10101 01010 10101"),
    (F.Rule(lambda query, key, first: key >= first, (jnp.int32(3)[None, None, None],)),
     "00011 00011 00011"),
    (~F.Causal(), "01111 00111 00011"),
    (F.Causal() & F.Rule(even), "10000 01000 10100"),
    (F.Window(1, 0) | F.Lengths(keys=1), "10000 11000 11100"),
    (F.Causal() & drawn("01111 01111 11110"), "00000 01000 11100"),
    (drawn("01111 01111 11110") & F.Causal(), "00000 01000 11100"),
    (jnp.asarray(drawn("00001 00000 00000")) | ~(F.Causal() | F.Rule(even)), "01011 00101 00010"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "picture"), DRAWN)
def test_rule_is_the_drawn_matrix(rule, picture):
    assert_mask(rule.array(3, 5), drawn(picture))
    assert_mask(jax.jit(lambda rule: rule.array(3, 5))(rule), drawn(picture))


def test_prefix_allows_what_it_is_made_of():
    rule, tile = F.Prefix(2), Tile((0, 3), (0, 5))
    assert_mask(rule.allows(tile), drawn("11000 11000 11100")[None])


OFFSETS, LENGTHS = np.array([2, -1], np.int8), np.array([4, 2], np.uint8)
ROWS = [
    (F.Causal(OFFSETS), ["11100 11110 11111", "00000 10000 11000"]),
    (F.Window(1, 0, OFFSETS), ["01100 00110 00011", "00000 10000 11000"]),
    (F.Lengths(keys=LENGTHS), ["11110 11110 11110", "11000 11000 11000"]),
    (F.Lengths(np.array([0, 2]), LENGTHS), ["00000 00000 00000", "11000 11000 00000"]),
    (F.Prefix(LENGTHS), ["11110 11110 11110", "11000 11000 11100"]),
    (F.Segments(np.array([[1, 1, 2], [3, 1, 1]]), np.array([[1, 2, 2, 1, 0], [1, 1, 1, 3, 3]])),
     ["10010 10010 01100", "00011 11100 11100"]),
    (F.Rule(lambda query, key, first: key >= first, (np.array([4, 1])[:, None, None, None],)),
     ["00001 00001 00001", "01111 01111 01111"]),
    (F.Causal() & F.Lengths(keys=LENGTHS), ["10000 11000 11100", "10000 11000 11000"]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "pictures"), ROWS)
def test_arrays_of_a_rule_differ_by_row(rule, pictures):
    expected = np.stack([drawn(picture) for picture in pictures])[:, None]
    assert_mask(rule.array(3, 5, leading=(2,)), expected)
    assert_mask(jax.jit(lambda rule: rule.array(3, 5, leading=(2,)))(rule), expected)


def test_leaves_of_a_rule_are_its_arrays():
    rule = F.Causal(2) & (F.Segments(*IDS) | ~F.Rule(even, (jnp.ones(3),), lambda *queries: (0, 5)))
    leaves, structure = jax.tree.flatten(rule)
    assert [leaf.shape for leaf in leaves] == [(3,), (5,), (3,)]
    assert structure == jax.tree.structure(jax.tree.unflatten(structure, leaves))
    assert hash(jax.tree.structure(F.Window(3, 0))) == hash(jax.tree.structure(F.Window(3, 0)))
    assert jax.tree.structure(F.Window(3, 0)) != jax.tree.structure(F.Window(2, 0))


def test_lengths_beyond_int32_hide_nothing():
    lengths = jnp.array([2**31 + 1], jnp.uint32)
    assert jax.jit(lambda n: F.Lengths(keys=n).array(3, 3, (1,)))(lengths).all()


def test_segments_of_dtypes_that_no_integer_dtype_holds_are_refused():
    unsigned, signed = jnp.array([2**32 - 1], jnp.uint32), jnp.array([-1], jnp.int32)
    heads = jnp.ones((1, 1, 2))
    for query_ids, key_ids in ((unsigned, signed), (signed, unsigned)):
        ids = {"query_segment_ids": query_ids, "key_value_segment_ids": key_ids}
        for options in (ids, {"mask": F.Segments(query_ids, key_ids)}):
            with pytest.raises(ShapeError, match="must fit in one integer dtype, got u?int32 and"):
                F.dot_product_attention(*[heads] * 3, **options)
    assert F.Segments(unsigned, unsigned).array(1, 1).all()
    assert F.Segments(np.array([3], np.uint8), signed + 4).array(1, 1).all()
    with jax.enable_x64(True):
        assert not F.Segments(unsigned, signed).array(1, 1).any()


# Attention, of two rows, 5 queries and 7 keys.
IDS_BY_ROW = np.arange(10).reshape(2, 5) % 3, np.arange(14).reshape(2, 7) % 2
IN_ATTENTION = {
    "causal": F.Causal(1),
    "window, an offset a row": F.Window(2, 1, np.array([-1, 3])),
    "lengths": F.Lengths(np.array([3, 5]), np.array([7, 2])),
    "prefix": F.Prefix(np.array([4, 1]), offset=1),
    "segments": F.Segments(*IDS_BY_ROW),
    "function": F.Rule(even) & F.Window(3, None),
    "not": ~(F.Prefix(2, offset=-3) | F.Segments(*IDS_BY_ROW)),
    "with an array by head": F.Causal(2) & (np.arange(210).reshape(1, 6, 5, 7) % 5 > 0),
    "sink and window": F.Window(1, 0, 2) | (F.Lengths(keys=1) & F.Causal(2)),
}


@pytest.mark.essential
@pytest.mark.parametrize("implementation", cases.IMPLEMENTATIONS)
@pytest.mark.parametrize("name", IN_ATTENTION)
def test_attention_with_a_rule_equals_the_reference_with_its_array(name, implementation):
    rule = IN_ATTENTION[name]
    query = jnp.zeros((2, 5, 6, 3))
    array = np.broadcast_to(
        F.attention_mask(query, jnp.zeros((2, 7, 3, 3)), rule), cases.GROUPED.weights
    )
    static = {"implementation": implementation}
    inputs, output, gradients = cases.run(cases.GROUPED, {"mask": rule}, static)
    _, by_array, of_array = cases.run(cases.GROUPED, {"mask": array}, static)
    cases.assert_close(output, oracle.attention(**inputs, mask=array), 1e-6)
    for name, gradient in gradients.items():
        cases.assert_close(gradient, of_array[name], 1e-5)
    rows = np.swapaxes(~array.any(-1), -1, -2)  # queries that see nothing
    assert (output[rows] == 0).all() and (gradients["query"][rows] == 0).all()
    keys = ~array.reshape(2, 3, 2 * 5, 7).any(2).swapaxes(-1, -2)
    assert (gradients["value"][keys] == 0).all()
    if keys.any():
        for name in ("key", "value"):
            inputs[name][keys] = np.nan
        cases.assert_same_bits(
            cases.run(cases.GROUPED, {"mask": rule}, static, inputs)[1:], (output, gradients)
        )


SIDES = st.none() | st.integers(0, 9)
SIMPLE = st.one_of(
    st.builds(F.Causal, st.integers(-9, 9)),
    st.builds(F.Window, SIDES, SIDES, st.integers(-9, 9)),
    st.builds(F.Lengths, st.none() | st.integers(0, 8), st.none() | st.integers(0, 11)),
    st.builds(F.Prefix, st.integers(0, 11), st.integers(-9, 9)),
    st.just(F.Rule(lambda query, key: (query + 3 * key) % 4 < 2)),
    st.just(F.Rule(lambda query, key: key // 4 == query // 3, (),
                 lambda first, last: (first // 3 * 4, (last - 1) // 3 * 4 + 4))),
)  # fmt: skip
RULES = st.recursive(SIMPLE, lambda rules: st.one_of(
    st.builds(lambda a, b: a & b, rules, rules),
    st.builds(lambda a, b: a | b, rules, rules),
    st.builds(lambda a: ~a, rules),
), max_leaves=5)  # fmt: skip


def allowed(rule, query, key):
    """Whether a rule allows a key, by what it says of single positions."""
    if hasattr(rule, "rules"):
        all_or_any = {"And": all, "Or": any}[type(rule).__name__]
        return all_or_any(allowed(part, query, key) for part in rule.rules)
    if hasattr(rule, "rule"):
        return not allowed(rule.rule, query, key)
    if isinstance(rule, F.Rule):
        return bool(rule.function(query, key))
    if isinstance(rule, F.Prefix):
        return key < rule.lengths or key <= query + rule.offset
    if isinstance(rule, F.Lengths):
        real_query = rule.queries is None or query < rule.queries
        return real_query and (rule.keys is None or key < rule.keys)
    left, right = (None, 0) if isinstance(rule, F.Causal) else (rule.left, rule.right)
    distance = key - query - rule.offset
    return (left is None or distance >= -left) and (right is None or distance <= right)


@pytest.mark.essential
@hypothesis.given(rule=RULES, block=st.integers(1, 9))
@hypothesis.settings(max_examples=150, deadline=None)
def test_composed_rules_allow_what_their_parts_say_and_blocks_cover_it(rule, block):
    expected = np.array([[allowed(rule, query, key) for key in range(11)] for query in range(8)])
    assert_mask(rule.array(8, 11), expected)
    first_query = 0
    for loop in plan.plan_loops(rule.checked(Sizes((), 1, 8, 11)), 8, 11, block):
        for first_key in loop.first_keys:
            rows = expected[first_query : first_query + loop.num_queries]
            assert not rows[:, :first_key].any() and not rows[:, first_key + loop.num_keys :].any()
            first_query += loop.num_queries
    assert first_query == 8


def computed_weights(rule, length, block=64):
    """Number of weights that chunked attention computes."""
    rule = rule.checked(Sizes((), 1, length, length))
    loops = plan.plan_loops(rule, length, length, block)
    return sum(loop.num_queries * loop.num_keys * len(loop.first_keys) for loop in loops)


@pytest.mark.usefixtures("real_blocks")
def test_blocks_that_a_rule_hides_are_not_computed():
    documents = F.Rule(
        lambda query, key: query // 256 == key // 256,
        key_range=lambda first, last: (first // 256 * 256, (last - 1) // 256 * 256 + 256),
    )
    every = computed_weights(F.Rule(even), 1024)
    assert every == 1024**2
    assert computed_weights(F.Causal(), 1024) == computed_weights(F.Prefix(0), 1024) <= 0.57 * every
    assert computed_weights(F.Prefix(1024), 1024) == every
    assert computed_weights(F.Window(64, 0), 1024) <= 0.19 * every
    assert computed_weights(F.Rule(even) & F.Window(64, 0), 1024) <= 0.19 * every
    assert computed_weights(documents, 1024) == every // 4
    assert computed_weights(documents & F.Causal(), 1024) <= 0.2 * every
    assert computed_weights(F.Lengths(256, 512), 1024) == every // 8
    assert computed_weights(F.Causal(-300) & F.Causal(-2000), 1024) == 0


@pytest.mark.usefixtures("real_blocks")
def test_a_large_call_with_a_rule_is_chunked_and_holds_no_array():
    x = jax.ShapeDtypeStruct((1, 2048, 8, 64), "float32")
    lengths = jax.ShapeDtypeStruct((1,), "int32")
    choice = F.attention_implementation(x, x, x, mask=F.Prefix(lengths), platform="cpu")
    assert choice.name == "chunked"
    lowered = jax.jit(lambda x, n: F.dot_product_attention(x, x, x, mask=F.Prefix(n))).lower(
        x, lengths
    )
    assert "2048x2048" not in lowered.as_text()
