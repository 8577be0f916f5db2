"""Which factors of longrope a call takes: by the room that rows have for tokens."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.config import LongropeScalingConfig, ModelConfig, RotaryConfig
from jaxformer.models import Decoder, init_cache

ORIGINAL, LONGER = 7, 13
SHORT, LONG = (1.0, 1.5, 3.0), (2.0, 5.0, 11.0)
TOKENS = np.random.default_rng(7).integers(0, 11, (3, LONGER))
LENGTHS = jnp.array([5, 6, 3])


def decoder(short=SHORT, long=LONG, **changes):
    scaling = LongropeScalingConfig(
        factor=4.0, original_max_len=ORIGINAL, short_factor=short, long_factor=long
    )
    return Decoder(
        ModelConfig(
            vocab_size=11, max_len=29, num_layers=2, d_model=12, num_heads=2, init_std=0.5,
            positions=RotaryConfig(base=17.0, scaling=scaling), **changes,
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def params():
    return decoder().init_params(jax.random.key(0))


def whole(model, params, width):
    """Hidden states of the first tokens, `width` of each row with the padding."""
    apply = jax.jit(lambda params, tokens: model.apply({"params": params}, tokens, lengths=LENGTHS))
    return apply(params, TOKENS[:, :width]).hidden


def cached(model, params, capacity):
    """Hidden states of the same tokens, two and then one at a time."""
    cache, pieces = init_cache(model.config, 3, capacity), []
    apply = jax.jit(
        lambda params, tokens, cache, lengths: model.apply(
            {"params": params}, tokens, cache=cache, lengths=lengths
        )
    )
    for start, end in ((0, 2), (2, 3), (3, 4), (4, 5), (5, 6)):
        real = jnp.clip(LENGTHS - start, 0, end - start)
        output = apply(params, TOKENS[:, start:end], cache, real)
        cache = output.cache
        pieces.append(output.hidden)
    return jnp.concatenate(pieces, axis=1)


def assert_same(hidden, expected):
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(hidden[row, :length], expected[row, :length], rtol=0, atol=2e-5)


def test_factors_are_those_of_the_length_of_the_rows(params):
    for width, factors in ((ORIGINAL, SHORT), (ORIGINAL + 1, LONG)):
        hidden = whole(decoder(), params, width)
        assert_same(hidden, whole(decoder(factors, factors), params, width))
        other = SHORT if factors == LONG else LONG
        assert jnp.abs(hidden - whole(decoder(other, other), params, width))[:, 2].max() > 1e-2


@pytest.mark.parametrize("capacity", [ORIGINAL, LONGER])
def test_cache_gives_what_a_pass_over_its_capacity_gives(params, capacity):
    assert_same(cached(decoder(), params, capacity), whole(decoder(), params, capacity))


def test_room_is_at_most_max_len(params):
    shorter = Decoder(dataclasses.replace(decoder().config, max_len=ORIGINAL))
    assert_same(cached(shorter, params, LONGER), whole(decoder(SHORT, SHORT), params, ORIGINAL))
