"""Initial parameters from a key alone, the same as `init` from an input; and their shapes."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.models import Decoder, EncoderDecoder, SequenceClassifier, Transformer
from jaxformer.models.init_shapes import draw_params, init_shapes
from jaxformer.modules.initializers import normal_init

SIZES = {"max_len": 8, "num_layers": 1, "d_model": 4, "num_heads": 2}
TOKENS, VECTORS = jnp.ones((2, 5), jnp.int32), jnp.ones((2, 5, 4))
SHAPE = jax.ShapeDtypeStruct((5, 3), jnp.float32)


@pytest.mark.parametrize(
    "model, inputs",
    [
        (Decoder(ModelConfig(vocab_size=11, **SIZES)), (TOKENS,)),
        (Transformer(ModelConfig(**SIZES)), (VECTORS,)),
        (EncoderDecoder(ModelConfig(architecture="encoder_decoder", vocab_size=11, **SIZES)),
         (TOKENS, TOKENS)),
        (SequenceClassifier(
             ModelConfig(architecture="encoder", vocab_size=11, num_classes=3, **SIZES)
         ), (TOKENS,)),
    ],
    ids=["decoder", "vectors", "encoder_decoder", "classifier"],
)  # fmt: skip
def test_initial_parameters_are_those_of_init(model, inputs):
    rng = jax.random.key(3)
    expected = nn.unbox(jax.jit(model.init)(rng, *inputs))["params"]
    chex.assert_trees_all_equal(model.init_params(rng), expected)


def test_equal_models_compile_one_program_to_draw_their_parameters():
    config, before = ModelConfig(**SIZES), draw_params._cache_size()
    for seed in range(2):
        Transformer(dataclasses.replace(config, d_model=8)).init_params(jax.random.key(seed))
    assert draw_params._cache_size() == before + 1


def test_parameters_in_bfloat16_are_drawn_in_float32_and_rounded():
    draw = normal_init(0.02)
    wide, narrow = (draw(jax.random.key(0), (37, 41), d) for d in (jnp.float32, jnp.bfloat16))
    chex.assert_trees_all_equal(narrow, wide.astype(jnp.bfloat16))


def test_dtypes_are_those_of_the_precision_in_force():
    model = nn.Dense(3, param_dtype=float)
    assert init_shapes(model, SHAPE)["bias"].dtype == jnp.float32
    with jax.enable_x64(True):
        assert init_shapes(model, SHAPE)["bias"].dtype == jnp.float64
    assert init_shapes(model, SHAPE)["bias"].dtype == jnp.float32
