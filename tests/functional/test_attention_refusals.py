"""Wrong calls of attention, and what their errors say."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional import attention_weights, dot_product_attention
from tests.functional.attention_cases import (
    GROUPED,
    SEGMENTS,
    inputs_of,
)

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
    ({"query_offset": 0.5}, ShapeError, "query_offset", "float32"),
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
    ({"dropout_rate": "0.5"}, ConfigError, "dropout_rate", "'0.5'"),
    ({"dropout_rate": 0.5, "dropout_rng": 7}, ShapeError, "dropout_rng", 7),
    ({"dropout_rate": 0.5, "dropout_rng": zeros(2)}, ShapeError, "dropout_rng", "float32"),
    ({"implementation": ["dense"]}, ConfigError, "implementation", "['dense']"),
    ({"is_causal": "False"}, ConfigError, "is_causal", "'False'"),
    ({"is_causal": 2}, ConfigError, "is_causal", 2),
    ({"scale": True}, ConfigError, "scale", "True"),
    ({"scale": 1e39}, ConfigError, "scale", "1e+39"),
    ({"scale": zeros()}, ConfigError, "multiply the query", "array(0., dtype=float32)"),
    ({"softcap": "2"}, ConfigError, "softcap", "'2'"),
    ({"query": zeros(2, 5, 6, 0), "key": zeros(2, 7, 3, 0)}, ShapeError, "H", (2, 5, 6, 0)),
    ({"query_seq_lengths": [3, 99]}, ShapeError, "query_seq_lengths", 99),
    ({"query_seq_lengths": "3"}, ShapeError, "query_seq_lengths", "'3'"),
    ({"key_value_seq_lengths": [[1], [2, 3]]}, ShapeError, "key_value_seq_lengths", "[2, 3]"),
    ({"local_window_size": 2**31, "query_offset": 0}, ShapeError, "local_window_size", 2**31),
    ({"is_causal": True, "query_offset": True}, ShapeError, "query_offset", "bool"),
    ({"is_causal": True, "query_offset": 2**31}, ShapeError, "query_offset", 2**31),
    ({"is_causal": True, "query_offset": -(2**31)}, ShapeError, "query_offset", -(2**31)),
    ({"is_causal": True, "query_offset": np.array([2**40] * 2)}, ShapeError, "query_offset", 2**40),
    (
        SEGMENTS | {"query_segment_ids": np.full((2, 5), 2**32)},
        ShapeError,
        "query_segment_ids",
        2**32,
    ),
    ({"mask": "causal"}, ShapeError, "mask", "'causal'"),
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
    if arguments.get("dropout_rng") is True:
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


def test_attention_takes_an_offset_that_nothing_needs():
    arrays, options = inputs_of(GROUPED), {"local_window_size": (None, None)}
    for offset in (3, np.array([2, 5])):
        output = dot_product_attention(**arrays, **options, query_offset=offset)
        np.testing.assert_array_equal(output, dot_product_attention(**arrays))


def test_attention_refuses_what_is_no_array():
    arrays = inputs_of(GROUPED)
    for name, value in (("query", None), ("key", "key"), ("value", [[1.0], [2.0, 3.0]])):
        with pytest.raises(ShapeError, match=rf"{name} must be an array of numbers, got"):
            dot_product_attention(**arrays | {name: value})
    for name in arrays:
        masked = np.ma.masked_less(arrays[name], 0)
        with pytest.raises(
            ShapeError, match=rf"{name} must be a plain array, got a NumPy masked array"
        ):
            dot_product_attention(**arrays | {name: masked})


def test_attention_refuses_options_that_are_traced():
    attend = functools.partial(dot_product_attention, **inputs_of(GROUPED))
    for name in ("scale", "softcap", "dropout_rate", "is_causal"):
        with pytest.raises(ConfigError, match=rf"{name} must be .*, got .*Tracer"):
            jax.jit(lambda value, name=name: attend(**{name: value}))(0.5)


def test_wrong_calls_are_many():
    assert len(WRONG) >= 40


def test_weights_refuse_an_unknown_stage():
    wrong = ({"stage": "logits"}, ConfigError, "stage", "logits")
    assert_refused(attention_weights, dict(list(inputs_of(GROUPED).items())[:2]), wrong)
