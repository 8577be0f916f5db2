"""Wrong calls of masks, positions and their biases."""

import math

import numpy as np
import pytest

from jaxformer import functional as F
from tests.functional.wrong_calls import (
    FLOAT8,
    HUGE,
    OBJECTS,
    Traced,
    assert_refused,
    described,
    ints,
    ones,
    rows_of,
)

TABLES = (ones(3, 2), ones(3, 2))

LLAMA = F.Llama3Scaling(8.0, 1.0, 4.0, 8192)
YARN = F.YarnScaling(4.0, 2048)
LONGROPE = F.LongropeScaling((1.0, 2.0), 4.0, 64)


def masks_of(*shapes):
    return {"masks": tuple(ones(*shape, dtype=bool) for shape in shapes)}


# A right call of each function, which the wrong ones differ from in a few arguments.
RIGHT = {
    "alibi_bias": {"num_heads": 2, "num_queries": 3, "num_keys": 5},
    "alibi_slopes": {"num_heads": 2},
    "apply_rotary": {"x": ones(2, 3, 2, 4), "tables": TABLES, "layout": "half"},
    "causal": {"num_queries": 3, "num_keys": 5},
    "combine": {"masks": (ones(3, 5, dtype=bool), ones(2, 1, 3, 5, dtype=bool))},
    "padding": {"lengths": np.array([1, 3]), "num_keys": 3},
    "relative_position_buckets": {"num_queries": 3, "num_keys": 5},
    "rotary_tables": {"positions": 3, "head_dim": 4},
    "segments": {"query_ids": ints(2, 3), "key_value_ids": ints(2, 5)},
    "sinusoidal_positions": {"positions": 3, "d_model": 4},
    "window": {"num_queries": 3, "num_keys": 5, "size": 2},
}

BASES = [
    *(
        ({"base": base}, "base", "ConfigError", "must be positive and finite")
        for base in (0, 0.0, -1.0, math.nan, math.inf)
    ),
    *(({"base": base}, "base") for base in ("1", None, True, 1j, 10**400, Traced(1e4), ones(2))),
]
SCALINGS = [
    ({"factor": 2.0}, "scaling", "must be a LinearScaling", "YarnScaling", "dict"),
    (F.LinearScaling(0.5), "factor", "of LinearScaling", "at least 1", "got 0.5"),
    (F.LinearScaling(math.inf), "factor", "of LinearScaling", "finite", "got inf"),
    (F.LinearScaling(math.nan), "factor", "of LinearScaling", "finite", "got nan"),
    (F.LinearScaling("2"), "factor", "of LinearScaling", "got '2'"),
    (F.LinearScaling(None), "factor", "of LinearScaling", "got None"),
    (F.LinearScaling(10**400), "factor"),
    (F.LinearScaling(np.complex64(2)), "factor"),
    (F.LinearScaling(Traced(2.0)), "factor", "under jit, make scaling a static argument"),
    (LLAMA._replace(low_freq_factor=0.0), "low_freq_factor", "more than 0"),
    (LLAMA._replace(low_freq_factor=4.0), "low_freq_factor",
     "of Llama3Scaling must be less than high_freq_factor", "4.0 and 4.0"),
    (LLAMA._replace(original_max_len=64.5), "original_max_len", "a whole number"),
    (YARN._replace(original_max_len=0), "original_max_len", "got 0"),
    (YARN._replace(beta_slow=-1.0), "beta_slow", "of YarnScaling", "got -1.0"),
    (YARN._replace(beta_fast=None), "beta_fast", "of YarnScaling", "got None"),
    (YARN._replace(beta_fast=True), "beta_fast"),
    (YARN._replace(beta_fast=1), "beta_slow", "must be less than beta_fast", "1.0 and 1"),
    (YARN._replace(attention_factor=0.0), "attention_factor", "got 0.0"),
    (YARN._replace(truncate="no"), "truncate", "of YarnScaling", "truncate='no'"),
    (YARN._replace(mscale=1.0), "mscale", "attention_factor, or mscale and", "{'mscale': 1"),
    (YARN._replace(mscale=1.0, mscale_all_dim=1.0, attention_factor=1.0), "mscale",
     "attention_factor, or mscale and mscale_all_dim", "'attention_factor': 1.0"),
    (LONGROPE._replace(factors=(1.0,) * 7), "factors", "each of H/2 frequencies", "got 7 for 2"),
    (LONGROPE._replace(factors=[1.0]), "factors", "of LongropeScaling", "a tuple"),
    (LONGROPE._replace(factors=(0.0, 1.0)), "factors", "more than 0", "got (0.0, 1.0)"),
    (LONGROPE._replace(factors=(math.nan,)), "factors", "finite", "got (nan,)"),
    (LONGROPE._replace(original_max_len=1), "original_max_len", "at least 2"),
    (LONGROPE._replace(factor=0.5), "factor", "of LongropeScaling", "at least 1"),
    (LONGROPE._replace(attention_factor=0.0), "attention_factor", "got 0.0"),
]  # fmt: skip

