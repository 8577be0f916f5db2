"""dot_product_attention and attention_weights against their contract and a float64 reference."""

import functools
import inspect
import math
import re
from typing import NamedTuple

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional import attention_weights, dot_product_attention
from tests.functional import oracle


class Sizes(NamedTuple):
    leading: tuple
    T: int
    S: int
    N: int
    K: int
    H: int
    Hv: int

    @property
    def weights(self):
        return (*self.leading, self.N, self.T, self.S)


# All axes differ, and are prime unless they must be a multiple of another one.
PLAIN = Sizes((), 5, 7, 6, 3, 11, 13)
GROUPED = Sizes((2,), 5, 7, 6, 3, 11, 13)
SQUARE = Sizes((2,), 7, 7, 6, 3, 11, 11)
NESTED = Sizes((2, 3), 5, 7, 4, 1, 11, 13)  # one key head for all query heads
DEVICES = Sizes((8,), 5, 7, 6, 3, 11, 13)  # one row for each device


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def bits(*shape, share=0.7):
    return np.random.default_rng(1).random(shape) < share


def inputs_of(sizes, dtype=np.float32, seed=2):
    shapes = {
        "query": (*sizes.leading, sizes.T, sizes.N, sizes.H),
        "key": (*sizes.leading, sizes.S, sizes.K, sizes.H),
        "value": (*sizes.leading, sizes.S, sizes.K, sizes.Hv),
    }
    return {n: normal(*s, seed=seed + i).astype(dtype) for i, (n, s) in enumerate(shapes.items())}


def cotangent_of(sizes, dtype=np.float32):
    return normal(*sizes.leading, sizes.T, sizes.N, sizes.Hv, seed=5).astype(dtype)


def evaluate(inputs, options, cotangent, wrap=lambda f: f, **static):
    """Returns the output, and the gradients of its inner product with the cotangent."""

    def attend(inputs):
        return dot_product_attention(**inputs, **options, **static)

    output, pull = jax.vjp(wrap(attend), inputs)
    return output, *pull(cotangent)


# Compiling is most of this file's time, and takes half of it without optimization. What could
# depend on the optimizer (bits, NaN, rounding) is tested with it.
QUICK = {"xla_backend_optimization_level": 0}


@functools.cache
def compiled(optimized, **static):
    options = None if optimized else QUICK
    return jax.jit(functools.partial(evaluate, **static), compiler_options=options)


def run(sizes, options, static, inputs=None, cotangent=None, optimized=False):
    """`evaluate`, compiled; a bias among the options counts as one of the inputs."""
    inputs = dict(inputs_of(sizes) if inputs is None else inputs)
    options = dict(options)
    if "bias" in options:
        inputs["bias"] = options.pop("bias")
    cotangent = cotangent_of(sizes, inputs["query"].dtype) if cotangent is None else cotangent
    output, gradients = compiled(optimized, **static)(inputs, options, cotangent)
    return inputs, np.asarray(output), {n: np.asarray(g) for n, g in gradients.items()}


def assert_close(got, expected, tolerance):
    """The largest error is at most `tolerance` of the largest expected entry."""
    expected = np.asarray(expected, np.float64)
    assert got.shape == expected.shape
    error = np.abs(np.asarray(got, np.float64) - expected).max()
    assert error <= tolerance * np.abs(expected).max()


def assert_same_bits(got, expected):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()


def assert_equals_the_reference(
    sizes, options, static, inputs=None, forward=1e-6, backward=1e-5, optimized=False
):
    inputs, output, gradients = run(sizes, options, static, inputs, optimized=optimized)
    cotangent = cotangent_of(sizes)
    assert output.dtype == inputs["query"].dtype
    others = {n: o for n, o in options.items() if n != "bias"} | static
    assert_close(output, oracle.attention(**inputs, **others), forward)

    directions = {n: normal(*a.shape, seed=i) for i, (n, a) in enumerate(inputs.items(), 20)}
    expected = oracle.slope(
        lambda moved: np.sum(cotangent * oracle.attention(**moved, **others)), inputs, directions
    )
    got = sum(np.sum(gradients[n].astype(np.float64) * directions[n]) for n in inputs)
    lengths = [
        math.sqrt(sum(np.sum(a.astype(np.float64) ** 2) for a in arrays.values()))
        for arrays in (gradients, directions)
    ]
    assert abs(got - expected) <= backward * math.prod(lengths)


def hiding(array, hidden):
    return np.where(hidden, np.float32(-np.inf), array)


