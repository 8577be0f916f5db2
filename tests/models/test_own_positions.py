"""Position schemes that a user brings to a model."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxformer.models import Decoder, EncoderDecoder, init_cache
from jaxformer.modules import Positions
from tests import numpy_transformer as reference
from tests.models.compiled import apply
from tests.models.own_parts import (
    BOTH,
    CAPACITY,
    CONFIG,
    TOKENS,
    Angles,
    B,
    T,
)


@pytest.mark.parametrize("window", [None, 2])
def test_position_scheme_adds_rotates_and_biases_also_with_a_cache(window):
    config = dataclasses.replace(CONFIG, positions="none", local_window_size=window)
    model = Decoder(config, position_scheme=Angles(width=12))
    params = reference.draw_params(model, TOKENS)
    assert params["positions"]["scale"].shape == ()
    full = apply(model, params, TOKENS).logits
    cache, pieces = init_cache(config, B, CAPACITY), []
    for start in range(T):
        output = apply(model, params, TOKENS[:, start : start + 1], cache=cache)
        cache = output.cache
        pieces.append(output.logits)
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), full, rtol=0, atol=1e-5)


@pytest.mark.parametrize("part", ["encoding", "rotation", "bias"])
def test_every_part_of_a_position_scheme_counts(part):
    class Without(Angles):
        pass

    setattr(Without, part, getattr(Positions, part))
    config = dataclasses.replace(CONFIG, positions="none")
    with_all, without = (
        Decoder(config, position_scheme=scheme(width=12)) for scheme in (Angles, Without)
    )
    params = reference.draw_params(with_all, TOKENS)
    logits = [np.asarray(apply(model, params, TOKENS).logits) for model in (with_all, without)]
    assert np.abs(logits[0] - logits[1]).max() > 1e-3


def test_position_scheme_gets_the_room_of_the_rows():
    rooms = []

    class Listening(Positions):
        def rotation(self, positions, room):
            rooms.append(room)
            return None

    model = Decoder(dataclasses.replace(CONFIG, positions="none"), position_scheme=Listening())
    params = jax.eval_shape(model.init_params, jax.random.key(0))
    rooms.clear()
    for cache in (None, init_cache(CONFIG, B, CAPACITY)):
        jax.eval_shape(
            lambda params, c=cache: model.apply({"params": params}, TOKENS, cache=c), params
        )
    assert rooms == [T, CAPACITY]


def test_both_halves_of_an_encoder_decoder_have_their_own_copy_of_a_position_scheme():
    model = EncoderDecoder(
        dataclasses.replace(BOTH, positions="none"), position_scheme=Angles(width=12)
    )
    params = reference.draw_params(model, TOKENS, TOKENS)
    assert params["encoder"]["positions"].keys() == params["decoder"]["positions"].keys()
    assert params["encoder"]["positions"].keys() == {"scale"}
    assert params.keys() == {"embedding", "encoder", "decoder"}  # and none that they share
