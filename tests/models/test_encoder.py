import dataclasses
import functools
import re

import jax
import numpy as np
import pytest

from jaxformer.config import ModelConfig, RelativeConfig
from jaxformer.errors import DataError, ShapeError
from jaxformer.models import (
    Encoder,
)
from tests import numpy_transformer as reference

B, T, VOCAB, CLASSES = 3, 7, 11, 5
BASE = ModelConfig(
    architecture="encoder", vocab_size=VOCAB, max_len=16, num_layers=2, d_model=12, num_heads=2,
    d_ff=17, layer_execution="loop",
)  # fmt: skip
VARIANTS = {
    "bert": dict(
        positions="learned", norm_position="post", activation="gelu", num_layers=3,
        embedding_norm=True, num_token_types=2,
    ),
    "relative": dict(
        positions=RelativeConfig(num_buckets=6, max_distance=5), norm="rms_norm",
        local_window_size=3, use_bias=False, activation="relu",
    ),
    "alibi": dict(positions="alibi", num_heads=4, num_kv_heads=2, head_dim=5, activation="silu"),
}  # fmt: skip
RNG = np.random.default_rng(1)
TOKENS = RNG.integers(0, VOCAB, (B, T), np.int32)
LENGTHS = np.array([7, 4, 0])
IS_REAL = np.arange(T) < LENGTHS[:, None]

quickly_compiled = functools.partial(
    jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0}
)


@functools.partial(quickly_compiled, static_argnames="return_weights")
def compiled_apply(model, params, tokens, **arguments):
    return model.apply({"params": params}, tokens, **arguments)


def apply(*args, **arguments):
    return jax.device_get(compiled_apply(*args, **arguments))


@pytest.fixture(scope="module", params=VARIANTS)
def model(request):
    """A looped encoder, its parameters, and what it gives for unequal lengths."""
    model = Encoder(dataclasses.replace(BASE, **VARIANTS[request.param]))
    params = reference.draw_params(model, TOKENS)
    return model, params, apply(model, params, TOKENS, lengths=LENGTHS, return_weights=True)


def test_encoder_equals_a_float64_reference(model):
    model, params, output = model
    hidden, weights = reference.encoder(model.config, reference.float64(params), TOKENS, LENGTHS)
    assert output.logits is None
    assert output.hidden.shape == (B, T, 12) and output.hidden.dtype == np.float32
    np.testing.assert_allclose(output.hidden[IS_REAL], hidden[IS_REAL], rtol=0, atol=1e-5)
    attention_weights = output.weights.self_attention
    assert attention_weights.shape == weights.shape and attention_weights.dtype == np.float32
    np.testing.assert_allclose(attention_weights, weights, rtol=0, atol=1e-5)


def test_encoder_sees_both_sides_and_no_padding(model):
    model, _, output = model
    distance = np.abs(np.arange(T) - np.arange(T)[:, None])
    near = distance <= (model.config.local_window_size or T)
    seen, weights = near & IS_REAL[:, None] & IS_REAL[..., None], output.weights.self_attention
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(seen[None, :, None], weights.shape))


def test_scanned_encoder_equals_the_looped_one(model):
    model, params, output = model
    scanned = Encoder(dataclasses.replace(model.config, layer_execution="scan", remat="dots"))
    again = apply(scanned, params, TOKENS, lengths=LENGTHS, return_weights=True)
    np.testing.assert_allclose(again.hidden[IS_REAL], output.hidden[IS_REAL], rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        again.weights.self_attention, output.weights.self_attention, rtol=0, atol=1e-5
    )


def test_encoder_keeps_packed_sequences_apart(model):
    model, params, _ = model
    if model.config.positions.kind == "learned":
        positions = np.tile(np.r_[0:4, 0:3], (B, 1))
    else:
        positions = np.tile(np.arange(T), (B, 1))  # a bias is counted by index in any case
    arguments = {"segment_ids": np.tile(np.repeat([5, 2], [4, 3]), (B, 1)), "positions": positions}
    packed = apply(model, params, TOKENS, **arguments).hidden
    alone = reference.float64(params)
    for part in (slice(0, 4), slice(4, T)):
        expected, _ = reference.encoder(model.config, alone, TOKENS[:, part])
        np.testing.assert_allclose(packed[:, part], expected, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def gradient():
    """|d hidden at t / d the embedding at s|, `[T, T]`, of a row with 5 real tokens."""
    config = dataclasses.replace(BASE, positions="none", layer_execution="scan", remat="full")
    model, tokens = Encoder(config), np.arange(T)[None]
    params = reference.draw_params(model, tokens)
    chosen = RNG.standard_normal((T, 12))

    @quickly_compiled
    def jacobian(model, params):
        def values(table):
            changed = {**params, "embedding": {"embedding": table}}
            hidden = model.apply({"params": changed}, tokens, lengths=np.array([5])).hidden
            return (hidden[0] * chosen).sum(-1)

        return jax.jacrev(values)(params["embedding"]["embedding"])

    return np.abs(jacobian(model, params))[:, :T].max(-1)


def test_every_real_token_depends_on_every_real_one_and_on_no_padding(gradient):
    assert (gradient[:5, :5] > 0).all()
    assert (gradient[:5, 5:] == 0).all()


@pytest.mark.parametrize(
    ("types", "error", "words"),
    [
        (np.full((B, T), 2), DataError, "token_types must be in 0 .. V-1 = 1, got 2"),
        (np.zeros((B, 2), int), ShapeError, "token_types must be [B=3, T=7], got shape (3, 2)"),
        (None, ShapeError, "token_types are for a model with num_token_types"),
    ],
)
def test_wrong_token_types_are_refused(types, error, words):
    count = None if types is None else 2
    config = dataclasses.replace(BASE, num_token_types=count)
    with pytest.raises(error, match=re.escape(words)):
        run(
            Encoder, TOKENS, config=config, token_types=np.zeros((B, T)) if count is None else types
        )


def test_encoder_of_the_third_tutorial_has_its_shape():
    """30 sentences of 50 tokens, 5 layers as in the paper's base model."""
    config = ModelConfig(
        architecture="encoder", vocab_size=100, max_len=50, num_layers=5, d_model=512,
        num_heads=8, d_ff=2048, positions="sinusoidal", norm_position="post", activation="relu",
        scale_embeddings=True,
    )  # fmt: skip
    model = Encoder(config)
    full, _ = jax.eval_shape(model.init_with_output, jax.random.key(0), np.zeros((30, 50), int))
    assert full.hidden.shape == (30, 50, 512)
    params = jax.tree.map(np.asarray, reference.draw_params(model, TOKENS, std=0.02))
    hidden = apply(model, params, TOKENS[:2, :3]).hidden
    assert hidden.shape == (2, 3, 512) and np.isfinite(hidden).all()


def run(make, *args, config=BASE, method="init", **arguments):
    init = getattr(make(config), method)
    return jax.eval_shape(lambda: init(jax.random.key(0), *args, **arguments))
