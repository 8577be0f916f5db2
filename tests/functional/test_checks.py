from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import (
    check_axes,
    check_broadcast,
    check_dtype,
    check_fields,
    check_float_dtype,
    check_leading,
    check_range,
    describe,
    is_symbolic,
    known_values,
)

SYMBOL = jax.export.symbolic_shape("s")[0]


def message(call, *arguments, **options):
    with pytest.raises(ShapeError) as error:
        call(*arguments, **options)
    return str(error.value)


def test_describe_writes_known_sizes_only():
    assert describe("... S K H", {"S": 5, "H": 64, "T": 3}) == "[..., S=5, K, H=64]"
    assert describe("V D", {}) == "[V, D]"


def test_check_axes_returns_known_and_new_sizes():
    sizes = check_axes("x", np.zeros((2, 3, 5)), "... T D", {"D": 5, "B": 7})
    assert sizes == {"T": 3, "D": 5, "B": 7}
    assert check_axes("x", jnp.zeros((3, 5)), "... T D") == {"T": 3, "D": 5}
    assert check_axes("x", jnp.zeros((2, 3, 5)), "B T D") == {"B": 2, "T": 3, "D": 5}


def test_check_axes_leaves_the_given_sizes_alone():
    known = {"D": 5}
    check_axes("x", np.zeros((3, 5)), "T D", known)
    assert known == {"D": 5}


def test_check_axes_message_names_argument_axes_shape_and_remedy():
    array = np.zeros((2, 3, 5))
    assert (
        message(check_axes, "key", array, "... S K H", {"H": 7}, remedy="query is [..., T, N, H=7]")
        == "key must be [..., S, K, H=7], got shape (2, 3, 5); query is [..., T, N, H=7]"
    )
    assert message(check_axes, "x", array, "T D") == "x must be [T, D], got shape (2, 3, 5)"
    assert message(check_axes, "x", array[0, 0], "... T D").endswith("got shape (5,)")


def test_check_axes_hides_the_assertion_of_chex():
    with pytest.raises(ShapeError) as error:
        check_axes("x", np.zeros(3), "T D")
    assert error.value.__suppress_context__


def test_check_leading_compares_the_axes_before_the_trailing_ones():
    check_leading("key", np.zeros((2, 3, 5, 7)), 3, (2,))
    check_leading("key", np.zeros((3, 5, 7)), 3, ())
    text = message(check_leading, "key", np.zeros((1, 3, 5, 7)), 3, (2,))
    assert text == (
        "key must have the query's leading axes (2,), got (1,) of shape (1, 3, 5, 7); "
        "broadcast it with jnp.broadcast_to"
    )
    assert "got ()" in message(check_leading, "key", np.zeros((3, 5, 7)), 3, (2,))


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 3, 5), (1, 1, 1)])
def test_check_broadcast_accepts_size_one(shape):
    check_broadcast("mask", np.zeros(shape), (2, 3, 5), "N T S")


@pytest.mark.parametrize("shape", [(3, 5), (1, 2, 3, 5), (3, 3, 5), (2, 3, 1, 1), (2, 3, 7)])
def test_check_broadcast_refuses_other_ranks_and_sizes(shape):
    text = message(
        check_broadcast, "mask", np.zeros(shape), (2, 3, 5), "N T S", remedy="use [:, None]"
    )
    assert text.startswith("mask must broadcast to [N, T, S] = (2, 3, 5)")
    assert text.endswith(f"got shape {shape}; use [:, None]")


def test_check_axes_names_what_is_no_array():
    text = message(check_axes, "tokens", [[1, 2]], "B T", {"B": 2})
    assert text == "tokens must be an array [B=2, T], got list; make it one with jnp.asarray"


def test_check_broadcast_never_grows_the_target():
    text = message(check_broadcast, "mask", np.zeros((2, 3, 5)), (1, 3, 5), "N T S")
    assert text.endswith("got shape (2, 3, 5)")


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (np.float64, "floating"),
        (jnp.bfloat16, "floating"),
        (np.int8, "integer"),
        (np.uint32, "integer"),
        (np.bool_, "bool"),
    ],
)
def test_check_dtype_accepts_its_own_kind_only(dtype, kind):
    array = np.zeros(3, dtype)
    for asked in ("floating", "integer", "bool"):
        if asked == kind:
            check_dtype("x", array, asked)
        else:
            text = message(check_dtype, "x", array, asked, remedy="cast it")
            assert text == f"x must be {asked}, got dtype {array.dtype}; cast it"
            assert message(check_dtype, "x", array, asked).endswith(str(array.dtype))


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (-3, "-3"),
        (np.int64(8), "8"),
        ([2, 8], r"\[2, 8\]"),
        (np.array([[-3], [7]]), r"\[\[-3\]"),
        (np.array(2**63, np.uint64), str(2**63)),
        (np.arange(100), r"0 \.\. 99"),
    ],
)
def test_check_range_names_argument_bound_and_values(value, got):
    with pytest.raises(ShapeError, match=rf"^lengths must be in -2 \.\. S=7, got {got}"):
        check_range("lengths", value, least=-2, most=7, bound="S")


@pytest.mark.parametrize(
    "value", [-2, 7, np.int8(0), [[-2], [7]], [], np.zeros((0, 3), int), np.array([-2, 7])]
)
def test_check_range_takes_both_ends_and_nothing(value):
    check_range("lengths", value, least=-2, most=7)


def test_check_range_leaves_unread_what_is_not_known():
    check_range("lengths", SYMBOL, least=0, most=7)
    check_range("lengths", jnp.array([9]), least=0, most=7)
    jax.jit(lambda value: check_range("lengths", value, least=0, most=7))(np.array([9]))


@pytest.mark.parametrize("value", [-1, [0, 2**31]])
def test_check_range_holds_known_integers_against_int32_where_the_bound_is_symbolic(value):
    check_range("lengths", 2**31 - 1, least=0, most=SYMBOL)
    with pytest.raises(ShapeError, match=r"lengths must be in 0 \.\. S=s, got"):
        check_range("lengths", value, least=0, most=SYMBOL, bound="S")


def test_sizes_are_symbolic_if_any_is():
    assert is_symbolic(3, SYMBOL) and is_symbolic(SYMBOL + 1)
    assert not is_symbolic(3, np.int64(3), None) and not is_symbolic()


def test_values_are_known_unless_they_are_traced():
    assert known_values(jnp.arange(3)).tolist() == known_values([0, 1, 2]).tolist() == [0, 1, 2]
    seen = []
    jax.jit(lambda array: seen.append(known_values(array)))(jnp.arange(3))
    assert seen == [None]


def test_fields_have_names():
    class Pair(NamedTuple):
        first: int

    check_fields("params", Pair(1), Pair)
    text = message(check_fields, "params", (1,), Pair)
    assert text == "params must be a Pair, got tuple; make one with Pair(first)"


@pytest.mark.parametrize("dtype", ["bfloat16", np.float64, jnp.float8_e4m3fn])
def test_arrays_may_have_any_floating_dtype(dtype):
    assert check_float_dtype("dtype", dtype) == jnp.dtype(dtype)


@pytest.mark.parametrize("dtype", [None, int, "nothing", 7])
def test_arrays_must_have_a_floating_dtype(dtype):
    text = message(check_float_dtype, "dtype", dtype)
    assert text == f"dtype must be a floating dtype, such as jnp.float32, got {dtype!r}"