CALLS = {
    "alibi_slopes": [
        ({"num_heads": value}, "num_heads", "ConfigError", "must be an int, at least 1")
        for value in (0, -1, True, 2.0, "2", None, math.nan, HUGE, [2], Traced(2), 2j)
    ],
    "alibi_bias": [
        ({"num_heads": 2.5}, "num_heads"),
        ({"num_heads": -1}, "num_heads", "ConfigError", "at least 1", "got -1"),
        ({"num_queries": -3}, "num_queries", "zero or more, got -3"),
        ({"num_queries": HUGE}, "num_queries"),
        ({"num_keys": "5"}, "num_keys"),
        ({"num_keys": None}, "num_keys"),
        ({"query_offset": ones(2)}, "query_offset", "integer"),
        ({"query_offset": True}, "query_offset"),
        ({"query_offset": 2**31}, "query_offset"),
    ],
    "causal": [
        ({"num_queries": -2}, "num_queries", "must be an int of zero or more, got -2"),
        ({"num_queries": Traced(3)}, "num_queries"),
        ({"num_queries": True}, "num_queries"),
        ({"num_keys": -3}, "num_keys", "must be an int of zero or more, got -3"),
        ({"num_keys": HUGE}, "num_keys"),
        ({"num_keys": math.inf}, "num_keys"),
        ({"num_keys": [5]}, "num_keys"),
        ({"query_offset": ones(2)}, "query_offset", "must be integer", "float32"),
        ({"query_offset": None}, "query_offset"),
        ({"query_offset": "0"}, "query_offset"),
        ({"query_offset": 1j}, "query_offset"),
        ({"query_offset": [[1], [2, 3]]}, "query_offset"),
        ({"query_offset": OBJECTS}, "query_offset"),
    ],
    "window": [
        ({"size": value}, "size", "must be an int or a pair (left, right)", "None")
        for value in (-1, 1.5, True, "2", (1, 2, 3), (1, -1), [1, 2], HUGE, Traced(2), math.nan)
    ]
    + [({"num_keys": -3}, "num_keys"), ({"query_offset": ones(2)}, "query_offset")],
    "padding": [
        ({"lengths": None}, "lengths"),
        ({"lengths": -1}, "lengths"),
        ({"lengths": [2, -3]}, "lengths"),
        ({"lengths": [2, 4]}, "lengths"),
        ({"lengths": HUGE}, "lengths"),
        ({"lengths": ones(2)}, "lengths", "must be integer", "float32"),
        ({"lengths": ones(2, dtype=bool)}, "lengths"),
        ({"lengths": "12"}, "lengths"),
        ({"num_keys": HUGE}, "num_keys"),
        ({"num_keys": 3.0}, "num_keys"),
    ],
    "segments": [
        ({"query_ids": ones(2, 3)}, "query_ids", "must be integer"),
        ({"query_ids": np.int32(3)}, "query_ids"),
        ({"query_ids": None}, "query_ids"),
        ({"key_value_ids": ints(3, 5)}, "key_value_ids",
         "query_ids [..., T]", "key_value_ids [..., S]", "(2, 3)", "(3, 5)"),
        ({"key_value_ids": np.int32(1)}, "key_value_ids", "got a scalar"),
        ({"key_value_ids": ints(5)}, "key_value_ids"),
        ({"key_value_ids": ones(2, 5, dtype=bool)}, "key_value_ids"),
        ({"key_value_ids": np.full((2, 5), HUGE)}, "key_value_ids"),
        ({"key_value_ids": OBJECTS}, "key_value_ids"),
    ],
    "combine": [
        ({"masks": ("causal",)}, "mask"),
        ({"masks": (ones(3, 5),)}, "mask", "mask must be bool", "float32", "True = attend"),
        ({"masks": (ones(5, dtype=bool),)}, "mask"),
        ({"masks": (True,)}, "mask"),
        (masks_of((2, 1, 3, 5), (2, 3, 5)), "mask",
         "[..., N, T, S]", "(2, 1, 3, 5)", "(2, 3, 5)", "mask[:, None]"),
        (masks_of((2, 3), (3, 2)), "mask",
         "must broadcast over [..., N, T, S]", "sizes [2, 3] of axis T", "(2, 3)", "(3, 2)"),
        (masks_of((5, 2, 1, 3, 1), (7, 2, 4, 3, 6)), "mask",
         "sizes [5, 7] of axis ...", "(7, 2, 4, 3, 6)", "size 1"),
        (masks_of((2, 3, 1, 1), (2, 5, 1, 1)), "mask", "sizes [3, 5] of axis N"),
        ({"masks": (OBJECTS,)}, "mask"),
        ({"masks": ([[True], [True, False]],)}, "mask"),
    ],
    "relative_position_buckets": [
        ({"num_queries": 3.0}, "num_queries"),
        ({"num_keys": HUGE}, "num_keys"),
        ({"num_keys": -5}, "num_keys", "got -5"),
        ({"query_offset": ones(2)}, "query_offset", "must be integer", "float32"),
        ({"num_buckets": 33}, "num_buckets", "must be even for two directions, got 33"),
        ({"num_buckets": 2}, "num_buckets", "ConfigError", "at least 4", "got 2"),
        ({"num_buckets": 1, "bidirectional": False}, "num_buckets", "at least 2", "got 1"),
        ({"num_buckets": 32.0}, "num_buckets"),
        ({"num_buckets": True}, "num_buckets"),
        ({"num_buckets": HUGE}, "num_buckets"),
        ({"num_buckets": 10**6, "max_distance": 10**7}, "num_buckets"),
        ({"max_distance": 8}, "max_distance", "ConfigError", "at least 9", "got 8"),
        ({"max_distance": 128.0}, "max_distance", "must be an int", "got 128.0"),
        ({"max_distance": math.inf}, "max_distance"),
        ({"max_distance": HUGE}, "max_distance"),
        ({"bidirectional": "no"}, "bidirectional"),
        ({"bidirectional": None}, "bidirectional"),
        ({"bidirectional": Traced(True)}, "bidirectional"),
        ({"bidirectional": 2}, "bidirectional"),
    ],
    "sinusoidal_positions": [
        ({"positions": -3}, "positions", "must not be negative, got -3"),
        ({"positions": HUGE}, "positions"),
        ({"positions": 3.0}, "positions", "must be integer, got dtype float32"),
        ({"positions": True}, "positions", "must be integer, got dtype bool"),
        ({"positions": ones(3)}, "positions", "must be integer", "float32"),
        ({"positions": "3"}, "positions"),
        ({"positions": None}, "positions"),
        ({"positions": np.array([0, 2**31])}, "positions", str(2**31)),
        ({"positions": np.array([0, -(2**31)])}, "positions", str(-(2**31))),
        ({"positions": np.array([-(2**63)])}, "positions"),
        ({"positions": [0.5]}, "positions"),
        ({"d_model": 0}, "d_model", "must be a positive int, got 0"),
        ({"d_model": 4.0}, "d_model", "must be a positive int, got 4.0"),
        ({"d_model": HUGE}, "d_model"),
        *BASES,
        ({"layout": "halves"}, "layout", "must be 'interleaved' or 'half', got 'halves'"),
        ({"layout": None}, "layout"),
        ({"layout": ["half"]}, "layout"),
        ({"layout": np.array(["half", "half"])}, "layout"),
    ],
    "rotary_tables": [
        ({"positions": HUGE}, "positions"),
        ({"positions": np.array([0.0])}, "positions", "must be integer", "float"),
        ({"positions": OBJECTS}, "positions"),
        ({"head_dim": 7}, "head_dim", "must be even and positive, got 7"),
        ({"head_dim": 0}, "head_dim", "must be a positive int, got 0"),
        ({"head_dim": 6.0}, "head_dim", "must be a positive int, got 6.0"),
        ({"head_dim": None}, "head_dim"),
        ({"head_dim": Traced(4)}, "head_dim"),
        *BASES,
        ({"scaling": 2.0}, "scaling"),
        ({"scaling": "linear"}, "scaling"),
        *(({"scaling": scaling}, *parts) for scaling, *parts in SCALINGS),
        ({"scaling": YARN, "base": 1.0}, "base", "must be more than 1 for YarnScaling, got 1.0"),
    ],
    "apply_rotary": [
        ({"x": [[[1.0]]]}, "x"),
        ({"x": None}, "x"),
        ({"x": ints(2, 3, 2, 4)}, "x", "must be floating", "int32"),
        ({"x": ones(2, 3, 2, 4).astype(FLOAT8)}, "x"),
        ({"x": ones(3, 4)}, "x"),
        ({"x": ones(2, 3, 2, 5)}, "x", "even H", "(2, 3, 2, 5)"),
        ({"rotary_dim": 3}, "rotary_dim", "must be even and at most H", "=3"),
        ({"rotary_dim": 6}, "rotary_dim", "must be even and at most H", "=6"),
        ({"rotary_dim": 4.0}, "rotary_dim"),
        ({"rotary_dim": 2}, "tables"),
        ({"tables": None}, "tables"),
        ({"tables": 3}, "tables"),
        ({"tables": "ab"}, "tables"),
        ({"tables": (*TABLES, ones(3, 2))}, "tables"),
        ({"tables": (ones(3, 2), None)}, "tables"),
        ({"tables": (ones(4, 2), ones(4, 2))}, "tables",
         "tables (cos)", "T=3", "H/2=2", "(4, 2)", "x is [..., T, N, H]"),
        ({"tables": (ones(3, 3), ones(3, 3))}, "tables", "tables (cos)", "H/2=2", "(3, 3)"),
        ({"tables": (ones(5, 3, 2), ones(5, 3, 2))}, "tables",
         "tables (cos)", "leading axes of x (2,)", "(5, 3, 2)"),
        ({"tables": (ints(3, 2), ints(3, 2))}, "tables"),
        ({"tables": (ones(3, 2, dtype=np.complex64),) * 2}, "tables"),
        ({"layout": "HALF"}, "layout", "must be 'half' or 'interleaved', got 'HALF'"),
        ({"layout": 0}, "layout"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("row", rows_of(CALLS), ids=described)
def test_a_wrong_call_is_refused_by_name(row):
    assert_refused(RIGHT, row)
