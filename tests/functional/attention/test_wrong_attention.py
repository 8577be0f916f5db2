"""Wrong calls of attention, of its weights and masks, and of the choice of an implementation.

They are refused before anything is computed, and under tracing alike.
"""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import functional as F
from jaxformer.errors import ConfigError
from tests.functional.attention.attention_cases import GROUPED, SEGMENTS, bits, inputs_of
from tests.functional.wrong_calls import (
    FLOAT8,
    OBJECTS,
    Traced,
    assert_refused,
    described,
    ints,
    ones,
    rows_of,
)

ATTENTION = inputs_of(GROUPED)  # query [2, 5, 6, 11], key [2, 7, 3, 11], value [2, 7, 3, 13]
SCORED = {name: ATTENTION[name] for name in ("query", "key")}
KEY = jax.random.key(0)

# A right call of each function, which the wrong ones differ from in a few arguments.
RIGHT = {
    "attention_implementation": ATTENTION,
    "attention_mask": {**SCORED, "mask": bits(5, 7)},
    "attention_weights": SCORED,
    "dot_product_attention": ATTENTION,
    "sharded_attention": ATTENTION,
}


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


# Of what may be attended to, and how it is scored: these options attention_mask takes, too.
STRUCTURE = [
    ({"query": None}, "query", "must be an array of numbers"),
    ({"query": OBJECTS}, "query"),
    ({"query": zeros(5, 11)}, "query", "[..., T, N, H]", "(5, 11)"),
    ({"query": inputs_of(GROUPED, np.int32)["query"]}, "query", "int32"),
    ({"query": zeros(2, 5, 6, 11).astype(FLOAT8)}, "query"),
    ({"query": zeros(2, 5, 6, 11, dtype=np.complex64)}, "query"),
    ({"query": zeros(2, 5, 7, 11)}, "query", "N=7", "K=3"),
    ({"query": zeros(2, 5, 2, 11)}, "query", "N=2", "K=3"),
    ({"query": zeros(3, 5, 6, 11)}, "query", "(3,)"),
    ({"query": zeros(2, 5, 6, 0), "key": zeros(2, 7, 3, 0)}, "query", "H", "(2, 5, 6, 0)"),
    ({"key": "key"}, "key", "must be an array of numbers, got"),
    ({"key": zeros(7, 11)}, "key", "(7, 11)"),
    ({"key": zeros(7, 3, 11)}, "key", "(7, 3, 11)", "jnp.broadcast_to"),
    ({"key": zeros(2, 7, 3, 17)}, "key", "H=11", "(2, 7, 3, 17)"),
    ({"key": zeros(1, 7, 3, 11)}, "key", "(1, 7, 3, 11)"),
    ({"key": zeros(2, 7, 3, 11, dtype=jnp.bfloat16)}, "key", "bfloat16"),
    ({"mask": "causal"}, "mask", "'causal'"),
    ({"mask": zeros(2, 5, 7, dtype=bool)}, "mask", "mask[:, None]", "(2, 5, 7)"),
    ({"mask": zeros(6, 5, 7, dtype=bool)}, "mask", "(6, 5, 7)"),
    ({"mask": zeros(1, 2, 6, 5, 7, dtype=bool)}, "mask", "(1, 2, 6, 5, 7)"),
    ({"mask": zeros(2, 1, 5, 8, dtype=bool)}, "mask", "(2, 1, 5, 8)"),
    ({"mask": zeros(2, 3, 5, 7, dtype=bool)}, "mask", "(2, 3, 5, 7)"),
    ({"mask": zeros(7, 5, dtype=bool)}, "mask", "7, 5)"),
    ({"mask": zeros(7, dtype=bool)}, "mask", "(7,)"),
    ({"mask": zeros(5, 7)}, "mask", "got dtype float32; True = attend"),
    ({"mask": zeros(5, 7, dtype=np.int8)}, "mask", "int8"),
    ({"bias": zeros(2, 5, 7)}, "bias", "bias[:, None]", "(2, 5, 7)"),
    ({"bias": zeros(2, 6, 1, 5)}, "bias", "(2, 6, 1, 5)"),
    ({"bias": zeros(5, 7, dtype=bool)}, "bias", "bool"),
    ({"bias": zeros(5, 7, dtype=np.int32)}, "bias", "int32"),
    ({"is_causal": True}, "query_offset", "T=5 and S=7"),
    ({"is_causal": "False"}, "is_causal", "ConfigError", "'False'"),
    ({"is_causal": 2}, "is_causal", "ConfigError", "got 2"),
    ({"is_causal": None, "query_offset": 0}, "is_causal"),
    ({"is_causal": True, "query_offset": 0.5}, "query_offset", "float32"),
    ({"is_causal": True, "query_offset": zeros(2)}, "query_offset", "float32"),
    ({"is_causal": True, "query_offset": ints(3)}, "query_offset", "(3,)"),
    ({"is_causal": True, "query_offset": ints(1, 2)}, "query_offset", "(1, 2)"),
    ({"is_causal": True, "query_offset": True}, "query_offset", "bool"),
    ({"is_causal": True, "query_offset": 2**31}, "query_offset", str(2**31)),
    ({"is_causal": True, "query_offset": -(2**31)}, "query_offset", str(-(2**31))),
    ({"is_causal": True, "query_offset": np.array([2**40] * 2)}, "query_offset", str(2**40)),
    ({"query_offset": 0.5}, "query_offset", "float32"),
    ({"query_seq_lengths": ints(3)}, "query_seq_lengths", "(3,)"),
    ({"query_seq_lengths": zeros(2)}, "query_seq_lengths", "float32"),
    ({"query_seq_lengths": 1.0}, "query_seq_lengths"),
    ({"query_seq_lengths": 6}, "query_seq_lengths", "0 .. 5, got 6"),
    ({"query_seq_lengths": np.array([5, -1])}, "query_seq_lengths", "-1"),
    ({"query_seq_lengths": [3, 99]}, "query_seq_lengths", "99"),
    ({"query_seq_lengths": "3"}, "query_seq_lengths", "'3'"),
    ({"key_value_seq_lengths": -2}, "key_value_seq_lengths", "-2"),
    ({"key_value_seq_lengths": np.array([8, 7])}, "key_value_seq_lengths", "[8 7]"),
    ({"key_value_seq_lengths": np.int64(9)}, "key_value_seq_lengths", "got 9"),
    ({"key_value_seq_lengths": [[1], [2, 3]]}, "key_value_seq_lengths", "[2, 3]"),
    ({"query_segment_ids": SEGMENTS["query_segment_ids"]}, "key_value_segment_ids",
     "got only query_segment_ids"),
    ({"key_value_segment_ids": SEGMENTS["key_value_segment_ids"]}, "query_segment_ids",
     "got only key_value_segment_ids"),
    (SEGMENTS | {"query_segment_ids": ints(2, 7)}, "query_segment_ids", "(2, 7)"),
    (SEGMENTS | {"query_segment_ids": zeros(2, 5)}, "query_segment_ids", "float32"),
    (SEGMENTS | {"query_segment_ids": np.full((2, 5), 2**32)}, "query_segment_ids", str(2**32)),
    (SEGMENTS | {"key_value_segment_ids": ints(7)}, "key_value_segment_ids", "(7,)"),
    ({"local_window_size": 2}, "query_offset", "T=5 and S=7"),
    ({"local_window_size": -1, "query_offset": 0}, "local_window_size", "got -1"),
    ({"local_window_size": (1, -3), "query_offset": 0}, "local_window_size", "-3"),
    ({"local_window_size": (1, 2, 4), "query_offset": 0}, "local_window_size", "(1, 2, 4)"),
    ({"local_window_size": [1, 2], "query_offset": 0}, "local_window_size"),
    ({"local_window_size": 1.5, "query_offset": 0}, "local_window_size", "1.5"),
    ({"local_window_size": 2**31, "query_offset": 0}, "local_window_size", str(2**31)),
]  # fmt: skip
SCORES = [
    ({"softcap": 0.0}, "softcap", "ConfigError", "got 0.0"),
    ({"softcap": -2.0}, "softcap", "ConfigError", "got -2.0"),
    ({"softcap": math.inf}, "softcap", "ConfigError", "got inf"),
    ({"softcap": "2"}, "softcap", "ConfigError", "'2'"),
    ({"softcap": True}, "softcap"),
    ({"scale": math.nan}, "scale", "ConfigError", "got nan"),
    ({"scale": math.inf}, "scale"),
    ({"scale": True}, "scale", "ConfigError", "True"),
    ({"scale": 1e39}, "scale", "ConfigError", "1e+39"),
    ({"scale": 10**400}, "scale"),
    ({"scale": 1j}, "scale"),
    ({"scale": "1"}, "scale"),
    ({"scale": zeros(2)}, "scale", "ConfigError", "array([0., 0.], dtype=float32)"),
    ({"scale": Traced(zeros(2))}, "scale", "ConfigError", "float32[2]"),
]

