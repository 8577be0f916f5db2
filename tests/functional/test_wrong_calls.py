"""Every public function has its wrong calls, which are written from the docstrings."""

import inspect

import jax
import numpy as np
import pytest

from jaxformer import functional as F
from tests.functional import test_wrong_layers, test_wrong_masks
from tests.functional.attention import test_wrong_attention
from tests.functional.attention.ring import test_wrong_ring
from tests.functional.losses import test_wrong_losses
from tests.functional.multi_head import test_wrong_multi_head
from tests.functional.wrong_calls import call, described, rows_of

TABLES = (
    test_wrong_masks, test_wrong_layers, test_wrong_losses, test_wrong_attention,
    test_wrong_multi_head, test_wrong_ring,
)  # fmt: skip
RIGHT = {name: right for table in TABLES for name, right in table.RIGHT.items()}
WRONG = [row for table in TABLES for row in rows_of(table.CALLS)]


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_call_is_taken(name):
    """Or its wrong ones could be refused for another reason. Traced, so that nothing compiles."""

    def run():
        call(name, RIGHT[name])

    jax.eval_shape(run)


@pytest.mark.parametrize("name", RIGHT)
def test_arguments_that_are_missing_or_misspelt_are_named(name):
    first = next(n for n in RIGHT[name])
    if name not in ("Causal", "Lengths"):  # whose arguments have defaults
        with pytest.raises(TypeError, match=rf"'{first}'"):
            call(name, {n: value for n, value in RIGHT[name].items() if n != first})
    with pytest.raises(TypeError, match="'spelling'"):
        call(name, {**RIGHT[name], "spelling": 1})


def test_every_public_function_is_called_wrongly():
    public = {name for name in F.__all__ if inspect.isfunction(getattr(F, name))}
    assert public <= {name for name, *_ in WRONG} == RIGHT.keys()
    assert len({described(row) for row in WRONG}) >= 150


def test_a_size_of_numpy_is_a_length_as_one_of_python_is():
    for function in (F.sinusoidal_positions, F.rotary_tables):
        lengths = [jax.eval_shape(lambda n=n, f=function: f(n, 4)) for n in (5, np.int64(5))]
        assert lengths[0] == lengths[1]
