"""Attention functions that are given to multi-head attention."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import functional as F
from jaxformer.errors import ConfigError, ShapeError
from tests.functional.multi_head.multi_head_cases import (
    HEADS,
    B,
    D,
    N,
    T,
    float32,
    normal,
    random_params,
)


def test_weights_of_a_function_of_ones_own_are_those_of_the_library_for_the_same_attention():
    params, x = random_params(30, biases=False), float32(normal(31, B, T, D))
    params_with_sinks = float32(params)._replace(sinks=float32(normal(32, N)))
    options = {"is_causal": True, "local_window_size": (2, 0), "return_weights": True, **HEADS}

    def wrapped(query, key, value, **options):
        return F.dot_product_attention(query, key, value, **options)

    expected, result = (
        jax.jit(functools.partial(F.multi_head_attention, attention_fn=function, **options))(
            params_with_sinks, x
        )
        for function in (F.dot_product_attention, wrapped)
    )
    np.testing.assert_allclose(result.weights, expected.weights, rtol=0, atol=1e-6)
    np.testing.assert_allclose(result.output, expected.output, rtol=0, atol=1e-6)


def test_attention_function_gets_no_option_at_its_default_in_another_object():
    def plain(query, key, value):
        return F.dot_product_attention(query, key, value)

    x, params = float32(normal(34, B, T, D)), float32(random_params(35))
    read = {"implementation": "".join(["au", "to"]), "dropout_rate": np.float64(0.0)}  # from a file
    output = F.multi_head_attention(params, x, attention_fn=plain, **HEADS, **read).output
    np.testing.assert_array_equal(output, F.multi_head_attention(params, x, **HEADS).output)


def test_attention_function_beside_sinks_must_return_its_residual():
    x, params = float32(normal(34, B, T, D)), float32(random_params(35))._replace(sinks=jnp.ones(N))

    def without(query, key, value):
        return query

    def wrong(query, key, value, return_residual=False):
        return F.dot_product_attention(query, key, value)

    def right(query, key, value, return_residual=False):
        return F.dot_product_attention(query, key, value, return_residual=return_residual)

    with pytest.raises(ConfigError, match="must take the arguments .* return_residual"):
        F.multi_head_attention(params, x, attention_fn=without, **HEADS)
    with pytest.raises(ShapeError, match=r"must return \(output, residual\), got .* from .*wrong"):
        F.multi_head_attention(params, x, attention_fn=wrong, **HEADS)
    output = F.multi_head_attention(params, x, attention_fn=right, **HEADS).output
    np.testing.assert_array_equal(output, F.multi_head_attention(params, x, **HEADS).output)
