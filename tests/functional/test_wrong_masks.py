"""Wrong calls of masks, positions and their biases."""

import math
import operator

import numpy as np
import pytest

from jaxformer import functional as F
from tests.functional.wrong_calls import (
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


# A right call of each function, which the wrong ones differ from in a few arguments.
RIGHT = {
    "AlibiBias.array": {"num_queries": 3, "num_keys": 5},
    "alibi_slopes": {"num_heads": 2},
    "apply_rotary": {"x": ones(2, 3, 2, 4), "tables": TABLES, "layout": "half"},
    "Causal": {"offset": 2},
    "Lengths": {"queries": np.array([1, 3]), "keys": np.array([1, 5])},
    "Prefix": {"lengths": np.array([1, 3])},
    "Rule": {"function": operator.le},
    "Segments": {"query_ids": ints(2, 3), "key_ids": ints(2, 5)},
    "Window": {"left": 1, "right": None},
    "rotary_tables": {"positions": 3, "head_dim": 4},
    "sinusoidal_positions": {"positions": 3, "d_model": 4},
}

BASES = [
    ({"base": 0.0}, "base", "ConfigError", "must be positive and finite"),
    ({"base": math.nan}, "base", "ConfigError", "must be positive and finite"),
    ({"base": 10**400}, "base"),
    ({"base": Traced(1e4)}, "base"),
]
SCALINGS = [
    ({"factor": 2.0}, "scaling", "must be a LinearScaling", "YarnScaling", "dict"),
    (F.LinearScaling(0.0), "factor", "of LinearScaling", "must be positive", "got 0.0"),
    (F.LinearScaling(math.nan), "factor", "of LinearScaling", "finite", "got nan"),
    (F.LinearScaling(None), "factor", "of LinearScaling", "got None"),
    (F.LinearScaling(10**400), "factor"),
    (F.LinearScaling(Traced(2.0)), "factor", "under jit, make scaling a static argument"),
    (LLAMA._replace(low_freq_factor=0.0), "low_freq_factor", "must be positive"),
    (LLAMA._replace(low_freq_factor=4.0), "low_freq_factor",
     "of Llama3Scaling must be less than high_freq_factor", "4.0 and 4.0"),
    (YARN._replace(original_max_len=0), "original_max_len", "got 0"),
    (YARN._replace(beta_fast=True), "beta_fast"),
    (YARN._replace(beta_fast=1), "beta_slow", "must be less than beta_fast", "1.0 and 1"),
    (YARN._replace(attention_factor=0.0), "attention_factor", "got 0.0"),
    (LONGROPE._replace(factors=(1.0,) * 7), "factors", "each of H/2 frequencies", "got 7 for 2"),
    (LONGROPE._replace(factors=[1.0]), "factors", "of LongropeScaling", "got [1.0]"),
    (LONGROPE._replace(factors=(0.0, 1.0)), "factors", "must be positive", "got 0.0"),
]  # fmt: skip

CALLS = {
    "alibi_slopes": [
        ({"num_heads": value}, "num_heads", "ConfigError", "must be an int in 1 .. 65536")
        for value in (0, True, 2.0, HUGE, Traced(2))
    ],
    "AlibiBias.array": [
        ({"num_queries": -3}, "num_queries", "zero or more, got -3"),
        ({"num_keys": "5"}, "num_keys"),
        ({"query_offset": ones(2)}, "query_offset", "integer"),
    ],
    "Causal": [
        ({"offset": ones(2)}, "offset of a rule", "must be integer", "float32"),
        ({"offset": [[1], [2, 3]]}, "offset of a rule"),
        ({"offset": OBJECTS}, "offset of a rule"),
        ({"offset": 2**30 + 1}, "offset of a rule", f"must be in -{2**30} .. {2**30}"),
        ({"offset": ints(3)}, "offset of a rule", "must broadcast to [...] = (2,)", "shape (3,)"),
    ],
    "Window": [
        ({"left": value, "right": value}, "of Window", "(left, right)", "None for unbounded")
        for value in (-1, True, (1, -1), [1, 2], HUGE)
    ]
    + [({"offset": ones(2)}, "offset of a rule")],
    "Lengths": [
        ({"keys": -1}, "keys of Lengths", "must be in 0 .. 5, got -1"),
        ({"keys": [2, 6]}, "keys of Lengths", "must be in 0 .. 5, got [2, 6]"),
        ({"queries": [2, 4]}, "queries of Lengths", "must be in 0 .. 3, got [2, 4]"),
        ({"keys": ones(2)}, "keys of Lengths", "must be integer", "float32"),
        ({"queries": ints(2, 1)}, "queries of Lengths", "to [...] = (2,)", "shape (2, 1)"),
    ],
    "Prefix": [
        ({"lengths": None}, "lengths of Prefix", "an array of numbers, got None"),
        ({"lengths": 6}, "lengths of Prefix", "must be in 0 .. 5, got 6"),
        ({"offset": 0.5}, "offset of a rule"),
    ],
    "Segments": [
        ({"query_ids": ones(2, 3)}, "query_ids of Segments", "must be integer"),
        ({"query_ids": np.int32(3)}, "query_ids of Segments", "[..., T=3]"),
        ({"key_ids": ints(3, 5)}, "key_ids of Segments", "leading axes (2,)", "(3, 5)"),
        ({"key_ids": None}, "key_ids of Segments", "[..., S=5]", "(2, 3)"),
        ({"key_ids": np.full((2, 5), HUGE)}, "key_ids of Segments"),
    ],
    "Rule": [
        ({"function": "even"}, "function of Rule", "a function of the positions", "'even'"),
        ({"function": operator.sub}, "Rule's function", "must be bool", "int32"),
        ({"function": lambda query, key: True}, "Rule's function", "must broadcast to", "shape ()"),
        ({"function": lambda query, key: (query < key)[0]}, "Rule's function", "elementwise"),
        ({"function": lambda query, key: ones(2, 6, 3, 5) > 0}, "Rule's function", "(2, 1, 3, 5)"),
        ({"arrays": ("a",)}, "arrays of Rule", "an array of numbers"),
    ],
    "sinusoidal_positions": [
        ({"positions": -3}, "positions", "zero or more, got -3"),
        ({"positions": 3.0}, "positions", "must be integer, got dtype float32"),
        ({"positions": True}, "positions", "must be integer, got dtype bool"),
        ({"positions": np.array([0, 2**31])}, "positions", str(2**31)),
        ({"positions": np.array([0, -(2**31) - 1])}, "positions", str(-(2**31) - 1)),
        ({"d_model": 0}, "d_model", "must be a positive int, got 0"),
        *BASES,
        ({"layout": "halves"}, "layout", "must be 'interleaved' or 'half', got 'halves'"),
    ],
    "rotary_tables": [
        ({"positions": np.array([0.0])}, "positions", "must be integer", "float"),
        ({"head_dim": 7}, "head_dim", "must be even and positive, got 7"),
        ({"head_dim": 0}, "head_dim", "must be a positive int, got 0"),
        *BASES,
        ({"scaling": 2.0}, "scaling"),
        *(({"scaling": scaling}, *parts) for scaling, *parts in SCALINGS),
        ({"scaling": YARN, "base": 1.0}, "base", "must be more than 1 for YarnScaling, got 1.0"),
    ],
    "apply_rotary": [
        ({"x": ints(2, 3, 2, 4)}, "x", "must be floating", "int32"),
        ({"x": ones(2, 3, 2, 5)}, "x", "even H", "(2, 3, 2, 5)"),
        ({"rotary_dim": 3}, "rotary_dim", "must be even and at most H", "=3"),
        ({"rotary_dim": 6}, "rotary_dim", "must be even and at most H", "=6"),
        ({"tables": 3}, "tables"),
        ({"tables": (ones(3, 2), None)}, "tables"),
        ({"tables": (ones(4, 2), ones(4, 2))}, "tables",
         "tables (cos)", "T=3", "H/2=2", "(4, 2)", "x is [..., T, N, H]"),
        ({"tables": (ones(5, 3, 2), ones(5, 3, 2))}, "tables",
         "tables (cos)", "x's leading axes (2,)", "(5, 3, 2)"),
        ({"tables": (ints(3, 2), ints(3, 2))}, "tables"),
        ({"layout": "HALF"}, "layout", "must be 'half' or 'interleaved', got 'HALF'"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("row", rows_of(CALLS), ids=described)
def test_a_wrong_call_is_refused_by_name(row):
    assert_refused(RIGHT, row)
