import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import ShapeError
from jaxformer.functional.sizes import check_range

SYMBOL = jax.export.symbolic_shape("s")[0]


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
