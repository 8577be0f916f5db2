"""Shapes of parameters are traced once for a model, whatever becomes of what was returned."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.models import Decoder
from jaxformer.models.init_shapes import init_shapes

TOKENS = jax.ShapeDtypeStruct((1, 2), jnp.int32)
VECTORS = jax.ShapeDtypeStruct((5, 3), jnp.float32)


def test_equal_models_are_traced_once_and_others_anew():
    traced = []

    class Counted(nn.Module):
        features: int

        @nn.compact
        def __call__(self, x):
            traced.append(self.features)
            return nn.Dense(self.features)(x)

    for _ in range(2):
        assert init_shapes(Counted(7), VECTORS)["Dense_0"]["kernel"].shape == (3, 7)
    assert init_shapes(Counted(2), VECTORS)["Dense_0"]["kernel"].shape == (3, 2)
    wide = jax.ShapeDtypeStruct((5, 11), jnp.float32)
    assert init_shapes(Counted(2), wide)["Dense_0"]["kernel"].shape == (11, 2)
    assert traced == [7, 2, 2]


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


def test_model_need_not_be_hashable():
    class Shifted(nn.Module):
        table: jax.Array

        @nn.compact
        def __call__(self, x):
            return self.table @ x + self.param("shift", nn.initializers.ones, (2, 3))

    assert init_shapes(Shifted(jnp.ones((2, 5))), VECTORS)["shift"].shape == (2, 3)