CALLS = {
    "dot_product_attention": [
        *STRUCTURE,
        *SCORES,
        ({"value": [[1.0], [2.0, 3.0]]}, "value", "must be an array of numbers, got"),
        ({"value": zeros(7, 13)}, "value", "(7, 13)"),
        ({"value": zeros(2, 7, 6, 13)}, "value", "K=3", "(2, 7, 6, 13)"),
        ({"value": zeros(2, 8, 3, 13)}, "value", "S=7", "(2, 8, 3, 13)"),
        ({"value": zeros(1, 7, 3, 13)}, "value", "(1, 7, 3, 13)"),
        ({"value": zeros(2, 7, 3, 13, dtype=np.float16)}, "value", "float16"),
        ({"key": zeros(2, 7, 0, 11), "value": zeros(2, 7, 0, 13)}, "key"),
        ({"implementation": "flash"}, "implementation", "ConfigError", "'flash'"),
        ({"implementation": ["dense"]}, "implementation", "ConfigError", "['dense']"),
        ({"implementation": 3}, "implementation"),
        ({"dropout_rate": 0.5}, "dropout_rng", "ConfigError", "0.5"),
        ({"dropout_rate": -0.1, "dropout_rng": KEY}, "dropout_rate", "ConfigError", "-0.1"),
        ({"dropout_rate": 1.0, "dropout_rng": KEY}, "dropout_rate", "ConfigError", "got 1.0"),
        ({"dropout_rate": 1.5, "dropout_rng": KEY}, "dropout_rate", "ConfigError", "1.5"),
        ({"dropout_rate": "0.5"}, "dropout_rate", "ConfigError", "'0.5'"),
        ({"dropout_rate": KEY}, "dropout_rate", "ConfigError", "a number or an array of one"),
        ({"dropout_rate": None}, "dropout_rate"),
        ({"dropout_rate": 0.5, "dropout_rng": 7}, "dropout_rng", "ShapeError", "got 7"),
        ({"dropout_rate": 0.5, "dropout_rng": zeros(2)}, "dropout_rng", "ShapeError", "float32"),
        ({"dropout_rng": "key"}, "dropout_rng"),
        ({"dropout_rng": jax.random.split(KEY)}, "dropout_rng"),
        ({"return_residual": "both"}, "return_residual"),
    ],
    "attention_weights": [
        *STRUCTURE,
        *SCORES,
        ({"stage": None}, "stage"),
        ({"stage": "logits"}, "stage", "ConfigError", "'logits'"),
    ],
    "attention_mask": STRUCTURE,
    "attention_implementation": [
        ({"query": None}, "query"),
        ({"query": "query"}, "query"),
        ({"query": ones(3)}, "query"),
        ({"key": OBJECTS}, "key"),
        ({"value": jax.ShapeDtypeStruct((2, 7, 3, 13), np.int32)}, "value"),
        ({"mask": "causal"}, "mask"),
        ({"bias": 3}, "bias"),
        ({"platform": "gpu"}, "platform", "must be 'cpu', 'cuda', ", "got 'gpu'"),
        ({"platform": ["cpu"]}, "platform"),
        ({"scale": "1"}, "scale"),
        ({"scale": jax.ShapeDtypeStruct((2,), np.float32)}, "scale", "float32[2]"),
        ({"dropout_rate": 2.0}, "dropout_rate"),
    ],
    "sharded_attention": [
        ({"query": OBJECTS}, "query"),
        ({"key": ones(3, 7, 3, 11), "value": ones(3, 7, 3, 13)}, "key"),
        ({"value": ones(2, 6, 3, 13)}, "value"),
        ({"batch_axes": "data"}, "batch_axes"),
        ({"head_axes": (3,)}, "head_axes"),
        ({"scale": "1"}, "scale"),
    ],
}


