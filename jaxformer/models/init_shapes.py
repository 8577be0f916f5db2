"""Initial parameters of a model, and their shapes without the parameters."""

import functools
from typing import Any

import jax
from flax import linen as nn


@functools.partial(jax.jit, static_argnums=0)
def draw_params(model: nn.Module, rng: jax.Array, *inputs: jax.Array) -> Any:
    """Parameters of a model, by one program, which is compiled once for equal models."""
    # Eagerly, `init` would compile more than a hundred programs, many of them in each call.
    return nn.unbox(model.init(rng, *inputs))["params"]


def init_shapes(model: Any, *inputs: jax.ShapeDtypeStruct) -> Any:
    """Shapes and dtypes of a model's parameters; a module that is no `Model` needs inputs."""
    # Tracing can take most of a second; jit traces equal models once.
    rng = jax.eval_shape(lambda: jax.random.key(0))
    if not inputs:
        return jax.eval_shape(model.init_params, rng)
    return draw_params.eval_shape(model, rng, *inputs)
