"""Dropout of attention weights."""

import functools
import math

import jax
import numpy as np
import pytest

from jaxformer.functional import dot_product_attention
from tests.functional import oracle
from tests.functional.attention import attention_cases as cases
from tests.functional.attention.test_unattended import assert_poison_changes_nothing

DROPPING = cases.Sizes((2,), 31, 37, 6, 3, 5, 41)  # values: the unit vectors, and 4 more columns
RATE = 0.25
EACH = pytest.mark.parametrize("implementation", cases.IMPLEMENTATIONS)


@functools.cache
def dropped(implementation, seed):
    """Values, the output for them, and the dropped and full weights [B, N, T, S].

    The first S entries of value row s are the s-th unit vector, so the output shows the weights.
    """
    inputs = cases.inputs_of(DROPPING)
    inputs["value"][..., :37] = np.eye(37, dtype=np.float32)[:, None]
    options = {"mask": cases.bits(1, 6, 31, 37) | np.eye(31, 37, dtype=bool)}
    rng = {"dropout_rng": jax.random.key(seed)}
    static = {"dropout_rate": RATE, "implementation": implementation}
    _, output, _ = cases.run(DROPPING, options | rng, static, inputs)
    full = oracle.attention_weights(inputs["query"], inputs["key"], **options)
    return inputs["value"], output, np.swapaxes(output[..., :37], -2, -3), full


@pytest.mark.essential
@EACH
def test_attention_dropout_zeroes_weights_at_its_rate_and_scales_the_rest(implementation):
    value, output, weights, full = dropped(implementation, 0)
    nonzero, visible = weights != 0, full != 0
    np.testing.assert_allclose(weights, np.where(nonzero, full / (1 - RATE), 0), rtol=1e-5)
    deviation = math.sqrt(RATE * (1 - RATE) / visible.sum())
    assert abs(1 - nonzero[visible].mean() - RATE) <= 4 * deviation
    sums = weights.sum(-1)  # their mean is kept
    assert abs(sums.mean() - 1) <= 4 * sums.std() / math.sqrt(sums.size)
    each_head = value.repeat(2, axis=-2)  # [B, S, N, Hv]
    expected = np.einsum("bnts,bsnh->btnh", weights.astype(np.float64), each_head)
    cases.assert_close(output, expected, 1e-6)


@EACH
def test_attention_dropout_differs_along_every_axis_and_by_key(implementation):
    _, output, weights, full = dropped(implementation, 0)
    for axis in range(4):
        nonzero, visible = np.moveaxis(weights != 0, axis, 0), np.moveaxis(full != 0, axis, 0)
        for index in range(1, len(nonzero)):  # of another block or key head, too
            differing = (nonzero[0] != nonzero[index])[visible[0] & visible[index]]
            assert differing.mean() == pytest.approx(2 * RATE * (1 - RATE), abs=0.15)
    cases.assert_same_bits(dropped.__wrapped__(implementation, 0)[1], output)
    assert (dropped(implementation, 1)[1] != output).any()


def test_attention_dropout_of_rate_zero_needs_no_rng():
    options = {"dropout_rng": jax.random.key(0)}
    with_rng = cases.run(cases.GROUPED, options, {"dropout_rate": 0.0})
    cases.assert_same_bits(with_rng, cases.run(cases.GROUPED, {}, {}))


def test_attention_dropout_accepts_old_and_new_keys():
    for rng in (jax.random.key(0), jax.random.PRNGKey(0)):
        output = jax.eval_shape(
            functools.partial(dot_product_attention, dropout_rate=RATE),
            **cases.inputs_of(cases.PLAIN),
            dropout_rng=rng,
        )
        assert output.shape == (5, 6, 13)


@EACH
def test_attention_dropout_is_differentiated_with_the_weights_it_dropped(implementation):
    with jax.enable_x64(True):
        options = {"dropout_rng": jax.random.key(3), "mask": cases.HIDING["mask"][1]["mask"]}
        static = {"dropout_rate": RATE, "implementation": implementation}
        inputs = cases.inputs_of(cases.GROUPED, np.float64)
        cotangent = cases.cotangent_of(cases.GROUPED, np.float64)
        _, _, gradients = cases.run(cases.GROUPED, options, static, inputs, cotangent)
        directions = cases.directions_of(inputs)
        expected = oracle.slope(
            lambda moved: np.sum(cotangent * cases.run(cases.GROUPED, options, static, moved)[1]),
            inputs,
            directions,
        )
    got = sum(np.sum(gradients[n] * directions[n]) for n in inputs)
    assert got == pytest.approx(expected, rel=1e-8)


@EACH
def test_attention_dropout_keeps_poison_out(implementation):
    static = {"dropout_rate": RATE, "implementation": implementation}
    options = cases.HIDING["mask"][1] | {"dropout_rng": jax.random.key(0)}
    unseen = cases.unattended(*cases.HIDING["mask"])
    assert_poison_changes_nothing(cases.GROUPED, options, static, unseen=unseen)