SEGMENTS = {
    "query_segment_ids": np.array([[0, 0, 1, 1, 4], [5, 0, 0, 2, 2]]),
    "key_value_segment_ids": np.array([[0, 0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 2, 3]]),
}
EVERYTHING = {
    "mask": bits(2, 6, 5, 7),
    "bias": hiding(normal(2, 6, 5, 7), ~bits(2, 6, 5, 7, share=0.9)),
    "query_offset": np.array([1, 3]),
    "query_seq_lengths": np.array([4, 5]),
    "key_value_seq_lengths": np.array([6, 5]),
    "query_segment_ids": np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]]),
    "key_value_segment_ids": np.array([[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1]]),
}
# What to compute: the sizes, the arguments that are traced, and those that are not.
CASES = {
    "no keys at all": (PLAIN._replace(S=0), {}, {}),
    "no leading axes": (PLAIN, {}, {}),
    "one leading axis": (GROUPED, {}, {}),
    "two leading axes": (NESTED, {}, {}),
    "mask [T, S]": (GROUPED, {"mask": bits(5, 7)}, {}),
    "mask [N, T, S]": (PLAIN, {"mask": bits(6, 5, 7)}, {}),
    "mask [B, 1, 1, S]": (GROUPED, {"mask": bits(2, 1, 1, 7)}, {}),
    "mask [1, N, T, 1]": (GROUPED, {"mask": bits(1, 6, 5, 1)}, {}),
    "mask, two leading axes": (NESTED, {"mask": bits(1, 3, 4, 5, 7)}, {}),
    "bias [T, S]": (GROUPED, {"bias": normal(5, 7)}, {"scale": 0.7}),
    "bias [B, N, 1, S]": (GROUPED, {"bias": normal(2, 6, 1, 7)}, {}),
    "bias of -inf": (GROUPED, {"bias": hiding(normal(1, 6, 5, 7), ~bits(1, 6, 5, 7))}, {}),
    "causal": (SQUARE, {}, {"is_causal": True}),
    "causal, top left": (GROUPED, {}, {"is_causal": True, "query_offset": 0}),
    "causal, bottom right": (GROUPED, {}, {"is_causal": True, "query_offset": 2}),
    "causal, negative offset": (GROUPED, {}, {"is_causal": True, "query_offset": -2}),
    "causal, traced int": (GROUPED, {"query_offset": np.int32(3)}, {"is_causal": True}),
    "causal, an offset a row": (GROUPED, {"query_offset": np.array([-1, 4])}, {"is_causal": True}),
    "window": (SQUARE, {}, {"local_window_size": 2}),
    "window to the left": (GROUPED, {}, {"local_window_size": (1, None), "query_offset": 2}),
    "window to the right": (GROUPED, {}, {"local_window_size": (None, 1), "query_offset": 1}),
    "window, an offset a row": (
        GROUPED,
        {"query_offset": np.array([-1, 3])},
        {"local_window_size": (2, 1)},
    ),
    "window and causal": (SQUARE, {}, {"local_window_size": (3, 2), "is_causal": True}),
    "lengths": (
        GROUPED,
        {"query_seq_lengths": np.array([3, 5]), "key_value_seq_lengths": np.array([7, 2])},
        {},
    ),
    "lengths for all rows": (GROUPED, {}, {"query_seq_lengths": 3, "key_value_seq_lengths": 4}),
    "segments": (GROUPED, SEGMENTS, {}),
    "arrays that broadcast to two leading axes": (
        NESTED,
        {
            "query_offset": np.array([[1], [4]]),
            "query_seq_lengths": np.array([5, 3, 4]),
            "key_value_seq_lengths": np.array([[4, 7, 6]]),
            "query_segment_ids": np.arange(30).reshape(2, 3, 5) % 3,
            "key_value_segment_ids": np.arange(42).reshape(2, 3, 7) % 2,
        },
        {"is_causal": True},
    ),
    "soft cap, then bias, then mask": (
        GROUPED,
        {"bias": normal(5, 7), "mask": bits(2, 1, 5, 7)},
        {"softcap": 0.8, "scale": 1.3},
    ),
    "everything": (
        GROUPED,
        EVERYTHING,
        {"is_causal": True, "local_window_size": (4, 0), "softcap": 2.0, "scale": 0.4},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_attention_and_its_gradient_equal_the_reference(case):
    assert_equals_the_reference(*case)


def test_attention_and_its_gradient_equal_the_reference_in_float64():
    with jax.enable_x64(True):
        sizes, options, static = CASES["everything"]
        inputs = inputs_of(sizes, np.float64)
        options = options | {"bias": options["bias"].astype(np.float64)}
        assert_equals_the_reference(sizes, options, static, inputs, forward=1e-14, backward=1e-11)


@pytest.mark.parametrize(
    ("sizes", "static"),
    [
        (GROUPED, {"is_causal": True}),
        (GROUPED, {"local_window_size": (2, 1)}),
        (NESTED, {"local_window_size": (None, 3), "softcap": 3.0}),
        (PLAIN, {"is_causal": True, "local_window_size": (3, 0)}),
    ],
)
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=20, deadline=None)
def test_attention_equals_the_reference_for_any_values(sizes, static, data):
    def integers(low, high, *shape):
        return data.draw(hnp.arrays(np.int32, shape, elements=st.integers(low, high)))

    leading, queries, keys = sizes.leading, sizes.T, sizes.S
    options = {
        "mask": data.draw(hnp.arrays(bool, sizes.weights)),
        "bias": hiding(normal(*sizes.weights), data.draw(hnp.arrays(bool, (queries, keys)))),
        "query_offset": integers(-queries, keys, *leading),
        "query_seq_lengths": integers(0, queries, *leading),
        "key_value_seq_lengths": integers(0, keys, *leading),
        "query_segment_ids": integers(0, 1, *leading, queries),
        "key_value_segment_ids": integers(0, 1, *leading, keys),
    }
    inputs = inputs_of(sizes, seed=data.draw(st.integers(0, 1000)))
    assert_equals_the_reference(sizes, options, static, inputs, optimized=True)


def test_attention_means_the_same_by_every_implementation():
    @functools.partial(jax.jit, compiler_options=QUICK)
    def all_of_them(inputs):
        return [
            dot_product_attention(**inputs, implementation=name)
            for name in ("auto", "dense", "xla", None)
        ]

    inputs = inputs_of(GROUPED)
    for output in all_of_them(inputs):
        assert_close(output, oracle.attention(**inputs), 1e-6)


def test_attention_takes_the_arguments_of_jax_nn_in_their_order():
    ours = inspect.signature(dot_product_attention).parameters
    theirs = list(inspect.signature(jax.nn.dot_product_attention).parameters)
    theirs.remove("return_residual")
    assert [name for name in ours if name in theirs] == theirs
    positional = [n for n, p in ours.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == ["query", "key", "value", "bias", "mask"]
    with pytest.raises(TypeError, match="return_residual"):
        dot_product_attention(**inputs_of(PLAIN), return_residual=True)


DIAGONAL = np.eye(7, dtype=bool)
AGREEING = {
    "nothing": {},
    "causal": {"is_causal": True},
    "an int window": {"local_window_size": 2},
    "a window": {"local_window_size": (1, 3), "is_causal": True},
    "lengths": {
        "query_seq_lengths": np.array([4, 7], np.int32),
        "key_value_seq_lengths": np.array([5, 3], np.int32),
    },
    "bias and mask": {
        "bias": normal(1, 6, 7, 7),
        "mask": bits(2, 1, 7, 7) | DIAGONAL,
        "scale": 0.2,
    },
}


@pytest.mark.parametrize("options", AGREEING.values(), ids=AGREEING)
def test_attention_agrees_with_jax_nn_where_both_are_defined(options):
    @functools.partial(jax.jit, compiler_options=QUICK)
    def both(inputs):
        return (
            dot_product_attention(**inputs, **options),
            jax.nn.dot_product_attention(**inputs, **options),
        )

    ours, theirs = both({n: jnp.asarray(a) for n, a in inputs_of(SQUARE).items()})
    assert_close(ours, theirs, 1e-6)


# Numerics.


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_attention_in_low_precision_rounds_only_its_results(dtype):
    options = {"bias": normal(5, 7)}
    inputs = inputs_of(GROUPED, dtype)
    exact = {n: np.asarray(a, np.float32) for n, a in inputs.items()}
    cotangent = cotangent_of(GROUPED, dtype)
    _, output, gradients = run(GROUPED, options, {}, inputs, cotangent, optimized=True)
    _, _, exact_gradients = run(GROUPED, options, {}, exact, cotangent.astype(np.float32))

    def assert_rounded_once(got, expected, tolerance):
        assert got.dtype == dtype
        expected = np.asarray(expected, np.float64)
        error = np.abs(got.astype(np.float64) - expected)
        rounding = np.abs(expected.astype(dtype).astype(np.float64) - expected)
        assert (error <= rounding + tolerance * np.abs(expected).max()).all()

    assert_rounded_once(output, oracle.attention(**exact, **options), 1e-6)
    for name in inputs:
        assert_rounded_once(gradients[name], exact_gradients[name], 1e-5)
    assert gradients["bias"].dtype == np.float32
    assert_close(gradients["bias"], exact_gradients["bias"], 1e-5)


def test_attention_scores_do_not_overflow_in_float16():
    inputs = inputs_of(GROUPED, np.float16)
    inputs["query"], inputs["key"] = inputs["query"] * 200, inputs["key"] * 200
    _, output, gradients = run(GROUPED, {}, {"scale": 1e-3}, inputs)
    assert_close(output, oracle.attention(**inputs, scale=1e-3), 1e-3)
    assert all(np.isfinite(g).all() for g in gradients.values())


def test_attention_is_exact_for_scores_in_the_thousands():
    inputs = inputs_of(GROUPED)
    for name in ("query", "key"):
        inputs[name] = np.round(inputs[name])
    _, output, gradients = run(GROUPED, {}, {"scale": 1000.0}, inputs)
    assert_close(output, oracle.attention(**inputs, scale=1000.0), 1e-6)
    assert all(np.isfinite(g).all() for g in gradients.values())


@pytest.mark.parametrize("lowest", [-1e30, np.finfo(np.float32).min])
def test_attention_bias_hides_a_key_only_at_minus_infinity(lowest):
    bias = np.zeros((1, 1, 5, 7), np.float32)
    bias[..., 2, :] = lowest
    inputs = inputs_of(GROUPED)
    _, output, _ = run(GROUPED, {"bias": bias}, {}, inputs)
    mean = inputs["value"].mean(axis=-3).repeat(2, axis=-2)
    assert_close(output[:, 2], mean, 1e-6)


def test_attention_documents_the_precision_of_its_products():
    assert "jax.default_matmul_precision" in dot_product_attention.__doc__


# Rows with nothing to attend to, and keys that no query may attend to. Each case has both.

KEY_HEAD_MASK = np.ones((2, 6, 5, 7), bool)
KEY_HEAD_MASK[0, 2:4, :, [1, 6]] = False  # both query heads of key head 1
KEY_HEAD_MASK[1, 5, 3] = False  # a row of one query head
LEFT_MASK = np.arange(7) < np.array([4, 4, 0, 4, 4])[:, None]
HIDING = {
    "mask": (GROUPED, {"mask": KEY_HEAD_MASK}, {}),
    "mask [T, S]": (GROUPED, {"mask": LEFT_MASK}, {}),
    "bias": (GROUPED, {"bias": hiding(normal(2, 6, 5, 7), ~KEY_HEAD_MASK)}, {}),
    "lengths": (GROUPED, {"key_value_seq_lengths": np.array([0, 4])}, {}),
    "query lengths": (SQUARE, {"query_seq_lengths": np.array([3, 5])}, {"is_causal": True}),
    "causal": (GROUPED, {}, {"is_causal": True, "query_offset": -2}),
    "causal, traced": (GROUPED, {"query_offset": np.array([1, -3])}, {"is_causal": True}),
    "window": (GROUPED, {}, {"local_window_size": (1, 0), "query_offset": 4}),
    "segments": (GROUPED, SEGMENTS, {}),
    "bias and mask together": (
        GROUPED,
        {"bias": hiding(normal(2, 1, 5, 7), ~LEFT_MASK), "mask": (np.arange(7) >= 3)[None, :]},
        {"softcap": 1.5},
    ),
    "mask and causal together": (
        GROUPED,
        {"mask": np.arange(7) >= np.array([[[[2]]], [[[3]]]]), "query_offset": np.array([0, 1])},
        {"is_causal": True},
    ),
}
NEUTRAL = {
    "mask": np.ones((2, 6, 5, 7), bool),
    "bias": normal(2, 6, 5, 7),
    "query_offset": np.array([7, 7]),
    "query_seq_lengths": np.array([5, 5]),
    "key_value_seq_lengths": np.array([7, 7]),
    "query_segment_ids": np.zeros((2, 5), int),
    "key_value_segment_ids": np.zeros((2, 7), int),
}


def unattended(sizes, options, static):
    """Which query rows [..., T, N] see nothing, and which keys [..., S, K] are never seen."""
    inputs = inputs_of(sizes)
    weights = oracle.attention_weights(inputs["query"], inputs["key"], **options, **static)
    grouped = weights.reshape(*sizes.leading, sizes.K, -1, sizes.S)
    rows = np.swapaxes(weights.sum(-1) == 0, -1, -2)
    keys = np.swapaxes(grouped.max(-2) == 0, -1, -2)
    assert 0 < rows.mean() < 1
    assert 0 < keys.mean() < 1
    return rows, keys


def assert_empty_rows_are_zero(sizes, options, static, dtype=np.float32):
    rows, _ = unattended(sizes, options, static)
    inputs, cotangent = inputs_of(sizes, dtype), cotangent_of(sizes, dtype)
    _, output, gradients = run(sizes, options, static, inputs, cotangent, optimized=True)
    assert (output[rows] == 0).all()
    assert (gradients["query"][rows] == 0).all()
    if "bias" in gradients and gradients["bias"].shape == sizes.weights:
        assert (np.swapaxes(gradients["bias"], -2, -3)[rows] == 0).all()
    assert (output[~rows] != 0).all()
    for result in (output, *gradients.values()):
        assert np.isfinite(result).all()
    # Nothing of such a row reaches any gradient, however large its cotangent.
    cotangent[rows] = 6e4
    _, _, louder = run(sizes, options, static, inputs, cotangent, optimized=True)
    assert_same_bits(louder, gradients)


def assert_poison_changes_nothing(sizes, options, static, dtype=np.float32):
    _, keys = unattended(sizes, options, static)

    def outcome(poison):
        inputs = inputs_of(sizes, dtype)
        for name in ("key", "value"):
            inputs[name][keys] = poison
        return run(sizes, options, static, inputs, optimized=True)[1:]

    clean = outcome(0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(clean))
    assert all((clean[1][name][keys] == 0).all() for name in ("key", "value"))
    for poison in (np.nan, np.inf, -np.inf, jnp.finfo(dtype).max):
        assert_same_bits(outcome(poison), clean)


@pytest.mark.parametrize("case", HIDING.values(), ids=HIDING)
def test_attention_of_a_row_that_sees_nothing_is_zero(case):
    assert_empty_rows_are_zero(*case)


@pytest.mark.parametrize("case", HIDING.values(), ids=HIDING)
def test_attention_is_untouched_by_poison_that_nothing_sees(case):
    assert_poison_changes_nothing(*case)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_attention_ignores_the_unattended_in_low_precision(dtype):
    for sizes, options, static in HIDING.values():
        if sizes == GROUPED and "local_window_size" not in static:
            if "query_offset" in static:
                options = options | {"query_offset": np.array([static["query_offset"]] * 2)}
            case = sizes, NEUTRAL | options, {"is_causal": True}
            assert_empty_rows_are_zero(*case, dtype)
            assert_poison_changes_nothing(*case, dtype)


@pytest.mark.parametrize("how", ["mask", "bias", "key_value_seq_lengths"])
def test_attention_that_sees_nothing_at_all_has_no_gradient(how):
    nothing = {
        "mask": np.zeros((2, 6, 5, 7), bool),
        "bias": np.full((2, 6, 5, 7), -np.inf, np.float32),
        "key_value_seq_lengths": np.array([0, 0]),
    }
    options = NEUTRAL | {how: nothing[how]}
    inputs = inputs_of(GROUPED)
    inputs["key"][:], inputs["value"][:] = np.nan, np.inf
    _, output, gradients = run(GROUPED, options, {"is_causal": True}, inputs)
    assert all((result == 0).all() for result in (output, *gradients.values()))


def test_attention_is_untouched_by_poisoned_queries_beyond_their_length():
    options, static = {"query_seq_lengths": np.array([3, 4])}, {}
    beyond = np.arange(5) >= options["query_seq_lengths"][:, None]

    def outcome(poison):
        inputs = inputs_of(GROUPED)
        inputs["query"][beyond] = poison
        return run(GROUPED, options, static, inputs, optimized=True)[1:]

    clean = outcome(0)
    assert (clean[0][beyond] == 0).all()
    assert (clean[1]["query"][beyond] == 0).all()
    for poison in (np.nan, np.inf):
        assert_same_bits(outcome(poison), clean)


# Dropout.

DROPPING = Sizes((2,), 31, 37, 6, 3, 5, 41)  # values: the unit vectors, and 4 more columns
RATE = 0.25


@functools.cache
def dropped(seed):
    """Values, the output for them, and the dropped and full weights [B, N, T, S].

    The first S entries of value row s are the s-th unit vector, so the output shows the weights.
    """
    inputs = inputs_of(DROPPING)
    inputs["value"][..., :37] = np.eye(37, dtype=np.float32)[:, None]
    options = {"mask": bits(1, 6, 31, 37) | np.eye(31, 37, dtype=bool)}
    rng = {"dropout_rng": jax.random.key(seed)}
    _, output, _ = run(DROPPING, options | rng, {"dropout_rate": RATE}, inputs)
    full = oracle.attention_weights(inputs["query"], inputs["key"], **options)
    return inputs["value"], output, np.swapaxes(output[..., :37], -2, -3), full


def test_attention_dropout_zeroes_weights_at_its_rate_and_scales_the_rest():
    _, _, weights, full = dropped(0)
    kept, visible = weights != 0, full != 0
    np.testing.assert_allclose(weights, np.where(kept, full / (1 - RATE), 0), rtol=1e-5)
    deviation = math.sqrt(RATE * (1 - RATE) / visible.sum())
    assert abs(1 - kept[visible].mean() - RATE) <= 4 * deviation


def test_attention_dropout_is_on_the_weights():
    value, output, weights, _ = dropped(0)
    each_head = value.repeat(2, axis=-2)  # [B, S, N, Hv]
    assert_close(output, np.einsum("bnts,bsnh->btnh", weights.astype(np.float64), each_head), 1e-6)


def test_attention_dropout_preserves_the_mean():
    _, _, weights, _ = dropped(0)
    sums = weights.sum(-1)
    assert abs(sums.mean() - 1) <= 4 * sums.std() / math.sqrt(sums.size)


def test_attention_dropout_differs_along_every_axis_and_by_key():
    _, output, weights, full = dropped(0)
    for axis in range(4):
        one, other = (np.take(weights != 0, i, axis) for i in (0, 1))
        both = np.take(full != 0, 0, axis) & np.take(full != 0, 1, axis)
        assert (one != other)[both].mean() == pytest.approx(2 * RATE * (1 - RATE), abs=0.1)
    assert_same_bits(dropped.__wrapped__(0)[1], output)
    assert (dropped(1)[1] != output).any()


def test_attention_dropout_of_rate_zero_needs_no_rng():
    options = {"dropout_rng": jax.random.key(0)}
    with_rng = run(GROUPED, options, {"dropout_rate": 0.0})
    assert_same_bits(with_rng, run(GROUPED, {}, {}))


def test_attention_dropout_accepts_old_and_new_keys():
    for rng in (jax.random.key(0), jax.random.PRNGKey(0)):
        output = jax.eval_shape(
            functools.partial(dot_product_attention, dropout_rate=RATE),
            **inputs_of(PLAIN),
            dropout_rng=rng,
        )
        assert output.shape == (5, 6, 13)


def test_attention_dropout_is_differentiated_with_the_weights_it_dropped():
    with jax.enable_x64(True):
        options = {"dropout_rng": jax.random.key(3), "mask": HIDING["mask"][1]["mask"]}
        static = {"dropout_rate": RATE}
        inputs, cotangent = inputs_of(GROUPED, np.float64), cotangent_of(GROUPED, np.float64)
        _, _, gradients = run(GROUPED, options, static, inputs, cotangent)
        directions = {n: normal(*a.shape, seed=i) for i, (n, a) in enumerate(inputs.items(), 20)}
        expected = oracle.slope(
            lambda moved: np.sum(cotangent * run(GROUPED, options, static, moved)[1]),
            inputs,
            directions,
        )
    got = sum(np.sum(gradients[n] * directions[n]) for n in inputs)
    assert got == pytest.approx(expected, rel=1e-8)


def test_attention_dropout_keeps_poison_out():
    static = {"dropout_rate": RATE}
    options = HIDING["mask"][1] | {"dropout_rng": jax.random.key(0)}
    _, keys = unattended(*HIDING["mask"])
    outcomes = []
    for poison in (0, np.nan):
        inputs = inputs_of(GROUPED)
        inputs["key"][keys] = inputs["value"][keys] = poison
        outcomes.append(run(GROUPED, options, static, inputs, optimized=True)[1:])
    assert_same_bits(*outcomes)


# attention_weights.


@functools.cache
def compiled_stages(**static):
    def stages(query, key, options):
        return {
            stage: attention_weights(query, key, **options, **static, stage=stage)
            for stage in ("scores", "capped", "biased", "softmax")
        } | {"default": attention_weights(query, key, **options, **static)}

    return jax.jit(stages)


@pytest.mark.parametrize("case", ["everything", "two leading axes", "bias of -inf"])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_weights_equal_the_reference_at_every_stage(case, dtype):
    sizes, options, static = CASES[case]
    inputs = inputs_of(sizes, dtype)
    query, key = inputs["query"], inputs["key"]
    results = compiled_stages(**static)(query, key, options)
    assert_same_bits(results["default"], results["softmax"])
    del results["default"]
    for stage, got in results.items():
        expected = oracle.attention_weights(query, key, **options, **static, stage=stage)
        assert got.dtype == np.float32
        hidden = expected == -np.inf
        assert ((got == -np.inf) == hidden).all()
        assert_close(np.where(hidden, 0, got), np.where(hidden, 0, expected), 1e-6)


def test_weights_sum_to_one_or_to_zero():
    sizes, options, static = CASES["everything"]
    inputs = inputs_of(sizes)
    weights = compiled_stages(**static)(inputs["query"], inputs["key"], options)["softmax"]
    sums = np.asarray(weights).sum(-1)
    assert (np.abs(sums[sums != 0] - 1) <= 1e-6).all()
    assert 0 < (sums == 0).mean() < 1


def test_weights_and_their_gradient_are_untouched_by_poison_that_nothing_sees():
    sizes, options, _ = HIDING["mask"]
    _, keys = unattended(*HIDING["mask"])
    cotangent = normal(*sizes.weights)

    @jax.jit
    def outcome(query, key):
        weights, pull = jax.vjp(lambda q, k: attention_weights(q, k, **options), query, key)
        return weights, *pull(cotangent)

    outcomes = []
    for poison in (0, np.nan):
        inputs = inputs_of(sizes)
        inputs["key"][keys] = poison
        outcomes.append(jax.tree.map(np.asarray, outcome(inputs["query"], inputs["key"])))
    assert_same_bits(*outcomes)


def test_weights_are_float64_for_float64():
    sizes, options, static = CASES["everything"]
    inputs = inputs_of(sizes, np.float64)
    with jax.enable_x64(True):
        weights = compiled_stages(**static)(inputs["query"], inputs["key"], options)["softmax"]
        expected = oracle.attention_weights(inputs["query"], inputs["key"], **options, **static)
        assert weights.dtype == np.float64
        assert_close(weights, expected, 1e-14)


# Transforms.

BATCH = (
    {**inputs_of(DEVICES), "bias": normal(8, 6, 5, 7)},
    {
        "mask": bits(8, 1, 5, 7),
        "query_offset": np.array([2, 0, 3, -1, 1, 6, 2, 4]),
        "query_seq_lengths": np.array([5, 4, 5, 3, 5, 5, 2, 5]),
        "key_value_seq_lengths": np.array([7, 6, 5, 7, 4, 3, 7, 2]),
    },
    cotangent_of(DEVICES),
)


def causal(inputs, options, cotangent, **how):
    return evaluate(inputs, options, cotangent, is_causal=True, **how)


def scanned(*batch):
    return jax.lax.scan(lambda carry, row: (carry, causal(*row)), None, batch)[1]


def sharded(*batch):
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    specs = PartitionSpec("data")
    return jax.shard_map(causal, mesh=mesh, in_specs=specs, out_specs=specs)(*batch)


TRANSFORMED = {
    "vmap": jax.jit(jax.vmap(causal)),
    "scan": jax.jit(scanned),
    "remat": jax.jit(functools.partial(causal, wrap=jax.checkpoint)),
    "pmap": jax.pmap(causal),
    "shard_map": jax.jit(sharded),
}


@pytest.fixture(scope="module")
def batched():
    inputs, options, _ = BATCH
    output, gradients = jax.jit(causal)(*BATCH)
    assert_close(output, oracle.attention(**inputs, **options, is_causal=True), 1e-6)
    return output, gradients


@pytest.mark.parametrize("transformed", TRANSFORMED.values(), ids=TRANSFORMED)
def test_attention_and_its_gradient_are_the_same_under(transformed, batched):
    got = transformed(*BATCH)
    jax.tree.map(functools.partial(assert_close, tolerance=1e-6), got, batched)


def test_attention_derivative_is_the_same_forward_as_backward(batched):
    inputs, options, cotangent = BATCH
    directions = {n: normal(*a.shape, seed=i) for i, (n, a) in enumerate(inputs.items(), 20)}

    @jax.jit
    def push(inputs, directions, options):
        def attend(inputs):
            return dot_product_attention(**inputs, **options, is_causal=True)

        return jax.jvp(attend, (inputs,), (directions,))[1]

    forward = np.sum(np.asarray(push(inputs, directions, options), np.float64) * cotangent)
    backward = sum(np.sum(np.asarray(batched[1][n], np.float64) * directions[n]) for n in inputs)
    assert forward == pytest.approx(backward, rel=1e-5)


def test_attention_called_eagerly_takes_numpy_and_python_numbers():
    lengths = {"query_seq_lengths": np.array([4, 5]), "key_value_seq_lengths": 6}
    options = {"query_offset": np.array([2, -1]), **lengths, "is_causal": True}
    inputs = inputs_of(GROUPED)
    output = dot_product_attention(**inputs, **options)
    assert_close(output, oracle.attention(**inputs, **options), 1e-6)


def test_attention_scanned_over_queries_is_causal_attention():
    inputs = inputs_of(SQUARE)

    @jax.jit
    def decode(query, key, value):
        def step(position, row):
            output = dot_product_attention(
                row[:, None], key, value, is_causal=True, query_offset=position
            )
            return position + 1, output[:, 0]

        return jnp.moveaxis(jax.lax.scan(step, 0, jnp.moveaxis(query, 1, 0))[1], 0, 1)

    assert_close(decode(**inputs), oracle.attention(**inputs, is_causal=True), 1e-6)


# Wrong calls. Each row: what is passed, the error (None where the contract leaves open which of
# the two it is), and what its message must name.


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


WRONG = [
    ({"query": zeros(5, 11)}, ShapeError, "query", (5, 11)),
    ({"key": zeros(7, 11)}, ShapeError, "key", (7, 11)),
    ({"value": zeros(7, 13)}, ShapeError, "value", (7, 13)),
    ({"key": zeros(7, 3, 11)}, ShapeError, "key", (7, 3, 11)),
    ({"key": zeros(2, 7, 3, 17)}, ShapeError, "key", 17),
    ({"value": zeros(2, 7, 6, 13)}, ShapeError, "value", 6),
    ({"value": zeros(2, 8, 3, 13)}, ShapeError, "value", 8),
    ({"query": zeros(2, 5, 7, 11)}, ShapeError, "query", 7),
    ({"query": zeros(2, 5, 2, 11)}, ShapeError, "query", 2),
    ({"query": zeros(3, 5, 6, 11)}, ShapeError, "query", 3),
    ({"key": zeros(1, 7, 3, 11)}, ShapeError, "key", 1),
    ({"value": zeros(1, 7, 3, 13)}, ShapeError, "value", 1),
    (inputs_of(GROUPED, np.int32), ShapeError, "query", "int32"),
    ({"key": zeros(2, 7, 3, 11, dtype=jnp.bfloat16)}, ShapeError, "key", "bfloat16"),
    ({"value": zeros(2, 7, 3, 13, dtype=np.float16)}, ShapeError, "value", "float16"),
    ({"mask": zeros(2, 5, 7, dtype=bool)}, ShapeError, "mask[:, None]", (2, 5, 7)),
    ({"mask": zeros(6, 5, 7, dtype=bool)}, ShapeError, "mask", (6, 5, 7)),
    ({"mask": zeros(1, 2, 6, 5, 7, dtype=bool)}, ShapeError, "mask", (1, 2, 6, 5, 7)),
    ({"mask": zeros(2, 1, 5, 8, dtype=bool)}, ShapeError, "mask", 8),
    ({"mask": zeros(2, 3, 5, 7, dtype=bool)}, ShapeError, "mask", 3),
    ({"mask": zeros(7, 5, dtype=bool)}, ShapeError, "mask", (7, 5)),
    ({"mask": zeros(7, dtype=bool)}, ShapeError, "mask", 7),
    ({"mask": zeros(5, 7)}, ShapeError, "mask", "float32"),
    ({"mask": zeros(5, 7, dtype=np.int8)}, ShapeError, "mask", "int8"),
    ({"bias": zeros(2, 5, 7)}, ShapeError, "bias[:, None]", (2, 5, 7)),
    ({"bias": zeros(2, 6, 1, 5)}, ShapeError, "bias", 5),
    ({"bias": zeros(5, 7, dtype=bool)}, ShapeError, "bias", "bool"),
    ({"bias": zeros(5, 7, dtype=np.int32)}, ShapeError, "bias", "int32"),
    ({"is_causal": True}, None, "query_offset", (5, 7)),
    ({"local_window_size": 2}, None, "query_offset", (5, 7)),
    ({"is_causal": True, "query_offset": 0.5}, ShapeError, "query_offset", "float32"),
    ({"is_causal": True, "query_offset": zeros(2)}, ShapeError, "query_offset", "float32"),
    ({"is_causal": True, "query_offset": zeros(3, dtype=int)}, ShapeError, "query_offset", 3),
    ({"is_causal": True, "query_offset": zeros(1, 2, dtype=int)}, ShapeError, "query_offset", 2),
    ({"query_seq_lengths": zeros(3, dtype=int)}, ShapeError, "query_seq_lengths", 3),
    ({"query_seq_lengths": zeros(2)}, ShapeError, "query_seq_lengths", "float32"),
    ({"query_seq_lengths": 6}, None, "query_seq_lengths", 6),
    ({"query_seq_lengths": np.array([5, -1])}, None, "query_seq_lengths", -1),
    ({"key_value_seq_lengths": -2}, None, "key_value_seq_lengths", -2),
    ({"key_value_seq_lengths": np.array([8, 7])}, None, "key_value_seq_lengths", 8),
    ({"key_value_seq_lengths": np.int64(9)}, None, "key_value_seq_lengths", 9),
    ({"query_segment_ids": SEGMENTS["query_segment_ids"]}, None, "key_value_segment_ids", ""),
    ({"key_value_segment_ids": SEGMENTS["key_value_segment_ids"]}, None, "query_segment_ids", ""),
    (SEGMENTS | {"query_segment_ids": zeros(2, 7, dtype=int)}, None, "query_segment_ids", 7),
    (SEGMENTS | {"key_value_segment_ids": zeros(7, dtype=int)}, None, "key_value_segment_ids", 7),
    (SEGMENTS | {"query_segment_ids": zeros(2, 5)}, None, "query_segment_ids", "float32"),
    ({"local_window_size": -1, "query_offset": 0}, None, "local_window_size", -1),
    ({"local_window_size": (1, -3), "query_offset": 0}, None, "local_window_size", -3),
    ({"local_window_size": (1, 2, 4), "query_offset": 0}, None, "local_window_size", 4),
    ({"local_window_size": 1.5, "query_offset": 0}, None, "local_window_size", 1.5),
    ({"softcap": 0.0}, ConfigError, "softcap", 0.0),
    ({"softcap": -2.0}, ConfigError, "softcap", -2.0),
    ({"softcap": math.inf}, ConfigError, "softcap", "inf"),
    ({"scale": math.nan}, ConfigError, "scale", "nan"),
    ({"implementation": "flash"}, ConfigError, "implementation", "flash"),
    ({"dropout_rate": 0.5}, ConfigError, "dropout_rng", 0.5),
    ({"dropout_rate": -0.1, "dropout_rng": True}, ConfigError, "dropout_rate", -0.1),
    ({"dropout_rate": 1.0, "dropout_rng": True}, ConfigError, "dropout_rate", 1.0),
    ({"dropout_rate": 1.5, "dropout_rng": True}, ConfigError, "dropout_rate", 1.5),
]
ONLY_DROPOUT_AND_VALUE = ("value", "dropout_rate", "implementation")


def describe(wrong):
    return "-".join(
        f"{name}={getattr(value, 'shape', value)}" for name, value in wrong[0].items()
    ).replace(" ", "")


def assert_refused(function, arrays, wrong):
    """Refused when traced and when called, in both before anything is computed from the arrays."""
    arguments, error, name, got = wrong
    arguments = arrays | arguments
    if arguments.get("dropout_rng"):
        arguments["dropout_rng"] = jax.random.key(0)
    traced = {n: arguments.pop(n) for n in arrays}
    got = r"\D+".join(str(g) for g in got) if isinstance(got, tuple) else re.escape(str(got))
    with pytest.raises(error or (ShapeError, ConfigError)) as caught:
        jax.eval_shape(functools.partial(function, **arguments), **traced)
    message = str(caught.value)
    assert name in message
    assert re.search(rf"(?<!\d){got}(?!\d)", message), message

    if np.issubdtype(traced["query"].dtype, np.floating):
        traced["query"] = jnp.asarray(np.full_like(traced["query"], np.nan))
    # Under debug_nans whatever is computed from such a query raises a FloatingPointError.
    with jax.debug_nans(True), pytest.raises(type(caught.value), match=re.escape(message)):
        function(**arguments, **traced)


@pytest.mark.parametrize("wrong", WRONG, ids=describe)
def test_attention_refuses(wrong):
    assert_refused(dot_product_attention, inputs_of(GROUPED), wrong)


@pytest.mark.parametrize(
    "wrong", [w for w in WRONG if not w[0].keys() & set(ONLY_DROPOUT_AND_VALUE)], ids=describe
)
def test_weights_refuse(wrong):
    arrays = inputs_of(GROUPED)
    del arrays["value"]
    assert_refused(attention_weights, arrays, wrong)


def test_weights_refuse_an_unknown_stage():
    wrong = ({"stage": "logits"}, ConfigError, "stage", "logits")
    assert_refused(attention_weights, dict(list(inputs_of(GROUPED).items())[:2]), wrong)
