"""Transformers on vectors in place of tokens."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.models import Decoder, Transformer
from tests import numpy_transformer as reference

CONFIG = ModelConfig(vocab_size=13, max_len=16, num_layers=2, d_model=12, num_heads=2)
NAMELESS = dataclasses.replace(CONFIG, vocab_size=None)
TOKENS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
LENGTHS = np.array([5, 3])


@pytest.fixture(scope="module")
def params():
    return reference.draw_params(Decoder(CONFIG), TOKENS)


def test_vectors_give_what_the_tokens_that_they_embed_give(params):
    """With positions, lengths and logits; a model without a vocabulary gives hidden states."""
    model, vectors = Decoder(CONFIG), params["embedding"]["embedding"][TOKENS]
    apply = jax.jit(model.apply)
    expected = apply({"params": params}, TOKENS, lengths=LENGTHS)
    output = apply({"params": params}, vectors, lengths=LENGTHS)
    np.testing.assert_allclose(output.logits, expected.logits, rtol=0, atol=1e-5)
    trunk = {name: leaf for name, leaf in params.items() if name != "embedding"}
    apply = jax.jit(Transformer(NAMELESS, causal=True).apply)
    output = apply({"params": trunk}, vectors, lengths=LENGTHS)
    np.testing.assert_allclose(output.hidden, expected.hidden, rtol=0, atol=1e-5)


def test_model_that_is_called_on_vectors_alone_has_no_table():
    variables = jax.eval_shape(Transformer(NAMELESS).init, jax.random.key(0), jnp.ones((1, 2, 12)))
    assert set(variables["params"]) == {"stack", "final_norm"}


@pytest.mark.parametrize(
    ("config", "inputs", "error", "message"),
    [
        (CONFIG, jnp.ones((1, 2, 11)), ShapeError, "config.d_model=12 is D"),
        (CONFIG, jnp.ones((1, 17, 12)), ShapeError, "at most max_len=16"),
        (CONFIG, jnp.ones((1, 2)), ShapeError, "tokens must be integer"),
        (NAMELESS, jnp.ones((1, 2), int), ConfigError, "vocab_size must be set"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(config, inputs, error, message):
    with pytest.raises(error, match=message):
        jax.eval_shape(Transformer(config).init, jax.random.key(0), inputs)
