"""Layers that differ by a pattern: as in a float64 reference, scanned, looped, and with a cache."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.config import (
    ExpertsConfig,
    LayerConfig,
    ModelConfig,
    RelativeConfig,
    RotaryConfig,
)
from jaxformer.functional import KVCache, WindowCache
from jaxformer.models import Decoder, Encoder, EncoderDecoder, init_cache
from tests import numpy_transformer as reference
from tests.models.compiled import apply, assert_decodes

B, T, VOCAB, CAPACITY = 2, 9, 11, 13
BASE = ModelConfig(
    vocab_size=VOCAB, max_len=16, num_layers=5, d_model=16, num_heads=4, d_ff=17, init_std=0.3,
    norm="rms_norm",
)  # fmt: skip
LOCAL = LayerConfig(local_window_size=2, positions=RotaryConfig(base=100.0))
PATTERNS = {
    # Local and global layers, each with its own rotary base; a part of the pattern at the end.
    "gemma3": dict(layers=(LOCAL, LOCAL, LayerConfig())),
    # Every other layer without positions; the pattern divides the depth that is left.
    "smollm3": dict(layers=(LayerConfig(), LayerConfig(positions="none")), num_layers=4),
    # A first layer of its own, with other parameters, and biases in some layers.
    # Dense layers before a mixture of experts, whose network is wider.
    "deepseek": dict(
        first_layers=(LayerConfig(experts=False, local_window_size=2), LayerConfig(experts=False)),
        layers=(LOCAL, LayerConfig()),
        activation="swiglu",
        experts=ExpertsConfig(
            num_experts=6,
            num_experts_per_token=2,
            d_ff=5,
            router_scores="sigmoid",
            num_groups=3,
            num_groups_per_token=2,
            routed_scale=1.7,
            num_shared_experts=2,
        ),
    ),
    "modernbert": dict(
        first_layers=(LayerConfig(attention_norm=False),),
        layers=(LOCAL, LayerConfig(positions="alibi"), LayerConfig(local_window_size=0)),
    ),
}
TOKENS = np.random.default_rng(0).integers(0, VOCAB, (B, T), np.int32)
LENGTHS = np.array([9, 4])
REAL = np.arange(T) < LENGTHS[:, None]


def config_of(name, **changes):
    return dataclasses.replace(BASE, **PATTERNS[name] | changes)


@pytest.mark.parametrize("execution", ["scan", "loop"])
@pytest.mark.parametrize("name", PATTERNS)
def test_encoder_with_a_pattern_equals_a_float64_reference(name, execution):
    config = config_of(name, architecture="encoder", layer_execution=execution, remat="dots")
    params = reference.draw_params(Encoder(config), TOKENS)
    output = apply(Encoder(config), params, TOKENS, lengths=LENGTHS, return_weights=True)
    hidden, weights = reference.encoder(config, reference.float64(params), TOKENS, LENGTHS)
    np.testing.assert_allclose(output.hidden[REAL], hidden[REAL], rtol=0, atol=2e-5)
    np.testing.assert_allclose(output.weights.self_attention, weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", PATTERNS)
def test_gradients_do_not_depend_on_how_layers_run(name):
    def gradient(execution):
        decoder = Decoder(config_of(name, layer_execution=execution))

        def loss(params):
            return jnp.square(decoder.apply({"params": params}, TOKENS).logits).sum()

        return jax.jit(jax.grad(loss))(params)

    params = reference.draw_params(Decoder(config_of(name)), TOKENS)
    scanned, looped = gradient("scan"), gradient("loop")
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4 * np.abs(a).max()),
        scanned, looped,
    )  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_decoding_keeps_windows_only_and_equals_the_full_pass(name):
    config = config_of(name)
    model = Decoder(config)
    params = reference.draw_params(model, TOKENS)
    full = apply(model, params, TOKENS).logits
    cache = init_cache(config, B, CAPACITY)
    windows = [layer.local_window_size for layer in config.layer_overrides]
    assert [type(c) for c in cache] == [WindowCache if w else KVCache for w in windows]
    assert [c.key.shape[2] for c in cache] == [w + 1 if w else CAPACITY for w in windows]
    assert_decodes(model, params, TOKENS, np.array([6, 2]), full, cache=cache, steps=3, atol=2e-5)


def test_pattern_is_that_of_both_halves_of_an_encoder_decoder():
    config = config_of("gemma3", architecture="encoder_decoder", num_encoder_layers=3)
    source = TOKENS[:, :6]
    params = reference.draw_params(EncoderDecoder(config), source, TOKENS)
    logits = apply(EncoderDecoder(config), params, source, TOKENS).logits
    expected, _ = reference.encoder_decoder(config, reference.float64(params), source, TOKENS)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2e-5)


def test_parameters_are_those_of_equal_layers_but_for_those_of_first_layers():
    def shapes(config):
        return jax.eval_shape(Decoder(config).init_params, jax.random.key(0))["stack"]

    assert jax.tree.map(jnp.shape, shapes(config_of("gemma3"))) == jax.tree.map(
        jnp.shape, shapes(BASE)
    )
    shapes_of_stack = shapes(config_of("modernbert"))
    assert shapes_of_stack["layers"].keys() - shapes_of_stack["first_layers"].keys() == {
        "attention_norm"
    }
    assert {leaf.shape[0] for leaf in jax.tree.leaves(shapes_of_stack["first_layers"])} == {1}
    assert {leaf.shape[0] for leaf in jax.tree.leaves(shapes_of_stack["layers"])} == {4}


def test_layers_that_name_the_positions_of_the_model_share_its_table():
    def tables(**changes):
        config = dataclasses.replace(BASE, positions="relative", **changes)
        params = jax.eval_shape(Decoder(config).init_params, jax.random.key(0))
        return {name for name in params if "positions" in name}

    layers = (LayerConfig(), LayerConfig(positions="relative", local_window_size=2))
    assert tables() == tables(layers=layers) == {"positions"}
    other = LayerConfig(positions=RelativeConfig(table=1))
    assert tables(layers=(*layers, other)) == {"positions", "layer_positions_0"}


@pytest.mark.parametrize("name", ["gemma3", "modernbert"])
def test_scanned_program_does_not_grow_with_the_depth(name):
    """One scan over the repeats of the pattern, whatever their number."""

    def program(repeats):
        period = len(PATTERNS[name]["layers"])
        depth = len(PATTERNS[name].get("first_layers", ())) + repeats * period
        model = Decoder(config_of(name, num_layers=depth, layer_execution="scan"))
        params = nn.unbox(jax.eval_shape(model.init, jax.random.key(0), TOKENS))["params"]
        jaxpr = jax.make_jaxpr(lambda p: model.apply({"params": p}, TOKENS).logits)(params)
        return str(jaxpr)

    small, large = program(2), program(20)
    assert small.count("scan[") == large.count("scan[") == 1
    assert small.count("\n") == large.count("\n")
