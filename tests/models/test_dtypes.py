"""Dtypes of whole models: strict promotion, and float64 throughout."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxformer.config import ModelConfig
from jaxformer.models import (
    Decoder,
    EncoderDecoder,
    MaskedLanguageModel,
    SequenceClassifier,
    init_cache,
)
from jaxformer.models.cache import computation_dtype
from tests import numpy_transformer, option_sets

SIZES = {"vocab_size": 11, "max_len": 8, "num_layers": 2, "d_model": 8, "num_heads": 2}
ENCODER = ModelConfig(**SIZES, architecture="encoder", positions="learned", use_bias=True)
MODELS = {
    **{name: (Decoder, option_sets.config(name)) for name in option_sets.OPTIONS},
    "sinusoidal": (Decoder, ModelConfig(**SIZES, positions="sinusoidal", scale_embeddings=True)),
    "masked": (MaskedLanguageModel, dataclasses.replace(ENCODER, activation="geglu")),
    "classifier": (SequenceClassifier, dataclasses.replace(ENCODER, num_classes=3)),
    "encoder_decoder": (
        EncoderDecoder,
        dataclasses.replace(ENCODER, architecture="encoder_decoder", positions="rotary"),
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("kind", "config"), MODELS.values(), ids=MODELS)
def test_model_and_gradient_promote_nothing_silently(kind, config, dtype):
    model = kind(dataclasses.replace(config, dtype=dtype, dropout_rate=0.1, layer_execution="scan"))
    tokens = (np.ones((2, 5), np.int32),) * (2 if kind is EncoderDecoder else 1)
    lengths = np.array([5, 3], np.int32)

    def outputs(key):
        params = model.init(key, *tokens)

        def loss(params):
            options = {"rngs": {"dropout": key}, "lengths": lengths, "deterministic": False}
            output = model.apply(params, *tokens, **options)
            return output.logits.sum(), output

        return jax.grad(loss, has_aux=True)(params)[1]

    with jax.numpy_dtype_promotion("strict"):
        output = jax.eval_shape(outputs, jax.random.key(0))
    assert output.logits.dtype == np.float32 and output.hidden.dtype == dtype


@pytest.mark.parametrize(
    "changes",
    [
        {"qk_norm": True, "norm_position": "sandwich", "layer_execution": "scan"},
        {"qk_norm": True, "norm_position": "sandwich", "layer_execution": "loop"},
        {"positions": "rotary"},
        {"positions": "sinusoidal"},
    ],
)
def test_model_of_float64_parameters_computes_in_float64(changes):
    config = dataclasses.replace(ENCODER, **changes)
    model, tokens = MaskedLanguageModel(config), np.array([[1, 2, 3, 4, 5]])
    params = numpy_transformer.float64(numpy_transformer.draw_params(model, tokens))
    with jax.enable_x64(True):
        output = jax.jit(model.apply)({"params": params}, tokens)
    expected, _ = numpy_transformer.encoder(config, params["encoder"], tokens)
    assert output.hidden.dtype == output.logits.dtype == np.float64
    np.testing.assert_allclose(output.hidden, expected, rtol=1e-12, atol=1e-12)


def test_decoding_with_float64_parameters_keeps_keys_and_values_in_float64():
    model, tokens = Decoder(ModelConfig(**SIZES)), np.array([[1, 2, 3, 4, 5]])
    params = numpy_transformer.float64(numpy_transformer.draw_params(model, tokens))
    apply = jax.jit(lambda tokens, **inputs: model.apply({"params": params}, tokens, **inputs))
    with jax.enable_x64(True):
        full = apply(tokens).logits
        cache = init_cache(model.config, 1, 5, dtype=computation_dtype(model.config, params))
        first = apply(tokens[:, :3], cache=cache)
        last = apply(tokens[:, 3:], cache=first.cache)
    got = np.concatenate([first.logits, last.logits], axis=1)
    np.testing.assert_allclose(got, full, rtol=1e-12, atol=1e-12)