@pytest.mark.parametrize("row", rows_of(CALLS), ids=described)
def test_a_wrong_call_is_refused_by_name(row):
    assert_refused(RIGHT, row)


def has_numeric_arrays(wrong):
    arrays = [wrong[name] for name in ("query", "key", "value") if name in wrong]
    return all(type(array) is np.ndarray and array.dtype != object for array in arrays)


ROWS = [
    (name, *row)
    for name in ("dot_product_attention", "attention_weights")
    for row in CALLS[name]
    if has_numeric_arrays(row[0])
]


@pytest.mark.parametrize("row", ROWS, ids=described)
def test_attention_refuses_alike_under_tracing_and_before_it_computes(row):
    name, wrong, *_ = row
    options = RIGHT[name] | wrong
    arrays = {array: options.pop(array) for array in RIGHT[name]}
    attend = functools.partial(getattr(F, name), **options)
    with pytest.raises(ValueError) as refused:
        jax.eval_shape(attend, **arrays)
    if np.issubdtype(arrays["query"].dtype, np.floating):
        arrays["query"] = jnp.asarray(np.full_like(arrays["query"], np.nan))
    # Under debug_nans whatever is computed from such a query raises a FloatingPointError.
    with jax.debug_nans(True), pytest.raises(refused.type, match=re.escape(str(refused.value))):
        attend(**arrays)


def test_attention_takes_an_offset_that_nothing_needs():
    arrays, options = ATTENTION, {"local_window_size": (None, None)}
    for offset in (3, np.array([2, 5])):
        output = F.dot_product_attention(**arrays, **options, query_offset=offset)
        np.testing.assert_array_equal(output, F.dot_product_attention(**arrays))


def test_attention_refuses_options_that_are_traced():
    attend = functools.partial(F.dot_product_attention, **ATTENTION)
    for name in ("softcap", "dropout_rate", "is_causal"):
        with pytest.raises(ConfigError, match=rf"{name} must be .*, got .*Tracer"):
            jax.jit(lambda value, name=name: attend(**{name: value}))(0.5)
