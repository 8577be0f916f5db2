"""Models with a correction of low rank beside every kernel, against those of merged kernels."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.config import ExpertsConfig, LayerConfig, ModelConfig, SamplingConfig
from jaxformer.functional import LowRankKernel
from jaxformer.inference import generate
from jaxformer.models import Decoder, EncoderDecoder, MaskedLanguageModel, SequenceClassifier
from jaxformer.training import combine_low_rank, low_rank_params, merge_low_rank
from tests.models.compiled import compiled

B, T, VOCAB = 2, 5, 11
SIZES = {
    "vocab_size": VOCAB, "max_len": 16, "d_model": 12, "num_heads": 6, "num_layers": 3, "d_ff": 17,
    "init_std": 0.3,
}  # fmt: skip
# A first layer by itself, then a scan over grouped heads, a gate, and experts with their router.
DECODER = ModelConfig(
    **SIZES, first_layers=(LayerConfig(attention_norm=False, experts=False),), num_kv_heads=3,
    embedding_dim=5, tied_embeddings=False, activation="swiglu", remat="dots",
    layer_execution="scan",
    experts=ExpertsConfig(
        num_experts=4, num_experts_per_token=2, d_ff=7, num_shared_experts=2, shared_gate=True
    ),
)  # fmt: skip
ENCODER = ModelConfig(architecture="encoder", **SIZES)
MODELS = {
    "decoder": (Decoder, DECODER),
    "masked": (MaskedLanguageModel, ENCODER),
    "classifier": (
        SequenceClassifier,
        dataclasses.replace(ENCODER, num_classes=3, pooling="first", pooler="tanh"),
    ),
    "translator": (EncoderDecoder, dataclasses.replace(ENCODER, architecture="encoder_decoder")),
}
TOKENS = np.random.default_rng(0).integers(0, VOCAB, (B, T), np.int32)


@compiled
def logits(model, params):
    inputs = (TOKENS, TOKENS) if isinstance(model, EncoderDecoder) else (TOKENS,)
    return model.apply({"params": params}, *inputs).logits


@functools.cache
def make(name):
    """A model, its parameters, and with a correction beside every kernel."""
    kind, config = MODELS[name]
    model = kind(config)
    base = model.init_params(jax.random.key(0))
    return model, base, combined(base)


def combined(base):
    matrices = low_rank_params(base, jax.random.key(1), rank=2, targets=["*"])
    keys = iter(jax.random.split(jax.random.key(2), 100))
    moved = jax.tree.map(
        lambda leaf: leaf + 0.3 * jax.random.normal(next(keys), leaf.shape), matrices
    )
    return combine_low_rank(moved, base, scale=0.5)


@pytest.mark.parametrize("name", MODELS)
def test_model_equals_that_of_merged_kernels(name):
    model, base, params = make(name)
    merged = merge_low_rank(params)
    assert jax.tree.structure(merged) == jax.tree.structure(base)
    result, expected = logits(model, params), logits(model, merged)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-4)
    # The correction of every kernel counts.
    kernels = jax.tree.leaves(params, is_leaf=is_low_rank)
    for index, leaf in enumerate(kernels):
        if is_low_rank(leaf):
            without = [*kernels]
            without[index] = dataclasses.replace(leaf, up=jnp.zeros_like(leaf.up))
            tree = jax.tree.structure(params, is_leaf=is_low_rank)
            changed = logits(model, jax.tree.unflatten(tree, without))
            assert float(jnp.abs(changed - result).max()) > 1e-3


def is_low_rank(leaf):
    return isinstance(leaf, LowRankKernel)


def test_scan_equals_loop_with_gradients():
    model, _, params = make("decoder")
    looped = Decoder(dataclasses.replace(DECODER, layer_execution="loop", remat="none"))

    @compiled
    def value_and_grad(model, params):
        def loss(params):
            return jnp.square(model.apply({"params": params}, TOKENS).logits).mean()

        return jax.value_and_grad(loss)(params)

    (loss_of_scan, grads), (loss_of_loop, looped_grads) = (
        value_and_grad(model, params),
        value_and_grad(looped, params),
    )
    np.testing.assert_allclose(loss_of_scan, loss_of_loop, rtol=1e-5)
    chex.assert_trees_all_close(grads, looped_grads, rtol=1e-3, atol=1e-4)


def test_decoding_equals_the_full_forward_pass():
    """Token by token, from layers that are split before the loop and looped over."""
    model, _, params = make("decoder")
    rows = generate(
        model, params, TOKENS.tolist(), max_new_tokens=4, rng=jax.random.key(0),
        sampling=SamplingConfig(temperature=0.0),
    )  # fmt: skip
    tokens = np.array([list(row)[-4:] for row in rows])
    whole = np.concatenate([TOKENS, tokens], axis=1)
    full = compiled(lambda _, tokens: model.apply({"params": params}, tokens).logits)
    np.testing.assert_array_equal(full(None, whole)[:, T - 1 : -1].argmax(-1), tokens)


def test_layer_that_knows_nothing_of_it_takes_the_merged_kernel():
    layer, x = nn.Dense(7), jnp.ones((2, 12))
    params = layer.init(jax.random.key(0), x)["params"]
    low_rank = combined(params)
    result = layer.apply({"params": low_rank}, x)
    np.testing.assert_array_equal(result, layer.apply({"params": merge_low_rank(low_rank)}, x))
    assert float(jnp.abs(result - layer.apply({"params": params}, x)).min()) > 1e-3
