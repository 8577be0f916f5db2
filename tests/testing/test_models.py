import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import DataError, ShapeError
from jaxformer.testing import assert_model_is_causal, assert_padding_invariant

RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(11, size=(2, 7))
EMBEDDINGS = RANDOM.standard_normal((2, 7, 3))
LENGTHS = np.array([7, 4])
TABLE = jnp.asarray(RANDOM.standard_normal((11, 3)))


def running_mean(x):
    return jnp.cumsum(x, axis=1) / jnp.arange(1.0, x.shape[1] + 1)[None, :, None]


def test_plain_functions_of_tokens_and_of_embeddings_are_causal():
    assert_model_is_causal(lambda tokens: running_mean(TABLE[tokens]), TOKENS)
    assert_model_is_causal(running_mean, EMBEDDINGS)


def test_checks_take_callable_modules_that_hold_arrays():
    @dataclasses.dataclass(frozen=True)
    class Scale:
        """Its hash would be that of an array, which has none."""

        factor: jax.Array

        def __call__(self, x, mask=None):
            return running_mean(x) * self.factor

    assert_model_is_causal(Scale(jnp.float32(2)), EMBEDDINGS)
    assert_padding_invariant(Scale(jnp.float32(2)), EMBEDDINGS, LENGTHS)


def next_token_seen(x):
    return running_mean(x) + jnp.roll(x, -1, axis=1).at[:, -1].set(0)


def normalized_over_time(x):
    return running_mean(x) - x.mean(axis=1, keepdims=True)


def leaks_without_gradient(x):
    return running_mean(x) + 0.1 * jnp.sign(jnp.roll(x, -2, axis=1))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (next_token_seen, "output at position 0, input at position 1; 6 such pairs in total\n"
         ".*relative change .*\n.*at most 1e-05\n.*off by one: it is s <= t . 1, should"),
        (normalized_over_time, "an operation reaches later positions .a mean or normalization"),
        (leaks_without_gradient, "position 0, input at position 2"),
    ],
)  # fmt: skip
def test_model_causality_check_catches_leaks_from_tokens(broken, message):
    with pytest.raises(AssertionError, match=message):
        assert_model_is_causal(lambda tokens: broken(TABLE[tokens]), TOKENS)


def test_model_causality_check_wants_the_past_as_far_as_it_should_reach():
    def window(x):
        return x + 0.5 * jnp.roll(x, 1, axis=1).at[:, 0].set(0)

    assert_model_is_causal(window, EMBEDDINGS, reach=2)
    with pytest.raises(AssertionError, match="output at position 2, input at position 0(.*\n)*.*"
                       "earlier positions are out of reach"):  # fmt: skip
        assert_model_is_causal(window, EMBEDDINGS)


@pytest.mark.parametrize(
    ("apply", "inputs", "error", "message"),
    [
        (running_mean, EMBEDDINGS[:, :1], ShapeError, r"a T of at least 2, got float32"),
        (running_mean, jnp.zeros((2, 7), jnp.int32), DataError, "got 0 everywhere"),
        (lambda x: (x, x), EMBEDDINGS, AssertionError, r"got: +tuple\n.*\n.*f\(\*args\)\[0\]"),
        (lambda x: x.mean(1), EMBEDDINGS, AssertionError, r"got: +shape \(2, 3\)"),
    ],
)
def test_model_causality_check_says_what_it_cannot_check(apply, inputs, error, message):
    with pytest.raises(error, match=message):
        assert_model_is_causal(apply, inputs)


def masked_mean(x, mask):
    return (x * mask[..., None]).sum(1) / mask.sum(1)[:, None]


@pytest.mark.essential
def test_plain_functions_are_padding_invariant():
    assert_padding_invariant(masked_mean, EMBEDDINGS, LENGTHS, per_token=False)

    def per_token(tokens, mask):
        return TABLE[tokens] - masked_mean(TABLE[tokens], mask)[:, None]

    assert_padding_invariant(per_token, TOKENS, LENGTHS)


@pytest.mark.parametrize(
    ("broken", "per_token", "message"),
    [
        (lambda x, mask: x.mean(1), False,
         r"the contents of the padding\n.*output\[b=1, (.*\n)*.*normalization over time"),
        (lambda x, mask: x - x.mean(1, keepdims=True), True,
         r"the contents of the padding\n.*output\[b=1, t=[0-3], "),
        (lambda x, mask: (x * mask[..., None]).mean(1), False,
         r"the amount of padding \(got: row 1 .*\n.*output\[b=0, (.*\n)*.*the padded length"),
        (lambda x, mask: x * jnp.cos(jnp.arange(x.shape[1])[::-1])[None, :, None], True,
         r"the amount of padding(.*\n)*.*counted from the padded end"),
    ],
)  # fmt: skip
def test_padding_invariance_check_catches(broken, per_token, message):
    with pytest.raises(AssertionError, match=message):
        assert_padding_invariant(broken, EMBEDDINGS, LENGTHS, per_token=per_token)


@pytest.mark.parametrize("lengths", [[7, 7], [0, 7], [4, 8], [4]])
def test_padding_invariance_check_needs_padding(lengths):
    with pytest.raises(DataError, match="must be 2 integers from 1 to T=7, at least one less"):
        assert_padding_invariant(masked_mean, EMBEDDINGS, np.array(lengths), per_token=False)
