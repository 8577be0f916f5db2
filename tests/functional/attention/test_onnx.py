"""Attention against the published test cases of the ONNX operator, which are others' work.

All of them must pass: what the public functions cannot express is a failure, never a skip.
"""

import numpy as np
import pytest

from tests.functional.attention import onnx_attention

CASES, EXPANDED = onnx_attention.collect()
WEIGHING = {name: case for name, case in CASES.items() if "qk_matmul_output" in case.outputs}
IMPLEMENTATIONS = ("dense", "chunked")
# Both sides round: float32 as everywhere in these tests. In 16 bits the reference rounds after each
# step, and this package once, at the end: one unit in the last place of the largest entry.
TOLERANCES = {"float32": 1e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def assert_equals_the_published(got, expected):
    """Equal up to rounding where finite; 0 where exactly 0, and -inf where -inf."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    tolerance = TOLERANCES[expected.dtype.name]
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    hidden = expected == -np.inf
    np.testing.assert_array_equal(got == -np.inf, hidden)
    got, expected = got[~hidden], expected[~hidden]
    assert (got[expected == 0] == 0).all()
    assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_attention_gives_the_published_outputs_of_onnx(case, implementation):
    got = onnx_attention.attend(case, implementation)
    for name in case.outputs.keys() - {"qk_matmul_output"}:
        assert_equals_the_published(got[name], case.outputs[name])


@pytest.mark.parametrize("case", WEIGHING.values(), ids=WEIGHING)
def test_attention_weights_give_the_published_stages_of_onnx(case):
    assert_equals_the_published(onnx_attention.weigh(case), case.outputs["qk_matmul_output"])


def test_no_published_case_of_onnx_is_left_out():
    assert len(CASES) == len(onnx_attention.MAKERS) == 93
    assert len(WEIGHING) == 18
    assert sum("Y" in case.outputs for case in CASES.values()) == 93
    for name, arrays in EXPANDED.items():  # the same arrays again, for another model
        case = CASES[name.partition("_expanded")[0]]
        known = [a for a in (*case.inputs, *case.outputs.values()) if a is not None]
        assert [id(a) for a in arrays] == [id(a) for a in known]
