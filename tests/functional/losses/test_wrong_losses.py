"""Wrong calls of losses."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from tests.functional.wrong_calls import (
    HUGE,
    assert_refused,
    described,
    ints,
    ones,
    rows_of,
)

# A right call of each function, which the wrong ones differ from in a few arguments.
RIGHT = {
    "chunked_cross_entropy": {"hidden": ones(3, 5), "table": ones(7, 5), "labels": ints(3)},
    "cross_entropy": {"logits": ones(3, 7), "labels": ints(3)},
}

CALLS = {
    "cross_entropy": [
        ({"logits": ints(3, 7)}, "logits", "must be floating", "int32"),
        ({"logits": np.float32(1)}, "logits", "must be [..., V]", "shape ()"),
        ({"logits": ones(3, 0), "labels": jnp.zeros(3, int)}, "logits"),
        ({"labels": "ab"}, "labels", "must be an array of numbers, got 'ab'"),
        ({"labels": ones(3)}, "labels", "must be integer", "float32"),
        ({"labels": ints(2)}, "labels", "must be [...]", "= (3,)", "(2,)"),
        ({"labels": np.array([0, 1, 7])}, "labels"),
        ({"labels": [0, 1, HUGE]}, "labels"),
        ({"labels": [0, 1, -2]}, "labels", "DataError", "got -2 at index (2,)"),
        ({"label_smoothing": 1.0}, "label_smoothing", "ConfigError", "must be in [0, 1), got 1.0"),
        ({"label_smoothing": -0.1}, "label_smoothing", "must be in [0, 1), got -0.1"),
        ({"label_smoothing": "0.1"}, "label_smoothing", "must be a number or an array of one"),
        ({"ignore_label": 1.5}, "ignore_label", "ConfigError", "an int32 or None, got 1.5"),
        ({"ignore_label": HUGE}, "ignore_label", "must be an int32 or None"),
        ({"z_loss": -1.0}, "z_loss", "ConfigError", "must be zero or more, got -1.0"),
        ({"z_loss": math.nan}, "z_loss", "must be a number or an array of one, finite"),
        ({"reduction": "mean"}, "reduction", "must be 'sum' or 'none', got 'mean'"),
    ],
    "chunked_cross_entropy": [
        ({"hidden": ones(3, 6)}, "hidden", "must be [..., D=5]", "(3, 6)"),
        ({"bias": ones(5)}, "bias", "must be [V=7], got shape (5,)"),
        ({"hidden": ints(3, 5)}, "hidden", "must be floating", "int32"),
        ({"table": ones(7)}, "table", "must be [V, D]", "(7,)"),
        ({"table": ints(7, 5)}, "table", "must be floating", "int32"),
        ({"table": ones(0, 5)}, "table"),
        ({"labels": ints(4)}, "labels", "must be [...]", "= (3,)", "(4,)"),
        ({"labels": ones(3)}, "labels", "must be integer", "float32"),
        ({"labels": [0, 1, 7]}, "labels", "DataError", "got 7 at index (2,)"),
        ({"label_smoothing": 1.0}, "label_smoothing", "[0, 1), got 1.0"),
        ({"softcap": 0.0}, "softcap", "ConfigError", "0.0"),
        ({"chunk_size": 0}, "chunk_size", "ConfigError", "at least 1, got 0"),
        ({"reduction": None}, "reduction", "ConfigError", "must be 'sum' or 'none', got None"),
        ({"products": "highest"}, "products", "ShapeError", "must be a Products, got str"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("row", rows_of(CALLS), ids=described)
def test_a_wrong_call_is_refused_by_name(row):
    assert_refused(RIGHT, row)
