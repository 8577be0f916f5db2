"""Decoding on accelerators: layers in a scan, with the caches of all of them carried through it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.config import BeamSearchConfig, LayerConfig, ModelConfig, SamplingConfig
from jaxformer.functional.platforms import compiling_for
from jaxformer.inference import generate, translate
from jaxformer.inference.decodable import scans_layers
from jaxformer.models import Decoder, EncoderDecoder, Taps, init_cache

LOCAL = LayerConfig(local_window_size=3)
CONFIG = ModelConfig(
    vocab_size=13, max_len=24, num_layers=3, d_model=16, num_heads=4, num_kv_heads=2, d_ff=17,
    init_std=0.5,
)  # fmt: skip
MIXED = dataclasses.replace(
    CONFIG, num_layers=6, first_layers=(LayerConfig(attention_norm=False),),
    layers=(LOCAL, LayerConfig(positions="alibi")),
)  # fmt: skip
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]


def other(config):
    """An equal config for a program of its own, since jit does not know for what it compiles."""
    return dataclasses.replace(config, init_std=1.0)


@pytest.mark.essential
@pytest.mark.parametrize(("config", "platform"), [(CONFIG, "cuda"), (MIXED, "tpu")])
def test_a_scan_generates_what_a_loop_does(config, platform):
    params = Decoder(config).init_params(jax.random.key(0))
    run = functools.partial(
        generate, params=params, prompts=PROMPTS, max_new_tokens=9, rng=jax.random.key(1),
        sampling=SamplingConfig(temperature=0),
    )  # fmt: skip
    looped = run(Decoder(config))
    with compiling_for(platform):
        assert scans_layers(Decoder(config))
        scanned = run(Decoder(other(config)))
    for row, expected in zip(scanned, looped, strict=True):
        np.testing.assert_array_equal(row, expected)


def test_a_scan_translates_as_a_loop_does():
    config = dataclasses.replace(CONFIG, architecture="encoder_decoder", num_encoder_layers=2)
    params = EncoderDecoder(config).init_params(jax.random.key(0))
    run = functools.partial(
        translate, params=params, sources=[[1, 2, 3], [4, 5, 6, 7]], start_token=0,
        end_tokens=[2], search=BeamSearchConfig(beam_size=3), max_new_tokens=7,
    )  # fmt: skip
    looped = run(EncoderDecoder(config))
    with compiling_for("cuda"):
        scanned = run(EncoderDecoder(other(config)))
    for row, expected in zip(scanned, looped, strict=True):
        for hypothesis, best in zip(row, expected, strict=True):
            np.testing.assert_array_equal(hypothesis.tokens, best.tokens)
            np.testing.assert_allclose(hypothesis.score, best.score, rtol=1e-5)


def test_weights_taps_and_logits_of_a_scan_are_those_of_a_loop():
    model, tokens = Decoder(CONFIG), jnp.array([[1, 2, 3, 4, 5]])
    params = model.init_params(jax.random.key(0))

    @functools.partial(jax.jit, static_argnames="scanned")
    def run(scanned):
        cache = init_cache(CONFIG, 1, 8, scanned=scanned)
        first = model.apply({"params": params}, tokens[:, :3], cache=cache)
        taps = Taps(read=("hidden",), edit={"inputs": lambda x, layer: x * (1 + 0.1 * layer)})
        edited = model.apply({"params": params}, tokens[:, 3:], cache=first.cache, taps=taps)
        second = model.apply(
            {"params": params}, tokens[:, 3:], cache=first.cache, return_weights=True
        )
        return first.logits, second.logits, second.weights, edited.logits, edited.taps

    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-5)
    looped = run(scanned=False)
    jax.tree.map(close, run(scanned=True), looped)
    full = model.apply({"params": params}, tokens).logits
    close(jnp.concatenate(looped[:2], axis=1), full)
