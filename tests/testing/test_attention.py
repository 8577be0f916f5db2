"""Each check passes on what is right, and says what is wrong with what is not."""

import jax.numpy as jnp
import pytest

from jaxformer.errors import ConfigError
from jaxformer.testing import AttentionSizes, assert_scaled_dot_product
from tests.testing.foreign import GROUPED, attention, check


def heads_first(query, key, value):
    return attention(query, key, value).swapaxes(1, 2)


def with_weights(query, key, value):
    return attention(query, key, value), query


WRONG_VALUES = r"output\[b=.*differences.*"


@pytest.mark.essential
@pytest.mark.parametrize(
    ("claim", "broken", "message"),
    [
        ("shape", heads_first,
         r"query \(2, 5, 6, 16\), .*\n.*got: +shape \(2, 6, 5, 11\)\n.*expected: "
         r"+shape \(2, 5, 6, 11\)\n.*not moved back behind the time axis"),
        ("shape", with_weights, r"got: +a tuple\n(.*\n).*weights returned"),
        ("dtype", lambda q, k, v: attention(q, k, v).astype(jnp.float32),
         r"got: +float32\n.*expected: +bfloat16\n.*not cast"),
        ("precision", lambda q, k, v: attention(q, k, v, dtype=q.dtype), "softmax in bfloat16;"),
        ("values", lambda q, k, v: attention(q, k, v, scale=1.0),
         WRONG_VALUES + "the scores are not scaled; .*exactly"),
        ("values",
         lambda q, k, v: attention(q, jnp.tile(k, (1, 1, 3, 1)), jnp.tile(v, (1, 1, 3, 1))),
         WRONG_VALUES + "query head n uses key head n % K, should"),
        ("values", lambda q, k, v: attention(q, k, v) + v.mean() * 0.01,
         WRONG_VALUES + "another scale"),
    ],
)  # fmt: skip
def test_claim_names_the_mistake(claim, broken, message):
    check(claim, attention, GROUPED)
    with pytest.raises(AssertionError, match=f"(?s){message}"):
        check(claim, broken, GROUPED)


def test_values_check_takes_another_scale():
    assert_scaled_dot_product(lambda q, k, v: attention(q, k, v, scale=0.3), scale=0.3)


def test_values_check_is_as_strict_as_the_dtype_allows():
    def slightly_off(query, key, value):
        return attention(query, key, value) * (1 + 1e-3)

    assert_scaled_dot_product(slightly_off, AttentionSizes(dtype="bfloat16"))
    with pytest.raises(AssertionError, match="values"):
        assert_scaled_dot_product(slightly_off)
    assert_scaled_dot_product(slightly_off, tolerance=1e-2)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"batch_size": 1}, "batch_size must be at least 2, got 1"),
        ({"num_heads": 6, "num_kv_heads": 4}, "num_heads=6 and num_kv_heads=4"),
    ],
)
def test_sizes_that_could_not_tell_right_from_wrong_are_refused(sizes, message):
    with pytest.raises(ConfigError, match=message):
        AttentionSizes(**sizes)
