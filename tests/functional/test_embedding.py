import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import DataError
from jaxformer.functional import embed, unembed

embed_jit, unembed_jit = jax.jit(embed), jax.jit(unembed)
TABLE = np.random.default_rng(0).standard_normal((11, 5)).astype(np.float32)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (0,)])
def test_embed_takes_the_row_of_every_token(leading):
    tokens = np.random.default_rng(1).integers(0, 11, leading)
    rows = embed_jit(TABLE, tokens)
    np.testing.assert_array_equal(rows, TABLE[tokens], strict=True)


def test_embed_of_an_unknown_token_is_nan_and_moves_no_other_row():
    tokens = np.array([[0, 11, 10], [-1, 4, -11], [2**31 - 1, -(2**31), 7]])
    rows = np.asarray(embed_jit(jnp.asarray(TABLE), tokens))
    known = (tokens >= 0) & (tokens < 11)
    assert np.isnan(rows[~known]).all()
    np.testing.assert_array_equal(rows[known], TABLE[tokens[known]])


def test_embed_refuses_the_first_unknown_token_where_it_is_known():
    tokens = jnp.array([[0, 10, 4], [3, 11, -1]])
    for known in (tokens, np.asarray(tokens)):
        with pytest.raises(
            DataError, match=r"in 0 \.\. V-1 = 10, got 11 at index \(1, 1\); encode"
        ):
            embed(TABLE, known)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int64, np.uint64])
def test_embed_takes_tokens_of_any_integer_dtype(dtype):
    """Also of one that holds fewer numbers than the vocabulary, or more than 32 bits."""
    table, largest = np.arange(300, dtype=np.float32)[:, None], np.iinfo(dtype).max
    beyond = 2**32 + 1 if np.iinfo(dtype).bits == 64 else np.iinfo(dtype).min
    with jax.enable_x64(True):
        rows = embed_jit(table, np.array([3, min(largest, 299), beyond], dtype))
    expected = [3, min(largest, 299), 0 if beyond == 0 else np.nan]
    np.testing.assert_array_equal(rows[:, 0], expected)


def test_embed_gradient_counts_each_row():
    tokens = np.array([2, 2, 7])
    weights = np.float32(np.random.default_rng(2).standard_normal((3, 5)))
    gradient = jax.jit(jax.grad(lambda table: jnp.sum(embed(table, tokens) * weights)))(TABLE)
    expected = np.zeros((11, 5), np.float32)
    expected[2], expected[7] = weights[0] + weights[1], weights[2]
    np.testing.assert_array_equal(gradient, expected)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (0,)])
@pytest.mark.parametrize(
    ("dtype", "table_dtype", "tolerance"),
    [
        (np.float32, np.float32, 5e-6),
        (jnp.bfloat16, np.float32, 5e-6),
        (jnp.float16, np.float32, 5e-6),
        (np.float64, np.float64, 1e-14),
    ],
)
def test_unembed_scores_every_row_in_float32_or_more(dtype, table_dtype, tolerance, leading):
    with jax.enable_x64(dtype == np.float64):
        x = np.random.default_rng(3).standard_normal((*leading, 5)).astype(dtype)
        logits = np.array(unembed_jit(TABLE.astype(table_dtype), x))
    assert logits.dtype == table_dtype and logits.shape == (*leading, 11)
    expected = np.float64(x) @ np.float64(TABLE.astype(dtype)).T
    np.testing.assert_allclose(logits, expected, rtol=0, atol=tolerance)


def test_unembed_adds_the_bias_then_caps():
    x = np.random.default_rng(6).standard_normal((3, 5)).astype(np.float32)
    bias = np.linspace(-1, 1, 11, dtype=np.float32)
    logits = unembed(TABLE, x, jnp.asarray(bias), softcap=2.0)
    expected = 2 * np.tanh((np.float64(x) @ TABLE.T.astype(np.float64) + bias) / 2)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2e-6)
