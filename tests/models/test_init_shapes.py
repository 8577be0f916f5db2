"""Shapes of parameters are traced once for a model, whatever becomes of what was returned."""

import chex
import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.models import Decoder
from jaxformer.models.init_shapes import init_shapes

TOKENS = jax.ShapeDtypeStruct((1, 2), jnp.int32)
VECTORS = jax.ShapeDtypeStruct((5, 3), jnp.float32)


def test_equal_models_are_traced_once_and_others_anew():
    dense = chex.assert_max_traces(lambda x, features: nn.Dense(features)(x), n=1)

    class Traced(nn.Module):
        features: int

        @nn.compact
        def __call__(self, x):
            return dense(x, self.features)

    for _ in range(2):
        assert init_shapes(Traced(7), VECTORS)["Dense_0"]["kernel"].shape == (3, 7)
    for module, inputs in ((Traced(2), VECTORS), (Traced(7), TOKENS)):
        with pytest.raises(AssertionError, match="traced > 1 times"):
            init_shapes(module, inputs)


def test_what_a_caller_changes_stays_with_it():
    model = Decoder(ModelConfig(vocab_size=13, max_len=8, num_layers=2, d_model=4, num_heads=2))
    changed = init_shapes(model, TOKENS)
    del changed["embedding"]
    changed["stack"]["layers"].clear()
    drawn = nn.unbox(jax.eval_shape(model.init, jax.random.key(0), TOKENS))["params"]
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), drawn) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), init_shapes(model, TOKENS)
    )


def test_dtypes_are_those_of_the_precision_in_force():
    model = nn.Dense(3, param_dtype=float)
    assert init_shapes(model, VECTORS)["bias"].dtype == jnp.float32
    with jax.enable_x64(True):
        assert init_shapes(model, VECTORS)["bias"].dtype == jnp.float64
    assert init_shapes(model, VECTORS)["bias"].dtype == jnp.float32
