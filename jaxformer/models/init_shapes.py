"""Shapes of a model's parameters, without the parameters."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn


def init_shapes(model: nn.Module, *inputs: jax.ShapeDtypeStruct) -> Any:
    """Shapes and dtypes of a model's parameters, by tracing its `init` without computing."""
    # Cached by the model's fields: tracing can take most of a second. The caller may modify it.
    # Dtypes depend on jax_enable_x64, which shows in the default float dtype.
    return jax.tree.map(lambda leaf: leaf, _trace(model, inputs, jnp.result_type(float)))


@functools.lru_cache(maxsize=32)
def _trace(model: nn.Module, inputs: tuple[jax.ShapeDtypeStruct, ...], _float_dtype: Any) -> Any:
    rng = jax.eval_shape(lambda: jax.random.key(0))
    return nn.unbox(jax.eval_shape(model.init, rng, *inputs))["params"]
