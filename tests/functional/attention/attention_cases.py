"""Inputs, options and comparisons that the tests of attention share."""

import functools
import math
from typing import NamedTuple

import jax
import numpy as np

from jaxformer.functional import dot_product_attention
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


def directions_of(inputs, dtype=np.float32):
    """In which inputs are moved, to compare slopes with gradients."""
    return {
        n: normal(*a.shape, seed=i).astype(dtype) for i, (n, a) in enumerate(inputs.items(), 20)
    }


def evaluate(inputs, options, cotangent, wrap=lambda f: f, **static):
    """Returns the output, and the gradients of its inner product with the cotangent."""

    def attend(inputs):
        return dot_product_attention(**inputs, **options, **static)

    output, pull = jax.vjp(wrap(attend), inputs)
    return output, *pull(cotangent)


# All that run on this machine.
IMPLEMENTATIONS = ("dense", "chunked")
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
    for result, value in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert result.dtype == value.dtype
        assert result.shape == value.shape
        assert result.tobytes() == value.tobytes()


def assert_equals_the_reference(
    sizes, options, static, inputs=None, forward=1e-6, backward=1e-5, optimized=False
):
    inputs, output, gradients = run(sizes, options, static, inputs, optimized=optimized)
    cotangent = cotangent_of(sizes)
    assert output.dtype == inputs["query"].dtype
    structure = {n: o for n, o in options.items() if n != "bias"} | static
    structure.pop("implementation", None)
    assert_close(output, oracle.attention(**inputs, **structure), forward)

    directions = directions_of(inputs)
    expected = oracle.slope(
        lambda moved: np.sum(cotangent * oracle.attention(**moved, **structure)),
        inputs,
        directions,
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
    "window ahead": (SQUARE, {}, {"local_window_size": (0, 3)}),
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


def merged(case):
    """The same claim with every argument given, in one shape, so that it compiles only once."""
    sizes, options, static = case
    options = NEUTRAL | options
    for name in ("mask", "bias"):
        options[name] = np.array(np.broadcast_to(options[name], sizes.weights))
    if "query_offset" in static:
        options["query_offset"] = np.array([static["query_offset"]] * 2)
    return sizes, options, {"is_causal": True}


MERGED = {
    name: merged(case)
    for name, case in HIDING.items()
    if case[0] == GROUPED and "local_window_size" not in case[2]
}
REST = {name: case for name, case in HIDING.items() if name not in MERGED}


def unattended(sizes, options, static):
    """Which query rows [..., T, N] see nothing, and which keys [..., S, K] are never seen."""
    inputs = inputs_of(sizes)
    structure = {n: o for n, o in static.items() if n != "implementation"}
    weights = oracle.attention_weights(inputs["query"], inputs["key"], **options, **structure)
    grouped = weights.reshape(*sizes.leading, sizes.K, -1, sizes.S)
    rows = np.swapaxes(weights.sum(-1) == 0, -1, -2)
    keys = np.swapaxes(grouped.max(-2) == 0, -1, -2)
    assert 0 < rows.mean() < 1
    assert 0 < keys.mean() < 1
    return rows, keys
