"""When attention refuses wrong calls: before anything is computed, and under tracing alike."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import functional as F
from jaxformer.errors import ConfigError
from tests.functional.attention.attention_cases import GROUPED, inputs_of
from tests.functional.attention.test_wrong_attention import CALLS, RIGHT
from tests.functional.wrong_calls import described


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
    arrays, options = inputs_of(GROUPED), {"local_window_size": (None, None)}
    for offset in (3, np.array([2, 5])):
        output = F.dot_product_attention(**arrays, **options, query_offset=offset)
        np.testing.assert_array_equal(output, F.dot_product_attention(**arrays))


def test_attention_refuses_options_that_are_traced():
    attend = functools.partial(F.dot_product_attention, **inputs_of(GROUPED))
    for name in ("softcap", "dropout_rate", "is_causal"):
        with pytest.raises(ConfigError, match=rf"{name} must be .*, got .*Tracer"):
            jax.jit(lambda value, name=name: attend(**{name: value}))(0.5)
